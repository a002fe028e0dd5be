//! Empties a tree, step by step.
//!
//! There is no recursion, since tenants nest directories as deep as they like. Where a second thread
//! makes it faster, a directory's files may be left to the helper while the walk goes on with other
//! directories; a file that resists is the walk's business, which then reads its directory again.

#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString};
use std::sync::Arc;

use nix::errno::Errno;

use super::batch::Batch;
use super::bounds::{BOUNDS, Bounds};
use super::dir_stack::DirStack;
use super::frame::{Frame, Listing};
use super::fs_tuning::FsTuning;
use super::helper::Helper;
use super::names::{Names, cost};
use super::{BUFFER, LOST_AND_FOUND, TreeError, TreeReport, is_read_only};
use crate::wipe::dirfd::{DirFd, Entry, EntryKind};
use crate::wipe::escape::ShownPath;
use crate::wipe::progress::Progress;
use crate::wipe::protect::{self, Unprotected};

/// How often a directory that gets new entries is emptied before we give up on it.
const MAX_PASSES: u32 = 3;

/// A tree that is being emptied.
pub(super) struct Walk<'a> {
    progress: &'a Progress,
    bounds: Bounds,
    manner: FsTuning,
    /// It has the batches. Dropped before the helper, who then has nothing to do any more.
    way: DirStack,
    helper: Option<Helper>,
    buffer: Vec<u8>,
    removed_before: u64,
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
        let manner = FsTuning::of(&root);
        Self::within(BOUNDS, manner, root, progress)
    }

    fn within(
        bounds: Bounds,
        manner: FsTuning,
        root: DirFd,
        progress: &'a Progress,
    ) -> Result<Self, TreeError> {
        let way = DirStack::new(bounds, root).map_err(|errno| TreeError::Io {
            what: "look at",
            path: ShownPath::new([]),
            errno,
        })?;
        Ok(Self {
            progress,
            bounds,
            manner,
            way,
            helper: manner.two_threads.then(Helper::start).flatten(),
            buffer: vec![0; BUFFER],
            removed_before: progress.entries(),
            first_failure: None,
            failures: 0,
        })
    }

    pub(super) fn run(mut self) -> Result<TreeReport, TreeError> {
        while self.step()? {}
        let report = TreeReport {
            removed: self.progress.entries() - self.removed_before,
            passes: self.way.top().passes,
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
        let (depth, removed) = (self.way.depth(), self.progress.entries());
        let top = self.way.top();
        let stays = stays(depth, top);
        if let Some(below) = top.take_settled() {
            self.remove_directory(below)?;
        } else if let Some(name) = top.pending.pop() {
            self.enter(name)?;
        } else if let Some(below) = top.helped.pop() {
            self.remove_directory(below)?;
        } else if (stays || top.is_to_be_read(removed)) && top.settle() {
            self.rewind()?;
        } else if top.is_to_be_read(removed) {
            self.read_and_unlink()?;
        } else if top.found && !top.failed && stays {
            self.start_again()?;
        } else if let Some(frame) = self.way.ascend() {
            self.leave(frame)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Opens the top. `false`: the way there has changed, and the top with it.
    fn open_top(&mut self) -> Result<bool, TreeError> {
        match self.way.open_top() {
            Ok(true) => Ok(true),
            Ok(false) => self.start_again().map(|()| false),
            Err(errno) => Err(self.refusal("open", None, errno)),
        }
    }

    /// Goes down into a subdirectory of the top.
    fn enter(&mut self, name: CString) -> Result<(), TreeError> {
        match self.way.dir().open_identified(&name) {
            Ok((id, dir)) => {
                if id.device != self.way.top().id.device {
                    // A subvolume: into another filesystem the kernel would not have let us. If it
                    // cannot be made writable, its first entry tells.
                    let _ = protect::make_writable(&dir);
                }
                self.way.descend(name, id, dir);
                Ok(())
            }
            // No directory any more: if it is there at all, the next pass removes it.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(()),
            Err(errno) => self.fail(self.refusal("open", Some(&name), errno)),
        }
    }

    /// Has come up from a directory in which there is nothing left to do, bar for the helper.
    fn leave(&mut self, frame: Frame) -> Result<(), TreeError> {
        if !frame.is_settled() {
            self.way.top().helped.push(frame);
            Ok(())
        } else if self.open_top()? {
            self.remove_directory(frame)
        } else {
            Ok(())
        }
    }

    /// Removes a directory below the top, which is empty or has failed.
    fn remove_directory(&mut self, mut frame: Frame) -> Result<(), TreeError> {
        if frame.settle() {
            self.way.return_to(frame);
        } else if frame.failed {
            self.way.top().failed = true;
        } else if stays(self.way.depth() + 1, &frame) {
            // It is empty, which is all that is wanted.
        } else if let Removal::NotEmpty = self.remove(&frame.name, EntryKind::Directory)? {
            self.way.return_to(frame);
            self.start_again()?;
        }
        Ok(())
    }

    /// Reads the next entries of the top, unlinks what is no directory, and notes what is.
    fn read_and_unlink(&mut self) -> Result<(), TreeError> {
        if self.way.top().listing == Listing::Lost {
            self.rewind()?;
        }
        let mut files = self.read()?;
        let directories = self.take_directories(&mut files)?;
        let top = self.way.top();
        top.found |= !files.is_empty();
        top.pending = directories.into();
        let resists = top.resists;
        self.way.bound_names();
        files.sort_unstable_by_key(|file| file.inode);
        if !resists {
            self.unlink(files);
            return Ok(());
        }
        files.into_iter().try_for_each(|file| {
            self.progress.check()?;
            self.remove(&file.name, EntryKind::Other).map(drop)
        })
    }

    /// Goes back to the top's first entry.
    fn rewind(&mut self) -> Result<(), TreeError> {
        let top = self.way.top();
        top.listing = Listing::Partly;
        top.begun_at = self.progress.entries();
        let rewound = self.way.dir().rewind();
        rewound.map_err(|errno| self.refusal("read", None, errno))
    }

    fn read(&mut self) -> Result<Vec<Entry>, TreeError> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while bytes < self.bounds.batch {
            self.progress.check()?;
            let known = entries.len();
            match self.way.dir().read(&mut self.buffer, &mut entries) {
                Ok(true) => {
                    let new = entries[known..].iter();
                    bytes += new.map(|entry| cost(&entry.name)).sum::<usize>();
                }
                // ENOENT: the directory itself was removed by another hand.
                Ok(false) | Err(Errno::ENOENT) => {
                    self.way.top().listing = Listing::Whole;
                    break;
                }
                Err(errno) => {
                    self.way.top().listing = Listing::Whole;
                    self.fail(self.refusal("read", None, errno))?;
                    break;
                }
            }
        }
        Ok(entries)
    }

    /// Unlinks files of the top, or leaves them to the helper, if they are not too many to keep.
    fn unlink(&mut self, files: Vec<Entry>) {
        if files.is_empty() {
            return;
        }
        let bytes: usize = files.iter().map(|file| cost(&file.name)).sum();
        let may_be_left = bytes <= self.bounds.left;
        let batch = Arc::new(Batch::new(self.way.dir().clone(), files, self.progress));
        self.way.top().batch = Some(batch.clone());
        let mut offered = false;
        loop {
            offered = offered || self.offer(&batch);
            if offered && may_be_left || !batch.unlink_share() {
                break;
            }
        }
    }

    fn offer(&self, batch: &Arc<Batch>) -> bool {
        let helper = self.helper.as_ref();
        helper.is_some_and(|helper| helper.offer(batch))
    }

    /// Takes the directories out of the top's entries.
    fn take_directories(&mut self, entries: &mut Vec<Entry>) -> Result<Vec<CString>, TreeError> {
        let in_root = self.way.depth() == 0;
        let mut directories = Vec::new();
        let others = entries.extract_if(.., |entry| entry.kind != Some(EntryKind::Other));
        let mut others: Vec<_> = others.collect();
        if self.manner.sort_directories {
            others.sort_unstable_by_key(|entry| entry.inode);
        }
        for entry in others {
            self.progress.check()?;
            let name = &entry.name;
            match entry.kind.map_or_else(|| self.way.dir().kind_of(name), Ok) {
                Ok(EntryKind::Other) => entries.push(entry),
                Ok(EntryKind::Directory) => {
                    self.way.top().found |= !(in_root && name.as_c_str() == LOST_AND_FOUND);
                    directories.push(entry.name);
                }
                Err(Errno::ENOENT) => {}
                Err(errno) => self.fail(self.refusal("look at", Some(name), errno))?,
            }
        }
        directories.reverse();
        Ok(directories)
    }

    /// Removes an entry of the top.
    fn remove(&mut self, name: &CStr, kind: EntryKind) -> Result<Removal, TreeError> {
        let mut result = self.way.dir().remove(name, kind);
        if result == Err(Errno::EPERM) {
            match protect::unprotect(self.way.dir(), name) {
                Unprotected::Cleared(flags) => {
                    result = self.way.dir().remove(name, kind);
                    flags.give_back();
                }
                Unprotected::NothingToClear => {}
                Unprotected::NotAllowed => {
                    let path = self.way.path(Some(name));
                    self.fail(TreeError::Immutable { path })?;
                    return Ok(Removal::Failed);
                }
            }
        }
        if matches!(result, Err(Errno::ENOSPC | Errno::EDQUOT))
            && protect::truncate(self.way.dir(), name)
        {
            result = self.way.dir().remove(name, kind);
        }
        match result {
            Ok(()) => {
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
        let frame = self.way.top();
        frame.passes += 1;
        frame.found = false;
        frame.pending = Names::default();
        frame.listing = Listing::Partly;
        let passes = frame.passes;
        if passes > MAX_PASSES {
            self.way.top().listing = Listing::Whole;
            let path = self.way.path(None);
            return self.fail(TreeError::Refilled {
                path,
                passes: MAX_PASSES,
            });
        }
        if self.way.top_is_open() {
            self.rewind()?;
        }
        Ok(())
    }

    /// Notes a failure in the top; passes on one that ends everything.
    fn fail(&mut self, error: TreeError) -> Result<(), TreeError> {
        if error.is_fatal() {
            return Err(error);
        }
        self.way.top().failed = true;
        self.failures += 1;
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    fn is_swap_file(&self, name: Option<&CStr>) -> bool {
        name.is_some_and(|name| protect::is_swap_file(self.way.dir(), name))
    }

    /// Puts the kernel's answer about the top, or an entry of it, into words.
    fn refusal(&self, what: &'static str, name: Option<&CStr>, errno: Errno) -> TreeError {
        let path = self.way.path(name);
        match errno {
            // EBUSY: a file, or an emptied directory, that something is mounted on.
            Errno::EXDEV | Errno::EBUSY => TreeError::NestedMount { path },
            // The flags of a filesystem that an error made read-only may not tell.
            Errno::EROFS => match self.way.subvolume() {
                Some(path) if !is_read_only(self.way.root()) => {
                    TreeError::ReadOnlySubvolume { path }
                }
                _ => TreeError::ReadOnly,
            },
            Errno::EPERM if self.is_swap_file(name) => TreeError::SwapFile { path },
            Errno::EPERM | Errno::EACCES => TreeError::Denied { path, errno },
            _ => TreeError::Io { what, path, errno },
        }
    }
}

/// Whether a directory is emptied and not removed: the root, and `lost+found` in it.
fn stays(depth: usize, frame: &Frame) -> bool {
    depth == 0 || depth == 1 && frame.name.as_c_str() == LOST_AND_FOUND
}
