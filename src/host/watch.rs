//! Wakes the loop when the mount table or a discovery directory changes.
//!
//! Nothing here runs by itself: both kernel interfaces are descriptors in tokio's reactor, and an
//! idle node costs no CPU time. A wake-up may come once too often, never too seldom: call
//! [`HostWatch::set_dirs`] *before* reading the directories.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use futures::FutureExt;
use nix::errno::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use super::dir_watch::{self, DirWatch};

pub use super::dir_watch::Set;

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something was mounted, unmounted or remounted in our mount namespace.
    Mounts,
    /// An entry of this directory appeared or vanished, or the directory itself did.
    Dir(PathBuf),
    /// Nobody knows: for a while something was not watched.
    Unseen,
}

/// Why changes cannot be seen.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel has no more instances for this user.
    #[error("cannot watch for changes ({source}): raise the sysctl fs.inotify.max_user_instances")]
    Instances {
        /// The kernel's words.
        source: io::Error,
    },
    /// A directory cannot be watched; others can.
    #[error("cannot watch {} ({source}); if it says no space, raise the sysctl fs.inotify.max_user_watches", path.display())]
    Dir {
        /// The directory.
        path: PathBuf,
        /// The kernel's words.
        source: io::Error,
    },
    /// The mount table cannot be watched.
    #[error("cannot watch /proc/self/mountinfo: {source}")]
    Mounts {
        /// The kernel's words.
        source: io::Error,
    },
}

/// The watch. Belongs to the runtime that it was made in.
#[derive(Debug)]
pub struct HostWatch {
    mounts: AsyncFd<OwnedFd>,
    dirs: DirWatch,
    /// A second descriptor of `dirs`: tokio wants one of its own.
    events: AsyncFd<OwnedFd>,
    pending: BTreeSet<PathBuf>,
}

impl HostWatch {
    /// Begins to watch the mount table of the calling thread's namespace, and no directory yet.
    ///
    /// # Errors
    /// [`WatchError`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn new() -> Result<Self, WatchError> {
        let mounts = File::open("/proc/thread-self/mountinfo")
            .and_then(|file| registered(file.into(), Interest::PRIORITY))
            .map_err(|source| WatchError::Mounts { source })?;
        let instances = |source| WatchError::Instances { source };
        // Not attributes and not contents: no volume depends on them.
        let dirs = DirWatch::new(dir_watch::names()).map_err(instances)?;
        let events = dirs
            .as_fd()
            .try_clone_to_owned()
            .and_then(|fd| registered(fd, Interest::READABLE))
            .map_err(instances)?;
        Ok(Self {
            mounts,
            dirs,
            events,
            pending: BTreeSet::new(),
        })
    }

    /// Watches these directories and no others. To be called in every loop: a path may meanwhile
    /// lead to another directory, because one was made, or something was mounted over it.
    ///
    /// All that happened until now is forgotten, as far as it can be: the caller is about to read
    /// everything.
    pub fn set_dirs(&mut self, dirs: &[PathBuf]) -> Set<WatchError> {
        let mut changed = !self.pending.is_empty();
        self.pending.clear();
        if let Some(Ok(mut guard)) = self.mounts.ready(Interest::PRIORITY).now_or_never() {
            guard.clear_ready_matching(Ready::PRIORITY);
            changed = true;
        }
        let set = self.dirs.set_dirs(dirs);
        let faults = set.faults.into_iter();
        Set {
            changed: changed || set.changed,
            faults: faults
                .map(|(path, source)| WatchError::Dir { path, source })
                .collect(),
        }
    }

    /// Waits for the next change. May be dropped while it waits; nothing is lost.
    ///
    /// # Errors
    /// When the kernel breaks off, which it has no reason to.
    pub async fn changed(&mut self) -> io::Result<Change> {
        loop {
            if let Some(dir) = self.pending.pop_first() {
                return Ok(Change::Dir(dir));
            }
            tokio::select! {
                guard = self.mounts.ready(Interest::PRIORITY) => {
                    guard?.clear_ready_matching(Ready::PRIORITY);
                    return Ok(Change::Mounts);
                }
                guard = self.events.readable() => {
                    let mut guard = guard?;
                    match self.dirs.read() {
                        Ok(touched) => self.pending.extend(touched),
                        Err(Errno::EAGAIN) => guard.clear_ready(),
                        Err(Errno::EINTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
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
