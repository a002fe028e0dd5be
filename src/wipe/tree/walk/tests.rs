use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

use super::*;
use crate::wipe::tree::dir_stack::MAX_LEVELS;

/// The memory of the names that are kept.
fn names(stack: &DirStack) -> usize {
    let names = stack.frames.iter().flat_map(|frame| &frame.pending);
    names.map(|name| cost(name)).sum()
}

/// Creates nested directories. Returns their number.
fn make(dir: &Path, widths: &[usize]) -> usize {
    let Some((width, below)) = widths.split_first() else {
        return 0;
    };
    let made = (0..*width).map(|n| {
        let path = dir.join(n.to_string());
        fs::create_dir(&path).unwrap();
        1 + make(&path, below)
    });
    made.sum()
}

#[test]
fn memory_for_names_and_repeated_reads_are_bounded() {
    // Wide at the top, at the bottom and everywhere; and deeper than the limit for open directories.
    let shapes = [
        &[300, 3][..],
        &[300, 1, 1, 1],
        &[3, 300],
        &[16, 16, 16],
        &[20, 20, 3],
        &[5, 5, 5, 5, 5],
        &[9, 1, 9, 1, 9, 1, 1, 1, 1, 2],
    ];
    for widths in shapes {
        let volume = tempfile::tempdir().unwrap();
        let made = make(volume.path(), widths);
        let root = DirFd::reopen(File::open(volume.path()).unwrap().as_fd()).unwrap();
        let progress = Progress::default();
        let mut walk = Walk::new(root, false, None, &progress);
        let (mut steps, mut peak) = (0, 0);
        while walk.step().unwrap() {
            steps += 1;
            peak = peak.max(names(&walk.stack));
        }
        // A call may exceed the limit by the names that fit into the buffer.
        let limits = (0..widths.len()).map(names_memory);
        let bound = 3 * limits.sum::<usize>();
        assert!(peak <= bound, "{peak} bytes of names at a time in {widths:?}");
        // Each directory is entered, read and left, and some are read again.
        assert!(steps <= 5 * made, "{steps} steps for {made} in {widths:?}");
        walk.run().unwrap();
        assert_eq!(progress.entries(), made as u64);
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
    }
}

#[test]
fn directories_are_removed_after_the_helper_has_unlinked_their_files() {
    // More files than are read at a time, as many as the helper may have, fewer, none.
    for (directories, files) in [(2, 150), (20, 4), (20, 3), (20, 1), (20, 0)] {
        for levels in [1, 9] {
            let volume = tempfile::tempdir().unwrap();
            let mut made = 0;
            for number in 0..directories {
                let mut dir = volume.path().join(number.to_string());
                for _ in 0..levels {
                    fs::create_dir(&dir).unwrap();
                    (0..files).for_each(|n| drop(File::create(dir.join(format!("f{n}"))).unwrap()));
                    made += 1 + files;
                    dir.push("level");
                }
            }
            let root = DirFd::reopen(File::open(volume.path()).unwrap().as_fd()).unwrap();
            let progress = Progress::default();
            let passes = with_helper(|helper| {
                let mut walk = Walk::new(root, true, Some(helper), &progress);
                while walk.step().unwrap() {}
                walk.stack.top().passes
            });
            assert_eq!((progress.entries(), passes), (made, 1));
            assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
        }
    }
}

#[test]
fn tree_of_any_depth_is_emptied_with_a_bounded_stack() {
    for levels in [MAX_LEVELS - 1, MAX_LEVELS, MAX_LEVELS + 1, 5 * MAX_LEVELS] {
        let volume = tempfile::tempdir().unwrap();
        let mut dir = volume.path().to_owned();
        let (mut made, mut peak) = (0, 0);
        for _ in 0..levels {
            dir.push("deep");
            fs::create_dir_all(dir.join("branch/below")).unwrap();
            File::create(dir.join("file")).unwrap();
            made += 4;
        }
        let root = DirFd::reopen(File::open(volume.path()).unwrap().as_fd()).unwrap();
        let progress = Progress::default();
        let mut walk = Walk::new(root, true, None, &progress);
        while walk.step().unwrap() {
            peak = peak.max(walk.stack.frames.len());
        }
        walk.run().unwrap();
        assert_eq!((peak, progress.entries()), (MAX_LEVELS, made), "{levels}");
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
    }
}
