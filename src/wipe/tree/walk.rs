//! Empties a tree step by step.
//!
//! It does not recurse, because tenants may nest directories to any depth. Where a second thread is faster,
//! the helper may unlink a directory's files while the walk continues with other directories. If a file
//! cannot be unlinked, the walk reads its directory again and removes the files one by one.

#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::sync::Arc;

use nix::errno::Errno;

use super::batch::Batch;
use super::bounds::{BOUNDS, Bounds, cost};
use super::dir_stack::DirStack;
use super::frame::{Frame, Listing};
use super::fs_tuning::FsTuning;
use super::helper::Helper;
use super::{BUFFER, LOST_AND_FOUND, TreeError, is_read_only};
use crate::wipe::dirfd::{DirFd, Entry, EntryKind};
use crate::wipe::escape::ShownPath;
use crate::wipe::progress::Progress;
use crate::wipe::protect;

/// The maximum number of passes over a directory that gets new entries.
pub(super) const MAX_PASSES: u32 = 3;

/// A tree that is being emptied.
pub(super) struct Walk<'a> {
    progress: &'a Progress,
    bounds: Bounds,
    tuning: FsTuning,
    /// It owns the batches. It is dropped before the helper, which then has no work.
    stack: DirStack,
    helper: Helper,
    buffer: Vec<MaybeUninit<u8>>,
    first_failure: Option<TreeError>,
    failures: u64,
}

/// The result of removing an entry.
enum Removal {
    Done,
    /// The directory got new entries after it was read.
    NotEmpty,
    Failed,
}

impl<'a> Walk<'a> {
    pub(super) fn new(root: DirFd, progress: &'a Progress) -> Result<Self, TreeError> {
        let tuning = FsTuning::of(&root);
        Self::within(BOUNDS, tuning, root, progress)
    }

    fn within(
        bounds: Bounds,
        tuning: FsTuning,
        root: DirFd,
        progress: &'a Progress,
    ) -> Result<Self, TreeError> {
        let stack = DirStack::new(bounds, root).map_err(|errno| TreeError::Io {
            what: "look at",
            path: ShownPath::new([]),
            errno,
        })?;
        Ok(Self {
            progress,
            bounds,
            tuning,
            stack,
            helper: if tuning.two_threads {
                Helper::start()
            } else {
                Helper::default()
            },
            buffer: vec![MaybeUninit::uninit(); BUFFER],
            first_failure: None,
            failures: 0,
        })
    }

    pub(super) fn run(mut self) -> Result<(), TreeError> {
        while self.step()? {}
        match (self.first_failure, self.failures) {
            (None, _) => Ok(()),
            (Some(error), 1) => Err(error),
            (Some(first), n) => Err(TreeError::Several {
                first: first.into(),
                others: n - 1,
            }),
        }
    }

    /// Does the next step. Returns `false` if nothing is left to do.
    fn step(&mut self) -> Result<bool, TreeError> {
        self.progress.check()?;
        if !self.open_top()? {
            return Ok(true);
        }
        let (depth, removed) = (self.stack.depth(), self.progress.entries());
        let top = self.stack.top();
        let is_kept = is_kept(depth, top);
        if let Some(below) = top.take_finished() {
            self.remove_directory(below)?;
        } else if let Some(name) = top.pending.pop() {
            self.enter(name)?;
        } else if let Some(below) = top.delegated.pop() {
            self.remove_directory(below)?;
        } else if (is_kept || top.needs_read(removed)) && top.finish_batch() {
            self.rewind()?;
        } else if top.needs_read(removed) {
            self.read_and_unlink()?;
        } else if top.found && !top.failed && is_kept {
            self.start_again()?;
        } else if let Some(frame) = self.stack.ascend() {
            self.leave(frame)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Opens the top. Returns `false` if the path has changed: then another directory is the top.
    fn open_top(&mut self) -> Result<bool, TreeError> {
        match self.stack.open_top() {
            Ok(true) => Ok(true),
            Ok(false) => self.start_again().map(|()| false),
            Err(errno) => Err(self.tree_error("open", None, errno)),
        }
    }

    /// Descends into a subdirectory of the top.
    fn enter(&mut self, name: CString) -> Result<(), TreeError> {
        match self.stack.dir().open_identified(&name) {
            Ok((id, dir)) => {
                if id.device != self.stack.top().id.device {
                    // A btrfs subvolume: the kernel refuses to enter other filesystems. If it cannot be made
                    // writable, removing its first entry fails.
                    let _ = protect::make_writable(&dir);
                }
                self.stack.descend(name, id, dir);
                Ok(())
            }
            // No longer a directory: the next pass handles it.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(()),
            Err(errno) => self.fail(self.tree_error("open", Some(&name), errno)),
        }
    }

    /// Handles a directory after ascending from it. Only the helper may still have work in it.
    fn leave(&mut self, frame: Frame) -> Result<(), TreeError> {
        if !frame.is_idle() {
            self.stack.top().delegated.push(frame);
            Ok(())
        } else if self.open_top()? {
            self.remove_directory(frame)
        } else {
            Ok(())
        }
    }

    /// Removes a directory below the top, unless it has failures or is kept.
    fn remove_directory(&mut self, mut frame: Frame) -> Result<(), TreeError> {
        if frame.finish_batch() {
            self.stack.return_to(frame);
        } else if frame.failed {
            self.stack.top().failed = true;
        } else if is_kept(self.stack.depth() + 1, &frame) {
            // It must only be empty.
        } else if let Removal::NotEmpty = self.remove(&frame.name, EntryKind::Directory)? {
            self.stack.return_to(frame);
            self.start_again()?;
        }
        Ok(())
    }

    /// Reads the next entries of the top, unlinks the files and keeps the names of the directories.
    fn read_and_unlink(&mut self) -> Result<(), TreeError> {
        if self.stack.top().listing == Listing::Lost {
            self.rewind()?;
        }
        let mut files = self.read()?;
        let directories = self.take_directories(&mut files)?;
        let top = self.stack.top();
        top.found |= !files.is_empty();
        top.pending = directories;
        let one_by_one = top.one_by_one;
        files.sort_unstable_by_key(|file| file.inode);
        if !one_by_one {
            self.unlink(files);
            return Ok(());
        }
        files.into_iter().try_for_each(|file| {
            self.progress.check()?;
            self.remove(&file.name, EntryKind::Other).map(drop)
        })
    }

    /// Starts reading the top from its first entry.
    fn rewind(&mut self) -> Result<(), TreeError> {
        let top = self.stack.top();
        top.listing = Listing::Partial;
        top.removed_before = self.progress.entries();
        let rewound = self.stack.dir().rewind();
        rewound.map_err(|errno| self.tree_error("read", None, errno))
    }

    /// Reads the next entries of the top, until the limit for files or that for directories is reached.
    fn read(&mut self) -> Result<Vec<Entry>, TreeError> {
        let limit = self.bounds.names_at(self.stack.depth());
        let buffer = BUFFER.min(limit);
        let (mut entries, mut files, mut directories) = (Vec::new(), 0, 0);
        while files < self.bounds.batch && directories < limit {
            self.progress.check()?;
            let known = entries.len();
            match self
                .stack
                .dir()
                .read(&mut self.buffer[..buffer], &mut entries)
            {
                Ok(true) => {
                    for Entry { name, kind, .. } in &entries[known..] {
                        match kind {
                            Some(EntryKind::Other) => files += cost(name),
                            _ => directories += cost(name),
                        }
                    }
                }
                // ENOENT: another process removed the directory.
                Ok(false) | Err(Errno::ENOENT) => {
                    self.stack.top().listing = Listing::Complete;
                    break;
                }
                Err(errno) => {
                    self.stack.top().listing = Listing::Complete;
                    self.fail(self.tree_error("read", None, errno))?;
                    break;
                }
            }
        }
        Ok(entries)
    }

    /// Unlinks files of the top, or leaves them to the helper if the batch is small enough.
    fn unlink(&mut self, files: Vec<Entry>) {
        if files.is_empty() {
            return;
        }
        let bytes: usize = files.iter().map(|file| cost(&file.name)).sum();
        let may_delegate = bytes <= self.bounds.helper_batch;
        let batch = Arc::new(Batch::new(self.stack.dir().clone(), files, self.progress));
        self.stack.top().batch = Some(batch.clone());
        let mut offered = false;
        loop {
            offered = offered || self.helper.offer(&batch);
            if offered && may_delegate || !batch.unlink_share() {
                break;
            }
        }
    }

    /// Moves the directories out of the top's entries.
    fn take_directories(&mut self, entries: &mut Vec<Entry>) -> Result<Vec<CString>, TreeError> {
        let in_root = self.stack.depth() == 0;
        let mut directories = Vec::new();
        let others = entries.extract_if(.., |entry| entry.kind != Some(EntryKind::Other));
        let mut others: Vec<_> = others.collect();
        if self.tuning.sort_directories {
            others.sort_unstable_by_key(|entry| entry.inode);
        }
        for entry in others {
            self.progress.check()?;
            let name = &entry.name;
            let kind = entry
                .kind
                .map_or_else(|| self.stack.dir().kind_of(name), Ok);
            match kind {
                Ok(EntryKind::Other) => entries.push(entry),
                Ok(EntryKind::Directory) => {
                    self.stack.top().found |= !(in_root && name.as_c_str() == LOST_AND_FOUND);
                    directories.push(entry.name);
                }
                Err(Errno::ENOENT) => {}
                Err(errno) => self.fail(self.tree_error("look at", Some(name), errno))?,
            }
        }
        directories.reverse();
        Ok(directories)
    }

    /// Removes an entry of the top.
    fn remove(&mut self, name: &CStr, kind: EntryKind) -> Result<Removal, TreeError> {
        let mut result = self.stack.dir().remove(name, kind);
        if result == Err(Errno::EPERM) {
            match protect::unprotect(self.stack.dir(), name) {
                Ok(Some(flags)) => {
                    result = self.stack.dir().remove(name, kind);
                    flags.restore();
                }
                Ok(None) => {}
                Err(_) => {
                    let path = self.stack.path(Some(name));
                    self.fail(TreeError::Immutable { path })?;
                    return Ok(Removal::Failed);
                }
            }
        }
        if matches!(result, Err(Errno::ENOSPC | Errno::EDQUOT))
            && protect::truncate(self.stack.dir(), name)
        {
            result = self.stack.dir().remove(name, kind);
        }
        match result {
            Ok(()) => {
                self.progress.add_entry();
                Ok(Removal::Done)
            }
            // Removed by another process, or replaced: the next pass handles that.
            Err(Errno::ENOENT | Errno::EISDIR | Errno::ENOTDIR) => Ok(Removal::Done),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(Removal::NotEmpty),
            Err(errno) => {
                self.fail(self.tree_error("remove", Some(name), errno))?;
                Ok(Removal::Failed)
            }
        }
    }

    /// Starts another pass over the top, which was not empty at the end. Fails after too many passes.
    fn start_again(&mut self) -> Result<(), TreeError> {
        let frame = self.stack.top();
        frame.passes += 1;
        frame.found = false;
        frame.pending = Vec::new();
        frame.listing = Listing::Partial;
        let passes = frame.passes;
        if passes > MAX_PASSES {
            self.stack.top().listing = Listing::Complete;
            let path = self.stack.path(None);
            return self.fail(TreeError::Refilled { path });
        }
        if self.stack.top_is_open() {
            self.rewind()?;
        }
        Ok(())
    }

    /// Records a failure in the top. Returns fatal errors.
    fn fail(&mut self, error: TreeError) -> Result<(), TreeError> {
        if error.is_fatal() {
            return Err(error);
        }
        self.stack.top().failed = true;
        self.failures += 1;
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    /// The error for an errno about the top or one of its entries.
    fn tree_error(&self, what: &'static str, name: Option<&CStr>, errno: Errno) -> TreeError {
        let path = self.stack.path(name);
        match errno {
            // EBUSY: a file or an emptied directory that is a mount point.
            Errno::EXDEV | Errno::EBUSY => TreeError::NestedMount { path },
            // After an error, the mount flags may not show that the filesystem is read-only.
            Errno::EROFS if self.stack.is_in_subvolume() && !is_read_only(self.stack.root()) => {
                TreeError::ReadOnlySubvolume { path }
            }
            Errno::EROFS => TreeError::ReadOnly,
            Errno::EPERM | Errno::EACCES => TreeError::Denied { path, errno },
            _ => TreeError::Io { what, path, errno },
        }
    }
}

/// Whether a directory is emptied but not removed: the root and `lost+found` in it.
fn is_kept(depth: usize, frame: &Frame) -> bool {
    depth == 0 || depth == 1 && frame.name.as_c_str() == LOST_AND_FOUND
}
