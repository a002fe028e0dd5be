//! A disk that records what is written to it, and in which order it was flushed.
//!
//! It is a file of FUSE, which this process answers in the kernel's own protocol (`linux/fuse.h`), below a loop device.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use support::LoopDevice;

const BLOCK: usize = 4096;

/// What happened to the disk.
#[derive(Clone, Debug)]
pub enum Step {
    Write { at: u64, bytes: Vec<u8> },
    Flush,
}

impl Step {
    pub fn is_flush(&self) -> bool {
        matches!(self, Self::Flush)
    }

    /// The writes that make a new file equal to this one.
    fn all_of(file: &File) -> io::Result<Vec<Self>> {
        let mut content = vec![0; usize::try_from(file.metadata()?.len()).unwrap()];
        file.read_exact_at(&mut content, 0)?;
        let blocks = (0..).step_by(BLOCK).zip(content.chunks(BLOCK));
        let used = blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        let steps = used.map(|(at, block)| Self::Write {
            at,
            bytes: block.to_vec(),
        });
        Ok(steps.collect())
    }

    fn apply(&self, file: &File) -> io::Result<()> {
        match self {
            Self::Write { at, bytes } => file.write_all_at(bytes, *at),
            Self::Flush => Ok(()),
        }
    }
}

/// The file of FUSE over another one.
pub struct Recorder {
    path: PathBuf,
    size: u64,
    before: Vec<Step>,
    log: Arc<Mutex<Vec<Step>>>,
}

impl Recorder {
    /// Mounts the file on a new one, until this is dropped and no loop device uses it.
    pub fn over(file: File, path: &Path) -> io::Result<Self> {
        File::create_new(path)?;
        let (size, before) = (file.metadata()?.len(), Step::all_of(&file)?);
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=100600,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let (source, flags) = (Some("recorder"), MsFlags::empty());
        mount(source, path, Some("fuse"), flags, Some(options.as_str()))?;
        let log = Arc::default();
        let recorded = Arc::clone(&log);
        std::thread::spawn(move || serve(&device, &file, &recorded));
        Ok(Self {
            path: path.to_owned(),
            size,
            before,
            log,
        })
    }

    pub fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.path)
    }

    /// Begins the log.
    pub fn begin(&mut self) {
        let mut steps = std::mem::take(&mut *self.log());
        self.before.append(&mut steps);
    }

    /// A copy of the disk, made in a directory, on which only these steps of the log happened.
    pub fn disk_after<'a>(&'a self, log: impl Iterator<Item = &'a Step>, dir: &Path) -> LoopDevice {
        let file = tempfile::tempfile_in(dir).unwrap();
        file.set_len(self.size).unwrap();
        for step in self.before.iter().chain(log) {
            step.apply(&file).unwrap();
        }
        LoopDevice::over(&file).unwrap()
    }

    /// All steps since then.
    pub fn log(&self) -> MutexGuard<'_, Vec<Step>> {
        self.log.lock().unwrap()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

/// Answers until the file is unmounted and closed.
fn serve(mut device: &File, file: &File, log: &Mutex<Vec<Step>>) {
    let mut request = vec![0; 1 << 20];
    while let Ok(length) = device.read(&mut request) {
        let request = &request[..length];
        // FORGET, INTERRUPT and BATCH_FORGET get no answer.
        if [2, 36, 42].contains(&number(request, 4)) {
            continue;
        }
        let (error, body) = match answer(request, file, log) {
            Ok(body) => (0, body),
            Err(error) => (
                -error.raw_os_error().unwrap_or(Errno::EIO as i32),
                Vec::new(),
            ),
        };
        let length = u32::try_from(16 + body.len()).unwrap().to_ne_bytes();
        let header = [&length, &error.to_ne_bytes(), &request[8..16]].concat();
        let _ = device.write_all(&[header, body].concat());
    }
}

fn answer(request: &[u8], file: &File, log: &Mutex<Vec<Step>>) -> io::Result<Vec<u8>> {
    let at = || u64::from(number(request, 48)) + (u64::from(number(request, 52)) << 32);
    let length = || number(request, 56);
    let body = match number(request, 4) {
        // GETATTR: the attributes of a file.
        3 => {
            let size = u32::try_from(file.metadata()?.len()).unwrap();
            let times = [0; 8];
            let first = words(&[0, 0, 0, 0, 1, 0, size, 0]);
            let last = words(&[0, 0, 0, 0o10_0600, 1, 0, 0, 0, 4096, 0]);
            [first, words(&times), last].concat()
        }
        // OPEN: no handle.
        14 => words(&[0; 4]),
        // READ
        15 => {
            let mut bytes = vec![0; length() as usize];
            file.read_exact_at(&mut bytes, at())?;
            bytes
        }
        // WRITE
        16 => {
            let (at, bytes) = (at(), request[80..].to_vec());
            let step = Step::Write { at, bytes };
            step.apply(file)?;
            log.lock().unwrap().push(step);
            words(&[length(), 0])
        }
        // FSYNC
        20 => {
            log.lock().unwrap().push(Step::Flush);
            Vec::new()
        }
        // RELEASE and FLUSH
        18 | 25 => Vec::new(),
        // INIT: version 7.31, writes of a block.
        26 => words(&[7, 31, 4096, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        _ => return Err(Errno::ENOSYS.into()),
    };
    Ok(body)
}

fn number(request: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(request[at..at + 4].try_into().unwrap())
}

fn words(values: &[u32]) -> Vec<u8> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.collect()
}
