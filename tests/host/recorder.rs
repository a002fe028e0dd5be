//! A disk that records what is written to it, and when that is flushed: a loop device over a file of FUSE, which this
//! process answers in the kernel's own protocol (`linux/fuse.h`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use support::{LoopDevice, run};

/// What happened to the disk.
#[derive(Clone, Debug)]
pub enum Step {
    Write { at: u64, bytes: Vec<u8> },
    Flush,
}

impl Step {
    fn apply(&self, file: &File) -> io::Result<()> {
        match self {
            Self::Write { at, bytes } => file.write_all_at(bytes, *at),
            Self::Flush => Ok(()),
        }
    }
}

pub struct Recorder {
    dir: PathBuf,
    log: Arc<Mutex<Vec<Step>>>,
}

impl Recorder {
    /// A new disk, with its files in a directory.
    pub fn new(dir: &Path, size: u64) -> (Self, LoopDevice) {
        let content = open(&dir.join("content"));
        content.set_len(size).unwrap();
        let recorded = dir.join("recorded");
        open(&recorded);
        let device = open(Path::new("/dev/fuse"));
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=100600,user_id=0,group_id=0");
        let (fuse, options) = (Some("fuse"), Some(options.as_str()));
        mount(fuse, &recorded, fuse, MsFlags::empty(), options).unwrap();
        let this = Self { dir: dir.to_owned(), log: Arc::default() };
        let log = Arc::clone(&this.log);
        std::thread::spawn(move || serve(&device, &content, &log));
        (this, LoopDevice::over(&open(&recorded)).unwrap())
    }

    /// Begins the log.
    pub fn begin(&self) {
        let mut log = self.log();
        self.copy("content", "before");
        log.clear();
    }

    /// All steps since then.
    pub fn log(&self) -> MutexGuard<'_, Vec<Step>> {
        self.log.lock().unwrap()
    }

    /// Another disk, on which only these steps happened since then.
    pub fn disk_after<'a>(&self, steps: impl Iterator<Item = &'a Step>) -> LoopDevice {
        let file = open(&self.copy("before", "after"));
        for step in steps {
            step.apply(&file).unwrap();
        }
        LoopDevice::over(&file).unwrap()
    }

    fn copy(&self, from: &str, to: &str) -> PathBuf {
        let [from, to] = [from, to].map(|name| self.dir.join(name));
        let files = [&from, &to].map(|it| it.to_str().unwrap());
        run("cp", &["--sparse=always", "--remove-destination", files[0], files[1]]);
        to
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

/// Answers as long as the file is mounted.
fn serve(mut device: &File, content: &File, log: &Mutex<Vec<Step>>) {
    let mut request = vec![0; 1 << 20];
    while device.read(&mut request).is_ok() {
        let (error, body) = match answer(&request, content, log) {
            Ok(body) => (0, body),
            Err(error) => (-(error as i32), Vec::new()),
        };
        let length = u32::try_from(16 + body.len()).unwrap().to_ne_bytes();
        let header = [&length, &error.to_ne_bytes(), &request[8..16]].concat();
        // Some requests want no answer.
        let _ = device.write_all(&[header, body].concat());
    }
}

fn answer(request: &[u8], content: &File, log: &Mutex<Vec<Step>>) -> Result<Vec<u8>, Errno> {
    let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
    // No disk has 4 GiB.
    let (at, length) = (u64::from(number(48)), number(56));
    let body: &[u32] = match number(4) {
        // GETATTR: a file of this size.
        3 => {
            let size = u32::try_from(content.metadata().unwrap().len()).unwrap();
            let first = [0, 0, 0, 0, 1, 0, size, 0];
            let times = [0; 11];
            let last = [0o10_0600, 1, 0, 0, 0, 4096, 0];
            &[&first[..], &times, &last].concat()
        }
        // OPEN: no handle.
        14 => &[0; 4],
        // READ
        15 => {
            let mut bytes = vec![0; length as usize];
            content.read_exact_at(&mut bytes, at).unwrap();
            return Ok(bytes);
        }
        // WRITE
        16 => {
            let bytes = request[80..][..length as usize].to_vec();
            let step = Step::Write { at, bytes };
            let mut log = log.lock().unwrap();
            step.apply(content).unwrap();
            log.push(step);
            &[length, 0]
        }
        // FSYNC
        20 => {
            log.lock().unwrap().push(Step::Flush);
            &[]
        }
        // INIT: version 7.31, writes of a block.
        26 => &[7, 31, 4096, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        _ => return Err(Errno::ENOSYS),
    };
    Ok(body.iter().flat_map(|word| word.to_ne_bytes()).collect())
}
