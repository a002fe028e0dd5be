//! The way through a tree that is being emptied.
//!
//! There is no recursion, since tenants nest directories as deep as they like, and the number of
//! open directories is bounded: those further up are closed, and opened again *from above*, one
//! component at a time and compared with what they were. Never through `..`, which leads to wherever
//! the directory has been moved.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::{CStr, CString};

use nix::errno::Errno;

use super::frame::{Frame, Listing};
use super::names::{Names, cost};
use super::{BUFFER, LOST_AND_FOUND, TreeError, TreeReport, is_read_only, workers};
use crate::clean::dirfd::{DirFd, Entry, EntryKind};
use crate::clean::escape::ShownPath;
use crate::clean::progress::Progress;
use crate::clean::protect::{self, Unprotected};

/// How often a directory that gets new entries is emptied before we give up on it.
const MAX_PASSES: u32 = 3;

/// How much memory, and how many descriptors, a walk may use.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Bytes of entries that are read before they are sorted and removed.
    batch: usize,
    /// Bytes of names of subdirectories remembered for all open directories; never less than a
    /// batch. More is forgotten, furthest up first, and read again.
    names: usize,
    /// Directories open at a time, beside the root.
    open_dirs: usize,
    /// Bytes of names remembered for a directory that was closed, as long as these come to no more
    /// than half a batch altogether; the rest is read again.
    kept_names: usize,
}

/// Sorting pays off up to about 65,536 entries: so many are a batch, unless a tenant made the names
/// long. All of it together stays below 16 MiB, bar the names of the directories that we are in. A
/// process may be limited to 64 descriptors.
const BOUNDS: Bounds = Bounds {
    batch: 4 << 20,
    names: 6 << 20,
    open_dirs: 24,
    kept_names: 2 << 10,
};

/// A tree that is being emptied.
pub(super) struct Walk<'a> {
    progress: &'a Progress,
    bounds: Bounds,
    workers: usize,
    root: DirFd,
    /// The way from the root (always there) to the directory that is being emptied.
    stack: Vec<Frame>,
    /// Open directories of the stack, with their depth in it, deepest last; the root is apart.
    open: VecDeque<(usize, DirFd)>,
    entries: Vec<Entry>,
    buffer: Vec<u8>,
    removed: u64,
    first_failure: Option<TreeError>,
    failures: u64,
}

/// What became of an attempt to remove an entry.
enum Removal {
    Done,
    /// A directory that got new entries since it was read.
    NotEmpty,
    Failed,
}

impl<'a> Walk<'a> {
    pub(super) fn new(root: DirFd, progress: &'a Progress) -> Result<Self, TreeError> {
        Self::within(BOUNDS, root, progress)
    }

    fn within(bounds: Bounds, root: DirFd, progress: &'a Progress) -> Result<Self, TreeError> {
        let path = ShownPath::new([]);
        let id = root.id().map_err(|errno| TreeError::Io {
            what: "look at",
            path,
            errno,
        })?;
        Ok(Self {
            progress,
            bounds,
            workers: workers::best_for(&root),
            root,
            stack: vec![Frame::new(CString::default(), id)],
            open: VecDeque::new(),
            entries: Vec::new(),
            buffer: vec![0; BUFFER],
            removed: 0,
            first_failure: None,
            failures: 0,
        })
    }

    pub(super) fn run(mut self) -> Result<TreeReport, TreeError> {
        while self.step()? {}
        let report = TreeReport {
            removed: self.removed,
            passes: self.top().passes,
        };
        match (self.first_failure, self.failures) {
            (None, _) => Ok(report),
            (Some(error), 1) => Err(error),
            (Some(first), n) => Err(TreeError::Several {
                first: first.into(),
                others: n - 1,
            }),
        }
    }

    /// Does what is to be done next; `false`: there is nothing left to do.
    fn step(&mut self) -> Result<bool, TreeError> {
        self.progress.check()?;
        if !self.open_top()? {
            return Ok(true);
        }
        let top = self.top();
        if let Some(name) = top.pending.pop() {
            self.enter(name)?;
        } else if top.is_to_be_read() {
            self.read_and_unlink()?;
        } else if top.found && !top.failed && self.top_stays() {
            self.start_again()?;
        } else if self.stack.len() == 1 {
            return Ok(false);
        } else {
            self.leave()?;
        }
        Ok(true)
    }

    /// The directory that is being emptied. The stack always has the root.
    fn top(&mut self) -> &mut Frame {
        let top = self.stack.len() - 1;
        &mut self.stack[top]
    }

    /// Whether the top is emptied and not removed: the root, and `lost+found` in it.
    fn top_stays(&self) -> bool {
        match &self.stack[..] {
            [_root] => true,
            [_root, below] => below.name.as_c_str() == LOST_AND_FOUND,
            _ => false,
        }
    }

    /// The deepest open directory: that of [`top`](Self::top) after [`open_top`](Self::open_top).
    fn dir(&self) -> &DirFd {
        self.open.back().map_or(&self.root, |(_, dir)| dir)
    }

    /// Makes the directory on top of the stack the deepest open one. `false`: the way there has
    /// changed, and the stack with it.
    fn open_top(&mut self) -> Result<bool, TreeError> {
        let top = self.stack.len() - 1;
        let from = self.open.back().map_or(0, |(depth, _)| *depth);
        // A few on the way are kept open too, evenly spread, so that going all the way up from
        // depth n takes n log n openings and not n².
        let stride = ((top - from) / 4).max(1);
        let mut passing: Option<DirFd> = None;
        for depth in from + 1..=top {
            let frame = &self.stack[depth];
            let above = passing.as_ref().unwrap_or_else(|| self.dir());
            match above
                .open_dir(&frame.name)
                .and_then(|dir| Ok((dir.id()?, dir)))
            {
                Ok((id, dir)) if id == frame.id => {
                    passing = if (top - depth).is_multiple_of(stride) {
                        self.hold(depth, dir);
                        None
                    } else {
                        Some(dir)
                    };
                }
                // Moved, removed or replaced by another hand: back to what is still in its place.
                Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {
                    self.stack.truncate(depth);
                    self.open.retain(|(open, _)| *open < depth);
                    self.start_again()?;
                    return Ok(false);
                }
                Err(errno) => {
                    self.stack.truncate(depth + 1);
                    return Err(self.refusal("open", None, errno));
                }
            }
        }
        Ok(true)
    }

    /// Keeps a directory open, at the cost of the one that is furthest up.
    fn hold(&mut self, depth: usize, dir: DirFd) {
        self.open.push_back((depth, dir));
        if self.open.len() > self.bounds.open_dirs
            && let Some((closed, _)) = self.open.pop_front()
        {
            // A tenant may make any number of levels: names are kept for the first ones.
            let Bounds {
                batch, kept_names, ..
            } = self.bounds;
            let kept = if closed < batch / 2 / kept_names {
                kept_names
            } else {
                0
            };
            let frame = &mut self.stack[closed];
            frame.keep(kept);
            if frame.listing == Listing::Partly {
                frame.listing = Listing::Lost;
            }
        }
    }

    /// Forgets names of the directories above the top, those furthest up first, until the open ones
    /// have as many as they may. Those are returned to last; and what is read again was forgotten
    /// only because as much was read below, so that reading does not take longer than a few times
    /// reading everything once.
    fn bound_names(&mut self) {
        let top = self.stack.len() - 1;
        let open = || std::iter::once(0).chain(self.open.iter().map(|(depth, _)| *depth));
        let names: usize = open().map(|depth| self.stack[depth].pending.cost()).sum();
        let mut surplus = names.saturating_sub(self.bounds.names);
        for depth in open().filter(|depth| *depth < top) {
            if surplus == 0 {
                break;
            }
            let frame = &mut self.stack[depth];
            let before = frame.pending.cost();
            frame.keep(before.saturating_sub(surplus));
            surplus = surplus.saturating_sub(before - frame.pending.cost());
        }
    }

    /// Goes down into a subdirectory of the top.
    fn enter(&mut self, name: CString) -> Result<(), TreeError> {
        match self
            .dir()
            .open_dir(&name)
            .and_then(|dir| Ok((dir.id()?, dir)))
        {
            Ok((id, dir)) => {
                if id.device != self.top().id.device {
                    // A subvolume: into another filesystem the kernel would not have let us. If it
                    // cannot be made writable, its first entry tells.
                    let _ = protect::make_writable(&dir);
                }
                let depth = self.stack.len();
                self.stack.push(Frame::new(name, id));
                self.hold(depth, dir);
                Ok(())
            }
            // No directory any more: if it is there at all, the next pass removes it.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(()),
            Err(errno) => self.fail(self.refusal("open", Some(&name), errno)),
        }
    }

    /// Goes up from the top, which is empty or has failed, and removes it.
    fn leave(&mut self) -> Result<(), TreeError> {
        let (depth, stays) = (self.stack.len() - 1, self.top_stays());
        let Some(frame) = self.stack.pop() else {
            return Ok(());
        };
        if self.open.back().is_some_and(|(open, _)| *open == depth) {
            self.open.pop_back();
        }
        if frame.failed {
            self.top().failed = true;
            return Ok(());
        }
        if stays || !self.open_top()? {
            return Ok(());
        }
        if let Removal::NotEmpty = self.remove(&frame.name, EntryKind::Directory)? {
            self.stack.push(frame);
            self.start_again()?;
        }
        Ok(())
    }

    /// Reads the next entries of the top, unlinks what is no directory, and notes what is.
    fn read_and_unlink(&mut self) -> Result<(), TreeError> {
        let mut entries = std::mem::take(&mut self.entries);
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.read(&mut buffer, &mut entries);
        let result = result.and_then(|()| self.unlink(&mut entries));
        entries.clear();
        (self.entries, self.buffer) = (entries, buffer);
        result
    }

    fn read(&mut self, buffer: &mut [u8], entries: &mut Vec<Entry>) -> Result<(), TreeError> {
        if self.top().listing == Listing::Lost {
            let rewound = self.dir().rewind();
            rewound.map_err(|errno| self.refusal("read", None, errno))?;
        }
        self.top().listing = Listing::Partly;
        let mut bytes = 0;
        while bytes < self.bounds.batch {
            self.progress.check()?;
            let known = entries.len();
            match self.dir().read(buffer, entries) {
                Ok(true) => {
                    let new = entries[known..].iter();
                    bytes += new.map(|entry| cost(&entry.name)).sum::<usize>();
                }
                // ENOENT: the directory itself was removed by another hand.
                Ok(false) | Err(Errno::ENOENT) => {
                    self.top().listing = Listing::Whole;
                    break;
                }
                Err(errno) => {
                    self.top().listing = Listing::Whole;
                    return self.fail(self.refusal("read", None, errno));
                }
            }
        }
        Ok(())
    }

    fn unlink(&mut self, entries: &mut Vec<Entry>) -> Result<(), TreeError> {
        entries.sort_unstable_by_key(|entry| entry.inode);
        let directories = self.take_directories(entries)?;
        let (removed, rest) = workers::unlink(self.workers, self.dir(), entries, self.progress);
        self.removed += removed;
        for Entry { name, .. } in rest.into_iter().flatten() {
            self.progress.check()?;
            self.remove(name, EntryKind::Other)?;
        }
        self.top().pending = directories.into();
        self.bound_names();
        Ok(())
    }

    /// Takes the directories out of the top's entries.
    fn take_directories(&mut self, entries: &mut Vec<Entry>) -> Result<Vec<CString>, TreeError> {
        let in_root = self.stack.len() == 1;
        let mut directories = Vec::new();
        let others = entries.extract_if(.., |entry| entry.kind != Some(EntryKind::Other));
        for entry in others.collect::<Vec<_>>() {
            self.progress.check()?;
            let name = &entry.name;
            match entry.kind.map_or_else(|| self.dir().kind_of(name), Ok) {
                Ok(EntryKind::Other) => entries.push(entry),
                Ok(EntryKind::Directory) => {
                    self.top().found |= !(in_root && name.as_c_str() == LOST_AND_FOUND);
                    directories.push(entry.name);
                }
                Err(Errno::ENOENT) => {}
                Err(errno) => self.fail(self.refusal("look at", Some(name), errno))?,
            }
        }
        self.top().found |= !entries.is_empty();
        directories.reverse();
        Ok(directories)
    }

    /// Removes an entry of the top.
    fn remove(&mut self, name: &CStr, kind: EntryKind) -> Result<Removal, TreeError> {
        let mut result = self.dir().remove(name, kind);
        if result == Err(Errno::EPERM) {
            match protect::unprotect(self.dir(), name) {
                Unprotected::Cleared => result = self.dir().remove(name, kind),
                Unprotected::NothingToClear => {}
                Unprotected::NotAllowed => {
                    let path = self.path(Some(name));
                    self.fail(TreeError::Immutable { path })?;
                    return Ok(Removal::Failed);
                }
            }
        }
        if matches!(result, Err(Errno::ENOSPC | Errno::EDQUOT))
            && protect::truncate(self.dir(), name)
        {
            result = self.dir().remove(name, kind);
        }
        match result {
            Ok(()) => {
                self.removed += 1;
                self.progress.add_entry();
                Ok(Removal::Done)
            }
            // Gone already, or it became something else: then the next pass sees it.
            Err(Errno::ENOENT | Errno::EISDIR | Errno::ENOTDIR) => Ok(Removal::Done),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(Removal::NotEmpty),
            Err(errno) => {
                self.fail(self.refusal("remove", Some(name), errno))?;
                Ok(Removal::Failed)
            }
        }
    }

    /// Goes through the top once more, since it was not empty at the end, unless that happened too
    /// often.
    fn start_again(&mut self) -> Result<(), TreeError> {
        let depth = self.stack.len() - 1;
        let frame = self.top();
        frame.passes += 1;
        frame.found = false;
        frame.pending = Names::default();
        frame.listing = Listing::Partly;
        let passes = frame.passes;
        if passes > MAX_PASSES {
            self.top().listing = Listing::Whole;
            let path = self.path(None);
            return self.fail(TreeError::Refilled {
                path,
                passes: MAX_PASSES,
            });
        }
        if self.open.back().map_or(0, |(open, _)| *open) == depth {
            let rewound = self.dir().rewind();
            rewound.map_err(|errno| self.refusal("read", None, errno))?;
        }
        Ok(())
    }

    /// Notes a failure in the top; passes on one that ends everything.
    fn fail(&mut self, error: TreeError) -> Result<(), TreeError> {
        if error.is_fatal() {
            return Err(error);
        }
        self.top().failed = true;
        self.failures += 1;
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    /// Puts the kernel's answer about the top, or an entry of it, into words.
    fn refusal(&self, what: &'static str, name: Option<&CStr>, errno: Errno) -> TreeError {
        let path = self.path(name);
        match errno {
            // EBUSY: a file, or an emptied directory, that something is mounted on.
            Errno::EXDEV | Errno::EBUSY => TreeError::NestedMount { path },
            // The flags of a filesystem that an error made read-only may not tell.
            Errno::EROFS => match self.subvolume() {
                Some(path) if !is_read_only(&self.root) => TreeError::ReadOnlySubvolume { path },
                _ => TreeError::ReadOnly,
            },
            Errno::EPERM if name.is_some_and(|name| protect::is_swap_file(self.dir(), name)) => {
                TreeError::SwapFile { path }
            }
            Errno::EPERM | Errno::EACCES => TreeError::Denied { path, errno },
            _ => TreeError::Io { what, path, errno },
        }
    }

    /// The path of the top, or of an entry of it.
    fn path(&self, name: Option<&CStr>) -> ShownPath {
        ShownPath::new(
            self.stack
                .iter()
                .skip(1)
                .map(|frame| frame.name.as_c_str())
                .chain(name),
        )
    }

    /// The path of the subvolume that the top lies in: each has a device number of its own.
    fn subvolume(&self) -> Option<ShownPath> {
        let begins = self
            .stack
            .windows(2)
            .rposition(|pair| pair[0].id.device != pair[1].id.device)?;
        let frames = &self.stack[1..=begins + 1];
        Some(ShownPath::new(
            frames.iter().map(|frame| frame.name.as_c_str()),
        ))
    }
}
