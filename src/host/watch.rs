//! Kernel events as futures: a changed mount table, a changed directory.
//!
//! Both are descriptors in tokio's reactor, so that an idle node costs no CPU time. An event may be
//! reported once too often, never too seldom.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use super::dir_watch::{self, DirWatch};

/// Changes of the mount table. Belongs to the runtime that it was made in.
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

    /// Waits until something was mounted, unmounted or remounted since the last call. May be dropped
    /// while it waits.
    ///
    /// # Errors
    /// When the reactor has ended.
    pub async fn changed(&self) -> io::Result<()> {
        let mut guard = self.0.ready(Interest::PRIORITY).await?;
        guard.clear_ready_matching(Ready::PRIORITY);
        Ok(())
    }
}

/// Changes of the names in a directory, and of the directory itself. Belongs to the runtime that it was
/// made in.
#[derive(Debug)]
pub struct DirEvents {
    watch: Option<DirWatch>,
    /// A second descriptor of the watch: tokio requires one of its own.
    events: AsyncFd<OwnedFd>,
}

impl DirEvents {
    /// Watches no directory yet.
    ///
    /// # Errors
    /// When the kernel has no more instances for this user: sysctl `fs.inotify.max_user_instances`.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        // No attributes and no contents: no volume depends on them.
        let watch = DirWatch::new(dir_watch::names())?;
        let fd = watch.as_fd().try_clone_to_owned()?;
        Ok(Self {
            watch: Some(watch),
            events: registered(fd, Interest::READABLE)?,
        })
    }

    /// Hands the watch out, to a thread that may hang while it looks the directory up: see
    /// [`DirWatch::set_dir`]. No event is reported until [`Self::restore`].
    pub fn take(&mut self) -> Option<DirWatch> {
        self.watch.take()
    }

    /// Takes the watch back.
    pub fn restore(&mut self, watch: DirWatch) {
        self.watch = Some(watch);
    }

    /// Waits for the next change. May be dropped while it waits; nothing is lost.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub async fn changed(&mut self) -> io::Result<()> {
        let Some(watch) = &self.watch else {
            return std::future::pending().await;
        };
        loop {
            let mut guard = self.events.readable().await?;
            match watch.read() {
                Ok(true) => return Ok(()),
                Err(Errno::EAGAIN) => guard.clear_ready(),
                Ok(false) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[expect(
    unsafe_code,
    reason = "tokio trusts no type to keep its descriptor open"
)]
fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is one open descriptor until it is dropped.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
