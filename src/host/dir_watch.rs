//! A directory watched by inotify, also while it does not exist.

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

/// Where the directory is watched: in itself or, while it does not exist, in the nearest one above it
/// that does, for the entry that leads to it.
#[derive(Clone, Debug)]
struct Watched {
    at: WatchDescriptor,
    awaited: Option<PathBuf>,
}

/// The watch. Its descriptor is readable when something has happened; nothing here waits for that.
#[derive(Debug)]
pub struct DirWatch {
    inotify: Inotify,
    events: AddWatchFlags,
    watched: Option<Watched>,
}

impl DirWatch {
    /// Begins to watch for these events, in no directory yet.
    pub(crate) fn new(events: AddWatchFlags) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self {
            inotify,
            events,
            watched: None,
        })
    }

    /// Watches this directory and no other. To be called before each reading of it: the path may
    /// meanwhile lead to another directory, because one was made, or something was mounted over it. Blocks
    /// as long as the lookup of the path does.
    ///
    /// All that happened until now is forgotten: the caller is about to read everything.
    ///
    /// # Errors
    /// When the kernel does not watch it.
    pub fn set_dir(&mut self, dir: &Path) -> io::Result<()> {
        while self.inotify.read_events().is_ok() {}
        let now = self.watch(dir);
        let at = now.as_ref().ok().map(|now| now.at);
        if let Some(before) = self.watched.take().filter(|it| Some(it.at) != at) {
            // It fails when the directory has gone, and the watch with it.
            let _ = self.inotify.rm_watch(before.at);
        }
        self.watched = Some(now?);
        Ok(())
    }

    /// Whether something has happened since; `EAGAIN` when there is no event.
    pub(crate) fn read(&self) -> Result<bool, Errno> {
        let events = self.inotify.read_events()?;
        let watched = self.watched.as_ref();
        Ok(watched.is_some_and(|it| events.iter().any(|event| it.is_touched_by(event))))
    }

    fn watch(&self, dir: &Path) -> io::Result<Watched> {
        let mut awaited: Option<PathBuf> = None;
        let mut place = dir;
        loop {
            match self.inotify.add_watch(place, self.events) {
                Ok(at) => {
                    // Made while the lookup went up? No event would tell.
                    if awaited.as_ref().is_none_or(|entry| !entry.is_dir()) {
                        return Ok(Watched { at, awaited });
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
