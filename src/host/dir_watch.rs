//! An inotify watch of one directory, which need not exist yet.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

/// The events of added and removed entries, and of the directory itself.
#[must_use]
pub(crate) fn name_events() -> AddWatchFlags {
    AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR
}

/// What is watched: the directory or, while it does not exist, its nearest existing ancestor, for the entry
/// that leads to it.
#[derive(Clone, Debug)]
struct Watched {
    at: WatchDescriptor,
    awaited: Option<PathBuf>,
}

/// The watch. Its descriptor is readable when there is an event. No method waits for one.
#[derive(Debug)]
pub struct DirWatch {
    inotify: Inotify,
    events: AddWatchFlags,
    watched: Option<Watched>,
}

impl DirWatch {
    /// Creates a watch for these events, without a directory.
    pub(crate) fn new(events: AddWatchFlags) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self {
            inotify,
            events,
            watched: None,
        })
    }

    /// Watches only this directory. Has to be called before each reading of it: the path may lead to another
    /// directory by now, a new one or a mount. Blocks as long as the lookup of the path does.
    ///
    /// Drops earlier events: the caller is about to read the whole directory.
    ///
    /// # Errors
    /// When the watch cannot be set.
    pub fn set_dir(&mut self, dir: &Path) -> io::Result<()> {
        while self.inotify.read_events().is_ok() {}
        let now = self.watch(dir);
        let at = now.as_ref().ok().map(|now| now.at);
        if let Some(before) = self.watched.take().filter(|it| Some(it.at) != at) {
            // Fails when the directory was removed, and the watch with it.
            let _ = self.inotify.rm_watch(before.at);
        }
        self.watched = Some(now?);
        Ok(())
    }

    /// Whether an event concerns the directory; `EAGAIN` when there is no event.
    pub(crate) fn read(&self) -> Result<bool, Errno> {
        let events = self.inotify.read_events()?;
        let watched = self.watched.as_ref();
        Ok(watched.is_some_and(|it| events.iter().any(|event| it.is_touched_by(event))))
    }

    fn watch(&self, dir: &Path) -> io::Result<Watched> {
        let mut awaited: Option<PathBuf> = None;
        let mut path = dir;
        loop {
            match self.inotify.add_watch(path, self.events) {
                Ok(at) => {
                    // Created during the lookup: no event would report it.
                    if awaited.as_ref().is_none_or(|entry| !entry.is_dir()) {
                        return Ok(Watched { at, awaited });
                    }
                    (awaited, path) = (None, dir);
                }
                Err(error @ (Errno::ENOENT | Errno::ENOTDIR)) => {
                    awaited = Some(path.to_owned());
                    path = path.parent().ok_or(error)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for DirWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl Watched {
    fn is_touched_by(&self, event: &InotifyEvent) -> bool {
        let awaited = self.awaited.as_ref().and_then(|entry| entry.file_name());
        // An event without a name is about the watched directory itself.
        let is_it = awaited.is_none() || event.name.is_none() || awaited == event.name.as_deref();
        event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) || (event.wd == self.at && is_it)
    }
}
