//! Wakes the loop when the mount table or a discovery directory changes.
//!
//! Nothing here runs by itself: both kernel interfaces are descriptors in tokio's reactor, and an
//! idle node costs no CPU time. A wake-up may come once too often, never too seldom: call
//! [`HostWatch::set_dirs`] *before* reading the directories.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use futures::FutureExt;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something was mounted, unmounted or remounted in our mount namespace.
    Mounts,
    /// An entry of this directory appeared or vanished, or the directory itself did.
    Dir(PathBuf),
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

/// Names that come and go. Not attributes and not contents: no volume depends on them.
fn interesting() -> AddWatchFlags {
    AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR
}

/// Where a directory is watched: in itself or, while it does not exist, in the nearest one above it
/// that does, for the entry that leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Watched {
    at: WatchDescriptor,
    awaited: Option<PathBuf>,
}

/// The watch. Belongs to the runtime that it was made in.
#[derive(Debug)]
pub struct HostWatch {
    mounts: AsyncFd<OwnedFd>,
    inotify: Inotify,
    /// A second descriptor of `inotify`: tokio wants one of its own.
    events: AsyncFd<OwnedFd>,
    dirs: BTreeMap<PathBuf, Watched>,
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
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .map_err(|error| instances(error.into()))?;
        let events = inotify
            .as_fd()
            .try_clone_to_owned()
            .and_then(|fd| registered(fd, Interest::READABLE))
            .map_err(instances)?;
        Ok(Self {
            mounts,
            inotify,
            events,
            dirs: BTreeMap::new(),
            pending: BTreeSet::new(),
        })
    }

    /// Watches these directories and no others. To be called in every loop: a path may meanwhile
    /// lead to another directory, because one was made, or something was mounted over it.
    ///
    /// All that happened until now is forgotten: the caller is about to read everything.
    ///
    /// Returns what cannot be watched; the rest is.
    pub fn set_dirs(&mut self, dirs: &[PathBuf]) -> Vec<WatchError> {
        self.forget();
        let mut faults = Vec::new();
        let mut now = BTreeMap::new();
        for dir in dirs {
            match self.watch(dir) {
                Ok(watched) => {
                    now.insert(dir.clone(), watched);
                }
                Err(source) => faults.push(WatchError::Dir {
                    path: dir.clone(),
                    source,
                }),
            }
        }
        let before = std::mem::replace(&mut self.dirs, now);
        let unused: Vec<WatchDescriptor> = before
            .into_values()
            .map(|watched| watched.at)
            .filter(|at| !self.uses(*at))
            .collect();
        for at in unused {
            // It fails when the directory has gone, and the watch with it.
            let _ = self.inotify.rm_watch(at);
        }
        faults
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
                    match self.inotify.read_events() {
                        Ok(events) => self.pending.extend(touched(&self.dirs, &events)),
                        Err(Errno::EAGAIN) => guard.clear_ready(),
                        Err(Errno::EINTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// Drops what has happened so far. At worst something of it is told all the same.
    fn forget(&mut self) {
        while self.inotify.read_events().is_ok() {}
        self.pending.clear();
        if let Some(Ok(mut guard)) = self.mounts.ready(Interest::PRIORITY).now_or_never() {
            guard.clear_ready_matching(Ready::PRIORITY);
        }
    }

    fn watch(&self, dir: &Path) -> io::Result<Watched> {
        let mut awaited: Option<PathBuf> = None;
        let mut place = dir;
        loop {
            match self.inotify.add_watch(place, interesting()) {
                Ok(at) => {
                    let Some(entry) = awaited else {
                        return Ok(Watched { at, awaited: None });
                    };
                    // Made while we went up? Then nobody would tell us.
                    if !entry.is_dir() {
                        return Ok(Watched {
                            at,
                            awaited: Some(entry),
                        });
                    }
                    (awaited, place) = (None, dir);
                }
                Err(error @ (Errno::ENOENT | Errno::ENOTDIR)) => {
                    awaited = Some(place.to_owned());
                    place = place.parent().ok_or(error)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn uses(&self, at: WatchDescriptor) -> bool {
        self.dirs.values().any(|watched| watched.at == at)
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

/// The directories that some events are about.
fn touched(dirs: &BTreeMap<PathBuf, Watched>, events: &[InotifyEvent]) -> BTreeSet<PathBuf> {
    let all = events
        .iter()
        .any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW));
    let concerns = |watched: &Watched, event: &InotifyEvent| {
        let awaited = watched.awaited.as_ref().and_then(|entry| entry.file_name());
        // An event without a name is about the watched directory itself.
        watched.at == event.wd
            && (awaited.is_none() || event.name.is_none() || awaited == event.name.as_deref())
    };
    dirs.iter()
        .filter(|(_, watched)| all || events.iter().any(|event| concerns(watched, event)))
        .map(|(dir, _)| dir.clone())
        .collect()
}
