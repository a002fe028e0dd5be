//! Files of one directory, which two threads unlink.
//!
//! Only the directory's own change is made under its lock; to free a file's blocks is most of the
//! work, and done outside of it. So two threads are nearly twice as fast where the filesystem lets
//! them be.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::vec;

use crate::wipe::dirfd::{DirFd, Entry, EntryKind};
use crate::wipe::progress::Progress;

/// So many files are one thread's at a time. They are neighbours on the disk, and gone in a few
/// milliseconds, which is how long one thread may have to wait for the other.
const SHARE: usize = 64;

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All of its files are gone.
    Removed,
    /// A file could not simply be unlinked. Others may be left, too.
    Resisted,
}

/// Files of one directory that are to be unlinked.
pub(super) struct Batch {
    progress: Progress,
    work: Mutex<Work>,
    ended: Condvar,
}

struct Work {
    /// `None` once nobody needs it any more: a descriptor is not kept longer than that.
    dir: Option<Arc<DirFd>>,
    /// Those that nobody has begun with.
    files: vec::IntoIter<Entry>,
    /// Threads that have a share.
    busy: usize,
    resisted: bool,
}

impl Batch {
    pub(super) fn new(dir: Arc<DirFd>, files: Vec<Entry>, progress: &Progress) -> Self {
        Self {
            progress: progress.clone(),
            work: Mutex::new(Work {
                dir: (!files.is_empty()).then_some(dir),
                files: files.into_iter(),
                busy: 0,
                resisted: false,
            }),
            ended: Condvar::new(),
        }
    }

    /// Unlinks some of the files; `false`: there were none left to begin with.
    pub(super) fn unlink_share(&self) -> bool {
        let Some(mut share) = self.next_share() else {
            return false;
        };
        share.unlink();
        true
    }

    /// What became of it, if nobody is at it any more.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.work().outcome()
    }

    /// Unlinks what nobody has begun with, and waits for who has.
    pub(super) fn finish(&self) -> Outcome {
        while self.unlink_share() {}
        let ended = self
            .ended
            .wait_while(self.work(), |work| work.outcome().is_none());
        let work = ended.unwrap_or_else(PoisonError::into_inner);
        work.outcome().unwrap_or(Outcome::Resisted)
    }

    fn next_share(&self) -> Option<Share<'_>> {
        let mut work = self.work();
        let dir = work.dir.clone()?;
        let files: Vec<_> = work.files.by_ref().take(SHARE).collect();
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

    /// Whoever panicked while holding it has left nothing half-done.
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn outcome(&self) -> Option<Outcome> {
        match self.dir {
            Some(_) => None,
            None if self.resisted => Some(Outcome::Resisted),
            None => Some(Outcome::Removed),
        }
    }
}

/// Files that are one thread's.
struct Share<'a> {
    batch: &'a Batch,
    dir: Arc<DirFd>,
    files: vec::IntoIter<Entry>,
}

impl Share<'_> {
    /// Unlinks them until one resists; that one stays in the share.
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
            // They take a closer look, and so may the others.
            work.resisted = true;
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

    /// A directory with so many files, and directories that unlink does not remove.
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
    fn any_number_of_threads_remove_it_together() {
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
    fn all_are_removed_before_one_that_resists() {
        for (directories, removed) in [(&[0][..], 0), (&[63], 63), (&[64, 70], 64), (&[150], 150)] {
            let (volume, batch, progress) = volume(200, directories);
            assert_eq!(batch.outcome(), None);
            assert_eq!(batch.finish(), Outcome::Resisted);
            assert_eq!(batch.outcome(), Some(Outcome::Resisted));
            assert_eq!(progress.entries(), removed);
            assert_eq!(left(&volume) as u64, 200 - removed);
        }
    }

    #[test]
    fn told_to_stop_nobody_unlinks() {
        let (volume, batch, progress) = volume(100, &[]);
        progress.cancel();
        assert_eq!(batch.finish(), Outcome::Resisted);
        assert_eq!(left(&volume), 100);
    }

    #[test]
    fn no_descriptor_is_kept_when_nothing_is_left_to_do() {
        let (_volume, batch, _) = volume(65, &[]);
        let dir = batch.work().dir.clone().unwrap();
        assert!(batch.unlink_share());
        assert_eq!(Arc::strong_count(&dir), 2);
        assert!(batch.unlink_share());
        assert_eq!(Arc::strong_count(&dir), 1);
        assert!(!batch.unlink_share());
    }
}
