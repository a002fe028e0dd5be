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
                dir: Some(dir),
                files: files.into_iter(),
                busy: 0,
                incomplete: false,
            }),
            ended: Condvar::new(),
        }
    }

    /// Unlinks some of the files, until one fails. Returns `false` if none were left to take.
    pub(super) fn unlink_share(&self) -> bool {
        let Some((dir, share)) = self.take_share() else {
            return false;
        };
        let removed = share.iter().all(|file| {
            let removed =
                !self.progress.is_cancelled() && dir.remove(&file.name, EntryKind::Other).is_ok();
            if removed {
                self.progress.add_entry();
            }
            removed
        });
        drop(dir);
        let mut work = self.work();
        work.busy -= 1;
        if !removed {
            // The walk handles all remaining files one by one.
            work.incomplete = true;
            work.files = vec::IntoIter::default();
        }
        if work.busy == 0 && work.files.len() == 0 {
            work.dir = None;
            work.files = vec::IntoIter::default();
            self.ended.notify_all();
        }
        true
    }

    fn take_share(&self) -> Option<(Arc<DirFd>, Vec<Entry>)> {
        let mut work = self.work();
        let share: Vec<_> = work.files.by_ref().take(SHARE_FILES).collect();
        let dir = work.dir.clone().filter(|_| !share.is_empty())?;
        work.busy += 1;
        Some((dir, share))
    }

    /// Whether no thread has a share, and none is left to take.
    pub(super) fn has_ended(&self) -> bool {
        self.work().dir.is_none()
    }

    /// Unlinks the remaining files and waits for the other threads. Returns whether all files are removed.
    pub(super) fn finish(&self) -> bool {
        while self.unlink_share() {}
        let ended = self
            .ended
            .wait_while(self.work(), |work| work.dir.is_some());
        !ended.unwrap_or_else(PoisonError::into_inner).incomplete
    }

    /// The state is consistent even after a panic of a thread that held the lock.
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::mem::MaybeUninit;
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
        while dir
            .read(&mut vec![MaybeUninit::uninit(); 1 << 16], &mut entries)
            .unwrap()
        {}
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
        for (files, threads) in [(1, 2), (64, 2), (65, 1), (500, 2), (999, 4)] {
            let (volume, batch, progress) = volume(files, &[]);
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| assert!(batch.finish()));
                }
            });
            assert!(batch.has_ended());
            assert_eq!((left(&volume), progress.entries()), (0, files as u64));
        }
    }

    #[test]
    fn all_files_before_the_first_failure_are_removed() {
        for (directories, removed) in [(&[0][..], 0), (&[63], 63), (&[64, 70], 64), (&[150], 150)] {
            let (volume, batch, progress) = volume(200, directories);
            assert!(!batch.has_ended());
            assert!(!batch.finish());
            assert!(batch.has_ended());
            assert_eq!(progress.entries(), removed);
            assert_eq!(left(&volume) as u64, 200 - removed);
        }
    }

    #[test]
    fn nothing_is_unlinked_after_a_cancellation() {
        let (volume, batch, progress) = volume(100, &[]);
        progress.cancel();
        assert!(!batch.finish());
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
