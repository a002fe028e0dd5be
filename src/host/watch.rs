//! Kernel events as futures: a changed mount table, a changed directory.
//!
//! Both are descriptors in tokio's reactor, so an idle node uses no CPU time. An event can be reported twice, but is
//! never lost.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use super::dir_watch::{self, DirWatch};

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

/// Added and removed entries of a directory, and changes of the directory itself. Bound to the runtime that it was
/// created in.
#[derive(Debug)]
pub struct DirEvents {
    watch: Option<DirWatch>,
    /// A second descriptor of the watch: tokio requires one of its own.
    events: AsyncFd<OwnedFd>,
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
        // Attributes and contents of entries are not watched: no volume depends on them.
        let watch = DirWatch::new(dir_watch::name_events())?;
        let fd = watch.as_fd().try_clone_to_owned()?;
        Ok(Self {
            watch: Some(watch),
            events: registered(fd, Interest::READABLE)?,
        })
    }

    /// Removes the watch, for a thread that calls [`DirWatch::set_dir`], which can hang. No event is reported
    /// until [`Self::restore`].
    pub fn take(&mut self) -> Option<DirWatch> {
        self.watch.take()
    }

    /// Puts the watch back.
    pub fn restore(&mut self, watch: DirWatch) {
        self.watch = Some(watch);
    }

    /// Waits for the next change. Cancel-safe.
    ///
    /// # Errors
    /// When events cannot be read.
    pub async fn changed(&mut self) -> io::Result<()> {
        let Some(watch) = &self.watch else {
            return std::future::pending().await;
        };
        loop {
            let mut guard = self.events.readable().await?;
            match watch.read() {
                Err(Errno::EAGAIN) => guard.clear_ready(),
                Err(Errno::EINTR) => {}
                read => return read.map_err(io::Error::from),
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
