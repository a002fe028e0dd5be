//! Directories watched by inotify, also while they do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

/// Names that come and go, and the directory itself.
#[must_use]
pub(crate) fn names() -> AddWatchFlags {
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

/// What came of setting a watch on directories.
#[derive(Debug)]
pub struct Set<Fault> {
    /// Whether anything had happened, or may have unseen: directories are watched that were not, or no
    /// longer the same ones.
    pub changed: bool,
    /// What cannot be watched; the rest is.
    pub faults: Vec<Fault>,
}

/// The watch. Its descriptor is readable when something has happened; nothing here waits for that.
#[derive(Debug)]
pub struct DirWatch {
    inotify: Inotify,
    events: AddWatchFlags,
    dirs: BTreeMap<PathBuf, Watched>,
}

impl DirWatch {
    /// Begins to watch for these events, in no directory yet.
    pub(crate) fn new(events: AddWatchFlags) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self {
            inotify,
            events,
            dirs: BTreeMap::new(),
        })
    }

    /// Watches these directories and no others. To be called before each look at them: a path may
    /// meanwhile lead to another directory, because one was made, or something was mounted over it. Blocks
    /// as long as the lookup of a path does.
    ///
    /// All that happened until now is forgotten: the caller is about to read everything.
    pub fn set_dirs(&mut self, dirs: &[PathBuf]) -> Set<(PathBuf, io::Error)> {
        let mut changed = false;
        while let Ok(touched) = self.read() {
            changed |= !touched.is_empty();
        }
        let mut faults = Vec::new();
        let mut now = BTreeMap::new();
        for dir in dirs {
            match self.watch(dir) {
                Ok(watched) => {
                    now.insert(dir.clone(), watched);
                }
                Err(error) => faults.push((dir.clone(), error)),
            }
        }
        let before = std::mem::replace(&mut self.dirs, now);
        let unused: Vec<WatchDescriptor> = before
            .values()
            .map(|watched| watched.at)
            .filter(|at| !self.uses(*at))
            .collect();
        for at in unused {
            // It fails when the directory has gone, and the watch with it.
            let _ = self.inotify.rm_watch(at);
        }
        changed |= self.dirs != before;
        Set { changed, faults }
    }

    /// The directories in which something has happened since; `EAGAIN` when nothing has.
    pub(crate) fn read(&self) -> Result<BTreeSet<PathBuf>, Errno> {
        let events = self.inotify.read_events()?;
        Ok(touched(&self.dirs, &events))
    }

    fn watch(&self, dir: &Path) -> io::Result<Watched> {
        let mut awaited: Option<PathBuf> = None;
        let mut place = dir;
        loop {
            match self.inotify.add_watch(place, self.events) {
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

impl AsFd for DirWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
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
