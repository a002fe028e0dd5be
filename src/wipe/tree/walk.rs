//! Empties a tree step by step.
//!
//! It does not recurse, because tenants may nest directories to any depth. Where a second thread is faster,
//! the helper may unlink a directory's files while the walk continues with other directories. If a file
//! cannot be unlinked, the walk reads its directory again and removes the files one by one.
//!
//! In a tree deeper than the stack, it removes the deepest levels in rounds, each from the volume's root.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::sys::statfs::{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, fstatfs};
use nix::unistd::UnlinkatFlags::{self, NoRemoveDir, RemoveDir};

use super::batch::Batch;
use super::dir_stack::{DirStack, MAX_LEVELS};
use super::frame::{Frame, Listing};
use super::helper::{Helper, with_helper};
use super::{BUFFER, failure, is_read_only};
use crate::wipe::dirfd::{DirFd, Entry};
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;
use crate::wipe::protect;

/// The maximum number of passes over a directory that gets new entries.
const MAX_PASSES: u32 = 3;

/// The memory for files that are read before they are sorted and removed. Sorting is useful up to about 65,536
/// entries, which is this many with names of usual length.
const BATCH_MEMORY: usize = if cfg!(test) { 800 } else { 4 << 20 };
/// The memory for files in a batch that is left to the helper, which has a few batches at a time.
const HELPER_BATCH_MEMORY: usize = if cfg!(test) { 200 } else { 64 << 10 };
/// The memory for subdirectory names that are read before they are entered: in the root, and at least. A directory
/// has half as many as the one above it. The total is below 16 MiB, without the names on the path to the top.
const NAMES_MEMORY: usize = if cfg!(test) { 1600 } else { 4 << 20 };
const MIN_NAMES_MEMORY: usize = if cfg!(test) { 200 } else { 2 << 10 };

/// The memory for names that are read at this depth before they are entered.
fn names_memory(depth: usize) -> usize {
    (NAMES_MEMORY >> depth.min(63)).max(MIN_NAMES_MEMORY)
}

/// The memory of a name: its bytes, the pointer, the rest of its directory entry and the overhead of the
/// allocator.
fn cost(name: &CStr) -> usize {
    48 + name.count_bytes()
}

/// A tree that is being emptied.
pub(super) struct Walk<'a> {
    progress: &'a Progress,
    /// Whether to visit subdirectories by inode number, so that neighbours on the disk follow each other. XFS
    /// distributes directories over its allocation groups in turn, and a group is busy for a while after
    /// deletions. There, the order of the listing is faster.
    sort_directories: bool,
    stack: DirStack,
    helper: Option<Helper>,
    buffer: Vec<MaybeUninit<u8>>,
    first_failure: Option<WipeError>,
    failures: u64,
    /// The number of entries removed before this round.
    removed_before: u64,
    /// Why a round removed nothing below the deepest level of the stack: the next one leaves those directories.
    deep_failure: Option<WipeError>,
}

/// Removes everything below a volume's root, except for `lost+found`.
pub(super) fn remove_all(root: DirFd, progress: &Progress) -> Result<(), WipeError> {
    let filesystem = fstatfs(&root).map(|facts| facts.filesystem_type());
    let cores = thread::available_parallelism();
    let sort_directories = filesystem != Ok(XFS_SUPER_MAGIC);
    let walk = |helper| Walk::new(root, sort_directories, helper, progress).run();
    // A second thread is faster on ext4, but slower on XFS and btrfs, as measured.
    if filesystem == Ok(EXT4_SUPER_MAGIC) && cores.is_ok_and(|cores| cores.get() > 1) {
        with_helper(|helper| walk(Some(helper)))
    } else {
        walk(None)
    }
}

impl<'a> Walk<'a> {
    fn new(
        root: DirFd,
        sort_directories: bool,
        helper: Option<Helper>,
        progress: &'a Progress,
    ) -> Self {
        Self {
            progress,
            sort_directories,
            stack: DirStack::new(root.into()),
            helper,
            buffer: vec![MaybeUninit::uninit(); BUFFER],
            first_failure: None,
            failures: 0,
            removed_before: 0,
            deep_failure: None,
        }
    }

    fn run(mut self) -> Result<(), WipeError> {
        while self.step()? {}
        match (self.first_failure, self.failures) {
            (None, _) => Ok(()),
            (Some(error), 1) => Err(error),
            (Some(error), n) => {
                Err(WipeError::Failed(format!("{error} (and {} more could not be removed)", n - 1)))
            }
        }
    }

    /// Does the next step. Returns `false` if nothing is left to do.
    fn step(&mut self) -> Result<bool, WipeError> {
        self.progress.check()?;
        if !self.open_top()? {
            return Ok(true);
        }
        let (depth, removed) = (self.stack.depth(), self.progress.entries());
        let is_kept = self.stack.keeps(depth, &self.stack.frames[depth].name);
        let top = self.stack.top();
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
            return Ok(self.next_round());
        }
        Ok(true)
    }

    /// After a directory at the depth limit was emptied: starts again from the volume's root. Returns `false` if
    /// nothing is left to do.
    fn next_round(&mut self) -> bool {
        let failure = self.first_failure.clone();
        if !self.stack.start_again() {
            return false;
        }
        let removed = self.progress.entries();
        if removed == self.removed_before {
            self.deep_failure = Some(failure.unwrap_or_else(|| self.still_written()));
        }
        self.removed_before = removed;
        // What failed is tried again.
        (self.first_failure, self.failures) = (None, 0);
        true
    }

    /// Opens the top. Returns `false` if the path has changed: then another directory is the top.
    fn open_top(&mut self) -> Result<bool, WipeError> {
        match self.stack.open_top() {
            Ok(true) => Ok(true),
            Ok(false) => self.start_again().map(|()| false),
            Err(errno) => Err(self.error("open", None, errno)),
        }
    }

    /// Descends into a subdirectory of the top.
    fn enter(&mut self, name: CString) -> Result<(), WipeError> {
        if self.stack.frames.len() >= MAX_LEVELS {
            if let Some(error) = self.deep_failure.clone() {
                return self.fail(error);
            }
            self.stack.forget_above();
            return Ok(());
        }
        match self.stack.dir().open_dir(&name) {
            Ok(dir) => {
                if dir.id.device != self.stack.top().id.device {
                    // A btrfs subvolume: the kernel refuses to enter other filesystems. If it cannot be made
                    // writable, removing its first entry fails.
                    protect::make_writable(&dir);
                }
                self.stack.descend(name, dir);
                Ok(())
            }
            // No longer a directory: the next pass handles it.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(()),
            Err(errno) => self.fail(self.error("open", Some(&name), errno)),
        }
    }

    /// Handles a directory after ascending from it. Only the helper may still have work in it.
    fn leave(&mut self, frame: Frame) -> Result<(), WipeError> {
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
    fn remove_directory(&mut self, mut frame: Frame) -> Result<(), WipeError> {
        if frame.finish_batch() {
            self.stack.frames.push(frame);
        } else if frame.failed {
            self.stack.top().failed = true;
        } else if self.stack.keeps(self.stack.depth() + 1, &frame.name) {
            // It must only be empty.
        } else if self.remove(&frame.name, RemoveDir)? {
            self.stack.frames.push(frame);
            self.start_again()?;
        }
        Ok(())
    }

    /// Reads the next entries of the top, unlinks the files and keeps the names of the directories.
    fn read_and_unlink(&mut self) -> Result<(), WipeError> {
        if self.stack.top().listing == Listing::Lost {
            self.rewind()?;
        }
        let mut files = self.read()?;
        let mut directories: Vec<_> = files.extract_if(.., |entry| entry.is_dir).collect();
        // The last is entered first.
        if self.sort_directories {
            directories.sort_unstable_by_key(|directory| Reverse(directory.inode));
        } else {
            directories.reverse();
        }
        let depth = self.stack.depth() + 1;
        let is_kept = |entry: &Entry| self.stack.keeps(depth, &entry.name);
        let is_found = !files.is_empty() || !directories.iter().all(is_kept);
        let top = self.stack.top();
        top.found |= is_found;
        top.pending = directories.into_iter().map(|entry| entry.name).collect();
        let one_by_one = top.one_by_one;
        files.sort_unstable_by_key(|file| file.inode);
        if !one_by_one {
            self.unlink(files);
            return Ok(());
        }
        files.into_iter().try_for_each(|file| {
            self.progress.check()?;
            self.remove(&file.name, NoRemoveDir).map(drop)
        })
    }

    /// Starts reading the top from its first entry.
    fn rewind(&mut self) -> Result<(), WipeError> {
        let top = self.stack.top();
        top.listing = Listing::Partial;
        top.removed_before = self.progress.entries();
        let rewound = self.stack.dir().rewind();
        rewound.map_err(|errno| self.error("read", None, errno))
    }

    /// Reads the next entries of the top, until the limit for files or that for directories is reached.
    fn read(&mut self) -> Result<Vec<Entry>, WipeError> {
        let limit = names_memory(self.stack.depth());
        let buffer = BUFFER.min(limit);
        // The memory of files, and that of directories.
        let (mut entries, mut memory) = (Vec::new(), [0; 2]);
        while memory[0] < BATCH_MEMORY && memory[1] < limit {
            self.progress.check()?;
            let known = entries.len();
            let dir = self.stack.dir();
            match dir.read(&mut self.buffer[..buffer], &mut entries) {
                Ok(true) => {
                    for entry in &entries[known..] {
                        memory[usize::from(entry.is_dir)] += cost(&entry.name);
                    }
                }
                end => {
                    self.stack.top().listing = Listing::Complete;
                    // ENOENT: another process removed the directory.
                    if let Err(errno) = end
                        && errno != Errno::ENOENT
                    {
                        self.fail(self.error("read", None, errno))?;
                    }
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
        let may_delegate = bytes <= HELPER_BATCH_MEMORY;
        let batch = Arc::new(Batch::new(self.stack.dir().clone(), files, self.progress));
        self.stack.top().batch = Some(batch.clone());
        let mut offered = false;
        loop {
            let offer = |helper: &Helper| helper.try_send(Arc::downgrade(&batch)).is_ok();
            offered = offered || self.helper.as_ref().is_some_and(offer);
            if offered && may_delegate || !batch.unlink_share() {
                break;
            }
        }
    }

    /// Removes an entry of the top. Returns whether it is a directory that got new entries after it was read.
    fn remove(&mut self, name: &CStr, kind: UnlinkatFlags) -> Result<bool, WipeError> {
        let dir = self.stack.dir();
        let mut result = dir.remove(name, kind);
        if result == Err(Errno::EPERM) {
            result = protect::remove_unprotected(dir, name, kind);
        }
        if matches!(result, Err(Errno::ENOSPC | Errno::EDQUOT)) && protect::truncate(dir, name) {
            result = dir.remove(name, kind);
        }
        match result {
            Ok(()) => self.progress.add_entry(),
            // Removed by another process, or replaced: the next pass handles that.
            Err(Errno::ENOENT | Errno::EISDIR | Errno::ENOTDIR) => {}
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => return Ok(true),
            Err(errno) => self.fail(self.error("remove", Some(name), errno))?,
        }
        Ok(false)
    }

    /// Starts another pass over the top, which was not empty at the end. Fails after too many passes.
    fn start_again(&mut self) -> Result<(), WipeError> {
        let frame = self.stack.top();
        frame.passes += 1;
        frame.found = false;
        frame.pending = Vec::new();
        frame.listing = Listing::Partial;
        let passes = frame.passes;
        if passes > MAX_PASSES {
            self.stack.top().listing = Listing::Complete;
            return self.fail(self.still_written());
        }
        if self.stack.top_is_open() {
            self.rewind()?;
        }
        Ok(())
    }

    fn still_written(&self) -> WipeError {
        WipeError::Failed(format!(
            "after {MAX_PASSES} passes {} still gets new entries: a process is writing to the volume; stop it",
            self.stack.path(None)
        ))
    }

    /// Records a failure in the top, and returns any other error.
    fn fail(&mut self, error: WipeError) -> Result<(), WipeError> {
        if !matches!(error, WipeError::Failed(_)) {
            return Err(error);
        }
        self.stack.top().failed = true;
        self.failures += 1;
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    /// The error for an errno about the top or one of its entries.
    fn error(&self, what: &str, name: Option<&CStr>, errno: Errno) -> WipeError {
        let path = self.stack.path(name);
        let is_of_subvolume = errno == Errno::EROFS && self.stack.is_in_subvolume();
        if is_of_subvolume && !is_read_only(&self.stack.volume) {
            return WipeError::Failed(format!(
                "the subvolume or snapshot of {path} cannot be made writable (CAP_FOWNER is missing, or `btrfs send` reads it); run `btrfs subvolume delete` on it"
            ));
        }
        failure(what, &path, errno)
    }
}
