//! The files of one directory, which two threads unlink.
//!
//! The kernel holds the directory's lock only while it changes the directory. Most of the work, freeing the
//! blocks, is done without the lock. So two threads are nearly twice as fast on some filesystems.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::vec;

use nix::unistd::UnlinkatFlags::NoRemoveDir;

use crate::wipe::dirfd::{DirFd, Entry};
use crate::wipe::progress::Progress;

/// The files that a thread takes at once. They are neighbours on the disk, and removed within a few
/// milliseconds, which bounds the wait for the other thread.
const SHARE_FILES: usize = 64;

/// Files of one directory to unlink.
pub(super) struct Batch {
    progress: Progress,
    /// The files that no thread has taken. `None` after the last share, so that the descriptor is closed early.
    files: Mutex<Option<(Arc<DirFd>, vec::IntoIter<Entry>)>>,
    /// Locked for reading while a thread unlinks a share.
    busy: RwLock<()>,
    /// Whether a file could not be unlinked. Their names are not kept: a deep tree may have many such batches.
    incomplete: AtomicBool,
}

impl Batch {
    pub(super) fn new(dir: Arc<DirFd>, files: Vec<Entry>, progress: &Progress) -> Self {
        Self {
            progress: progress.clone(),
            files: Mutex::new(Some((dir, files.into_iter()))),
            busy: RwLock::new(()),
            incomplete: AtomicBool::new(false),
        }
    }

    /// Unlinks some of the files, until one fails. Returns `false` if none were left to take.
    pub(super) fn unlink_share(&self) -> bool {
        let _busy = self.busy.read();
        let Some((dir, share)) = self.take_share() else {
            return false;
        };
        let removed = share.iter().all(|file| {
            let removed =
                self.progress.check().is_ok() && dir.remove(&file.name, NoRemoveDir).is_ok();
            if removed {
                self.progress.add_entry();
            }
            removed
        });
        if !removed {
            // The walk handles all remaining files one by one.
            self.incomplete.store(true, Ordering::Relaxed);
            *self.files() = None;
        }
        true
    }

    fn take_share(&self) -> Option<(Arc<DirFd>, Vec<Entry>)> {
        let mut files = self.files();
        let (dir, rest) = files.as_mut()?;
        let share = (dir.clone(), rest.by_ref().take(SHARE_FILES).collect());
        if rest.len() == 0 {
            *files = None;
        }
        Some(share)
    }

    /// Whether no thread has a share, and none is left to take.
    pub(super) fn has_ended(&self) -> bool {
        self.files().is_none() && self.busy.try_write().is_ok()
    }

    /// Unlinks the remaining files and waits for the other threads. Returns whether all files are removed.
    pub(super) fn finish(&self) -> bool {
        while self.unlink_share() {}
        drop(self.busy.write());
        !self.incomplete.load(Ordering::Relaxed)
    }

    fn files(&self) -> MutexGuard<'_, Option<(Arc<DirFd>, vec::IntoIter<Entry>)>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
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
        while dir.read(&mut vec![MaybeUninit::uninit(); 1 << 16], &mut entries).unwrap() {}
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
        let dir = batch.files().as_ref().unwrap().0.clone();
        assert!(batch.unlink_share());
        assert_eq!(Arc::strong_count(&dir), 2);
        assert!(batch.unlink_share());
        assert_eq!(Arc::strong_count(&dir), 1);
        assert!(!batch.unlink_share());
    }
}
