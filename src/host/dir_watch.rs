//! An inotify watch of one directory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

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

/// The watch. Its descriptor is readable when there is an event. No method waits for one.
#[derive(Debug)]
pub struct DirWatch {
    inotify: Inotify,
    events: AddWatchFlags,
    watched: Option<WatchDescriptor>,
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

    /// Watches only this directory, or nothing while it does not exist: the periodic scan notices when it is created.
    /// Has to be called before each reading of it: the path may lead to another directory by now, a new one or a
    /// mount. Blocks as long as the lookup of the path does.
    ///
    /// Drops earlier events: the caller is about to read the whole directory.
    ///
    /// # Errors
    /// When the watch cannot be set.
    pub fn set_dir(&mut self, dir: &Path) -> io::Result<()> {
        while self.inotify.read_events().is_ok() {}
        let now = match self.inotify.add_watch(dir, self.events) {
            Err(Errno::ENOENT | Errno::ENOTDIR) => None,
            now => Some(now?),
        };
        let before = std::mem::replace(&mut self.watched, now);
        if let Some(before) = before.filter(|_| before != now) {
            // Fails when the directory was removed, and the watch with it.
            let _ = self.inotify.rm_watch(before);
        }
        Ok(())
    }

    /// Reads the pending events; `EAGAIN` when there is none.
    pub(crate) fn read(&self) -> nix::Result<()> {
        self.inotify.read_events().map(drop)
    }
}

impl AsFd for DirWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
