//! Several threads that unlink files of one directory.
//!
//! Only the directory's own change is made under its lock; to free a file's blocks is most of the
//! work, and done outside of it. So two threads are nearly twice as fast where the filesystem lets
//! them be (ext4, btrfs). On XFS a second one makes it slower: measured.

use std::panic;
use std::thread;

use nix::sys::statfs::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, fstatfs};

use crate::clean::dirfd::{DirFd, Entry, EntryKind};
use crate::clean::progress::Progress;

/// Fewer files than this are gone before another thread has begun.
const WORTH_A_THREAD: usize = 64;

/// More than the few calls of a helper need, and little to map for each directory.
const STACK: usize = 128 << 10;

/// How many threads are best for the filesystem that a directory is in.
pub(super) fn best_for(dir: &DirFd) -> usize {
    let filesystem = fstatfs(dir).map(|facts| facts.filesystem_type());
    match filesystem {
        Ok(EXT4_SUPER_MAGIC | BTRFS_SUPER_MAGIC) => {
            thread::available_parallelism().map_or(1, |cores| cores.get().min(2))
        }
        _ => 1,
    }
}

/// Unlinks files until one resists, each worker a part of its own, so that neighbours on the disk are
/// one worker's. How many were removed, and those that were not, which take a closer look.
pub(super) fn unlink<'a>(
    workers: usize,
    dir: &DirFd,
    files: &'a [Entry],
    progress: &Progress,
) -> (u64, Vec<&'a [Entry]>) {
    if workers < 2 || files.len() < WORTH_A_THREAD {
        return (0, vec![files]);
    }
    let mut parts = files.chunks(files.len().div_ceil(workers));
    let own = parts.next().unwrap_or_default();
    let results = thread::scope(|scope| {
        let helpers: Vec<_> = parts
            .map(|part| {
                let work = move || unlink_part(dir, part, progress);
                let helper = thread::Builder::new().stack_size(STACK);
                // Where no thread is to be had, the part stays for our closer look.
                (part, helper.spawn_scoped(scope, work).ok())
            })
            .collect();
        let mut results = vec![unlink_part(dir, own, progress)];
        results.extend(helpers.into_iter().map(|(part, helper)| {
            helper.map_or(part, |helper| {
                helper
                    .join()
                    .unwrap_or_else(|cause| panic::resume_unwind(cause))
            })
        }));
        results
    });
    let left: usize = results.iter().map(|part| part.len()).sum();
    ((files.len() - left) as u64, results)
}

/// What is left of the part from the first file on that could not simply be unlinked.
fn unlink_part<'a>(dir: &DirFd, part: &'a [Entry], progress: &Progress) -> &'a [Entry] {
    let resists = |file: &Entry| {
        let removed = !progress.is_cancelled() && dir.remove(&file.name, EntryKind::Other).is_ok();
        if removed {
            progress.add_entry();
        }
        !removed
    };
    let removed = part.iter().position(resists).unwrap_or(part.len());
    &part[removed..]
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn all_is_removed_but_what_resists_and_what_comes_after_it() {
        for (workers, count, directories, expected) in [
            (2, 200, &[][..], (200, &[][..])),
            (3, 200, &[], (200, &[])),
            (2, 63, &[], (0, &[63])),
            (1, 200, &[], (0, &[200])),
            (2, 200, &[0, 199], (99, &[100, 1])),
            (2, 200, &[50], (150, &[50])),
            // Stands for one worker's part as a whole.
            (4, 100, &[25, 99], (74, &[25, 1])),
        ] {
            let volume = tempfile::tempdir().unwrap();
            let name = |n: &usize| format!("{n:03}");
            (0..count).for_each(|n| {
                let path = volume.path().join(name(&n));
                if directories.contains(&n) {
                    // unlink does not remove it.
                    fs::create_dir(path).unwrap();
                } else {
                    File::create(path).unwrap();
                }
            });
            let dir = DirFd::reopen(File::open(volume.path()).unwrap().as_fd()).unwrap();
            let mut files = Vec::new();
            while dir.read(&mut vec![0; 1 << 16], &mut files).unwrap() {}
            files.sort_by(|a, b| a.name.cmp(&b.name));
            let progress = Progress::default();
            let (removed, left) = unlink(workers, &dir, &files, &progress);
            let left: Vec<_> = left
                .iter()
                .map(|part| part.len())
                .filter(|n| *n > 0)
                .collect();
            assert_eq!(
                (removed, &left[..]),
                expected,
                "{workers} workers, {count} files"
            );
            let there = fs::read_dir(volume.path()).unwrap().count();
            assert_eq!(there, count - usize::try_from(removed).unwrap());
            if workers > 1 && count > 64 {
                assert_eq!(progress.entries(), removed);
            }
        }
    }

    #[test]
    fn told_to_stop_nobody_unlinks() {
        let volume = tempfile::tempdir().unwrap();
        (0..100).for_each(|n| drop(File::create(volume.path().join(n.to_string())).unwrap()));
        let dir = DirFd::reopen(File::open(volume.path()).unwrap().as_fd()).unwrap();
        let mut files = Vec::new();
        while dir.read(&mut vec![0; 1 << 16], &mut files).unwrap() {}
        let progress = Progress::default();
        progress.cancel();
        assert_eq!(unlink(2, &dir, &files, &progress).0, 0);
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 100);
    }
}
