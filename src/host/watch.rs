//! Kernel events as futures: a changed mount table, a changed directory.
//!
//! Both are descriptors in tokio's reactor, so an idle node uses no CPU time. An event can be reported twice, but is
//! never lost.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

/// Changes of the mount table. Bound to the runtime that it was created in.
#[derive(Debug)]
pub struct MountEvents(AsyncFd<OwnedFd>);

impl MountEvents {
    /// Watches the mount table of the calling thread's namespace.
    ///
    /// # Errors
    /// When `/proc` is not there.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        let file = File::open("/proc/thread-self/mountinfo")?;
        registered(file.into(), Interest::PRIORITY).map(Self)
    }

    /// Waits for a mount, unmount or remount since the last call. Cancel-safe.
    ///
    /// # Errors
    /// When the reactor has ended.
    pub async fn changed(&self) -> io::Result<()> {
        let mut guard = self.0.ready(Interest::PRIORITY).await?;
        guard.clear_ready_matching(Ready::PRIORITY);
        Ok(())
    }
}

/// Added, removed and written entries of a directory, and changes of the directory itself. Bound to the runtime that it
/// was created in.
#[derive(Debug)]
pub struct DirEvents {
    inotify: AsyncFd<OwnedFd>,
    watched: Option<i32>,
}

impl DirEvents {
    /// Creates a watch without a directory.
    ///
    /// # Errors
    /// When the kernel has no more instances for this user: sysctl `fs.inotify.max_user_instances`.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self { inotify: registered(fd, Interest::READABLE)?, watched: None })
    }

    /// Whether changes of a directory are reported.
    pub fn is_watching(&self) -> bool {
        self.watched.is_some()
    }

    /// Watches only this directory, or nothing while it does not exist: the periodic scan notices when it is created.
    /// Has to be called before each reading of it: the path may lead to another directory by now, a new one or a
    /// mount. Blocks as long as the lookup of the path does.
    ///
    /// Drops earlier events: the caller is about to read the whole directory.
    ///
    /// # Errors
    /// When the watch cannot be set.
    pub fn set_dir(&mut self, dir: &Path) -> io::Result<()> {
        // Attributes are not watched: nothing depends on them.
        let events = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        while self.read().is_ok() {}
        let now = match inotify::add_watch(&self.inotify, dir, events) {
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            now => Some(now?),
        };
        let before = std::mem::replace(&mut self.watched, now);
        if let Some(before) = before.filter(|_| before != now) {
            // Fails when the directory was removed, and the watch with it.
            let _ = inotify::remove_watch(&self.inotify, before);
        }
        Ok(())
    }

    /// Waits for the next change, or forever without a watch. Drops a watch that fails. Cancel-safe.
    pub async fn next_change(watch: &mut Option<Self>) {
        match watch {
            Some(events) if events.changed().await.is_err() => *watch = None,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }

    /// Waits for the next change. Cancel-safe.
    ///
    /// # Errors
    /// When events cannot be read.
    pub async fn changed(&self) -> io::Result<()> {
        loop {
            let mut guard = self.inotify.readable().await?;
            if let Ok(read) = guard.try_io(|_| self.read()) {
                return read;
            }
        }
    }

    /// Reads pending events. Fails when there is none.
    fn read(&self) -> io::Result<()> {
        rustix::io::read(&self.inotify, &mut [0; 4096])?;
        Ok(())
    }
}

#[expect(unsafe_code, reason = "tokio trusts no type to keep its descriptor open")]
fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is one open descriptor until it is dropped.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
