//! The files of one directory, which two threads unlink.
//!
//! The kernel holds the directory's lock only while it changes the directory. Most of the work, freeing the
//! blocks, is done without the lock. So two threads are nearly twice as fast on some filesystems.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::vec;

use crate::wipe::dirfd::{DirFd, Entry, EntryKind};
use crate::wipe::progress::Progress;

/// The files that a thread takes at once. They are neighbours on the disk, and removed within a few
/// milliseconds, which bounds the wait for the other thread.
const SHARE_FILES: usize = 64;

/// The result of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All of its files are removed.
    Removed,
    /// A file could not be unlinked. Others may be left.
    Incomplete,
}

/// Files of one directory to unlink.
pub(super) struct Batch {
    progress: Progress,
    work: Mutex<Work>,
    ended: Condvar,
}

struct Work {
    /// `None` after the last share, so that the descriptor is closed early.
    dir: Option<Arc<DirFd>>,
    /// The files that no thread has taken.
    files: vec::IntoIter<Entry>,
    /// The threads that have a share.
    busy: usize,
    incomplete: bool,
}

impl Batch {
    pub(super) fn new(dir: Arc<DirFd>, files: Vec<Entry>, progress: &Progress) -> Self {
        Self {
            progress: progress.clone(),
            work: Mutex::new(Work {
                dir: (!files.is_empty()).then_some(dir),
                files: files.into_iter(),
                busy: 0,
                incomplete: false,
            }),
            ended: Condvar::new(),
        }
    }

    /// Unlinks some of the files. Returns `false` if none were left to take.
    pub(super) fn unlink_share(&self) -> bool {
        let Some(mut share) = self.next_share() else {
            return false;
        };
        share.unlink();
        true
    }

    /// The result, if no thread has a share.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.work().outcome()
    }

    /// Unlinks the remaining files and waits for the other threads.
    pub(super) fn finish(&self) -> Outcome {
        while self.unlink_share() {}
        let ended = self
            .ended
            .wait_while(self.work(), |work| work.outcome().is_none());
        let work = ended.unwrap_or_else(PoisonError::into_inner);
        work.outcome().unwrap_or(Outcome::Incomplete)
    }

    fn next_share(&self) -> Option<Share<'_>> {
        let mut work = self.work();
        let dir = work.dir.clone()?;
        let files: Vec<_> = work.files.by_ref().take(SHARE_FILES).collect();
        if files.is_empty() {
            return None;
        }
        work.busy += 1;
        Some(Share {
            batch: self,
            dir,
            files: files.into_iter(),
        })
    }

    /// The state is consistent even after a panic of a thread that held the lock.
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn outcome(&self) -> Option<Outcome> {
        match self.dir {
            Some(_) => None,
            None if self.incomplete => Some(Outcome::Incomplete),
            None => Some(Outcome::Removed),
        }
    }
}

/// Files that one thread has taken.
struct Share<'a> {
    batch: &'a Batch,
    dir: Arc<DirFd>,
    files: vec::IntoIter<Entry>,
}

impl Share<'_> {
    /// Unlinks files until one fails, which stays in the share.
    fn unlink(&mut self) {
        let progress = &self.batch.progress;
        while let Some(file) = self.files.as_slice().first()
            && !progress.is_cancelled()
            && self.dir.remove(&file.name, EntryKind::Other).is_ok()
        {
            progress.add_entry();
            self.files.next();
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut work = self.batch.work();
        work.busy -= 1;
        if self.files.len() > 0 {
            // The walk handles all remaining files one by one.
            work.incomplete = true;
            work.files = vec::IntoIter::default();
        }
        if work.busy == 0 && work.files.len() == 0 {
            work.dir = None;
            work.files = vec::IntoIter::default();
            self.batch.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::thread;

    use tempfile::TempDir;

    use super::*;

    /// A volume with this many entries; those in `directories` are directories, which unlink does not remove.
    fn volume(files: usize, directories: &[usize]) -> (TempDir, Batch, Progress) {
        let volume = tempfile::tempdir().unwrap();
        for number in 0..files {
            let path = volume.path().join(format!("{number:03}"));
            if directories.contains(&number) {
                fs::create_dir(path).unwrap();
            } else {
                File::create(path).unwrap();
            }
        }
        let dir = DirFd::reopen(File::open(volume.path()).unwrap().as_fd()).unwrap();
        let mut entries = Vec::new();
        while dir.read(&mut vec![0; 1 << 16], &mut entries).unwrap() {}
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let progress = Progress::default();
        let batch = Batch::new(dir.into(), entries, &progress);
        (volume, batch, progress)
    }

    fn left(volume: &TempDir) -> usize {
        fs::read_dir(volume.path()).unwrap().count()
    }

    #[test]
    fn threads_share_a_batch() {
        for (files, threads) in [(0, 1), (1, 2), (64, 2), (65, 1), (500, 2), (999, 4)] {
            let (volume, batch, progress) = volume(files, &[]);
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| assert_eq!(batch.finish(), Outcome::Removed));
                }
            });
            assert_eq!(batch.outcome(), Some(Outcome::Removed));
            assert_eq!((left(&volume), progress.entries()), (0, files as u64));
        }
    }

    #[test]
    fn all_files_before_the_first_failure_are_removed() {
        for (directories, removed) in [(&[0][..], 0), (&[63], 63), (&[64, 70], 64), (&[150], 150)] {
            let (volume, batch, progress) = volume(200, directories);
            assert_eq!(batch.outcome(), None);
            assert_eq!(batch.finish(), Outcome::Incomplete);
            assert_eq!(batch.outcome(), Some(Outcome::Incomplete));
            assert_eq!(progress.entries(), removed);
            assert_eq!(left(&volume) as u64, 200 - removed);
        }
    }

    #[test]
    fn nothing_is_unlinked_after_a_cancellation() {
        let (volume, batch, progress) = volume(100, &[]);
        progress.cancel();
        assert_eq!(batch.finish(), Outcome::Incomplete);
        assert_eq!(left(&volume), 100);
    }

    #[test]
    fn descriptor_is_closed_after_the_last_share() {
        let (_volume, batch, _) = volume(65, &[]);
        let dir = batch.work().dir.clone().unwrap();
        assert!(batch.unlink_share());
        assert_eq!(Arc::strong_count(&dir), 2);
        assert!(batch.unlink_share());
        assert_eq!(Arc::strong_count(&dir), 1);
        assert!(!batch.unlink_share());
    }
}
