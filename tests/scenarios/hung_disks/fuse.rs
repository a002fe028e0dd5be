//! A FUSE filesystem without libfuse: an empty directory, spoken for in the kernel's own protocol
//! (`linux/fuse.h`), which answers, answers late, or does not answer at all.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The mounted filesystem. When it is dropped, all system calls that wait for it end.
pub struct Fuse {
    path: PathBuf,
    state: Arc<State>,
    /// While it is not read, no request is answered.
    device: Option<File>,
    server: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    late_by_ms: AtomicU64,
    frozen: AtomicBool,
    ended: AtomicBool,
}

impl Fuse {
    /// Mounts a filesystem that never answers. A system call on `path` hangs from now on.
    pub fn silent(path: &Path) -> Self {
        Self::mounted(Path::new("hung"), path, "fuse")
    }

    fn mounted(source: &Path, path: &Path, fs_type: &str) -> Self {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
            device.as_raw_fd()
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some(source), path, Some(fs_type), flags, Some(options.as_str())).unwrap();
        Self { path: path.into(), state: Arc::default(), device: Some(device), server: None }
    }

    /// Mounts a filesystem that answers.
    pub fn answering(path: &Path) -> Self {
        Self::silent(path).answered()
    }

    /// The same on a disk, where only such a filesystem is cleaned.
    pub fn on_disk(disk: &Path, path: &Path) -> Self {
        Self::mounted(disk, path, "fuseblk").answered()
    }

    fn answered(mut self) -> Self {
        let (device, state) = (self.device.take().unwrap(), Arc::clone(&self.state));
        self.server = Some(std::thread::spawn(move || serve(device, &state)));
        self
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Delays all answers from now on.
    pub fn slow(&self, by: Duration) {
        self.state.late_by_ms.store(by.as_millis().try_into().unwrap(), Ordering::Release);
    }

    /// Stops answering.
    pub fn freeze(&self) {
        self.state.frozen.store(true, Ordering::Release);
    }

    /// Answers all that has been asked meanwhile, and what follows.
    pub fn thaw(&self) {
        self.state.frozen.store(false, Ordering::Release);
    }

    /// Lets the driver die, as a crashed one does: the mount stays and answers with errors.
    pub fn end(mut self) -> PathBuf {
        self.close();
        std::mem::take(&mut self.path)
    }

    fn close(&mut self) {
        self.state.ended.store(true, Ordering::Release);
        drop(self.device.take());
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.close();
        if !self.path.as_os_str().is_empty() {
            let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        }
    }
}

/// Owns the device: when this returns, the connection is closed.
fn serve(mut device: File, state: &State) {
    let mut request = vec![0; 1 << 20];
    while !state.ended.load(Ordering::Acquire) {
        let frozen = state.frozen.load(Ordering::Acquire);
        let mut ready = [PollFd::new(std::os::fd::AsFd::as_fd(&device), PollFlags::POLLIN)];
        let asked = !frozen && poll(&mut ready, PollTimeout::from(5_u8)).unwrap() > 0;
        if !asked {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let Ok(length) = device.read(&mut request) else {
            return;
        };
        std::thread::sleep(Duration::from_millis(state.late_by_ms.load(Ordering::Acquire)));
        if let Some(answer) = answer(&request[..length]) {
            let _ = device.write_all(&answer);
        }
    }
}

const ENOENT: i32 = -2;
const ENOSYS: i32 = -38;

/// The answer to a request, for those that want one.
fn answer(request: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
    let (error, body) = match number(4) {
        // LOOKUP: nothing is in the directory.
        1 => (ENOENT, Vec::new()),
        // FORGET and BATCH_FORGET want no answer.
        2 | 42 => return None,
        // GETATTR: valid for no time; then the attributes of a directory.
        3 => (
            0,
            [
                words(&[0, 0, 0, 0]),
                longs(&[1, 0, 0, 0, 0, 0]),
                words(&[0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0]),
            ]
            .concat(),
        ),
        // STATFS: 64 MiB in blocks of 4 KiB.
        17 => (
            0,
            [
                longs(&[16384, 16384, 16384, 100, 100]),
                words(&[4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0]),
            ]
            .concat(),
        ),
        // INIT: version 7.31, small requests.
        26 => (0, [words(&[7, 31, 4096, 0, 0, 4096, 1, 0]), words(&[0; 8])].concat()),
        // OPENDIR: a handle. READDIR, FLUSH, RELEASEDIR and the like: nothing more.
        27 => (0, [longs(&[1]), words(&[0, 0])].concat()),
        28..=30 => (0, Vec::new()),
        _ => (ENOSYS, Vec::new()),
    };
    let length = u32::try_from(16 + body.len()).unwrap();
    Some([&length.to_ne_bytes(), &error.to_ne_bytes(), &request[8..16], &body].concat())
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}
