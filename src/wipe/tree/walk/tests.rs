use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

use super::*;

/// What a name of three digits costs.
const NAME: usize = 51;

const SMALL: Bounds = Bounds {
    batch: 16 * NAME,
    left: 4 * NAME,
    names: 32 * NAME,
    open_dirs: 3,
    kept_names: 2 * NAME,
};

const ALONE: FsTuning = FsTuning {
    two_threads: false,
    sort_directories: false,
};

/// Directories in directories; how many it made.
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
fn names_take_bounded_memory_and_wide_trees_are_not_read_over_and_over() {
    // Wide at the top, at the bottom, everywhere; and deeper than directories are kept open.
    let shapes = [
        &[300, 3][..],
        &[300, 1, 1, 1],
        &[3, 300],
        &[25, 25, 25],
        &[33, 33, 3],
        &[5, 5, 5, 5, 5],
        &[9, 1, 9, 1, 9, 1, 1, 1, 1, 2],
    ];
    for widths in shapes {
        let volume = tempfile::tempdir().unwrap();
        let made = make(volume.path(), widths);
        let root = DirFd::reopen(File::open(volume.path()).unwrap().as_fd()).unwrap();
        let progress = Progress::default();
        let mut walk = Walk::within(SMALL, ALONE, root, &progress).unwrap();
        let (mut steps, mut most) = (0, 0);
        while walk.step().unwrap() {
            steps += 1;
            most = most.max(walk.way.names());
        }
        // A batch is ended by the buffer, which is larger than these directories are.
        let widest = widths.iter().max().unwrap();
        let bound = SMALL.names.max(widest * NAME) + SMALL.batch;
        assert!(
            most <= bound,
            "{most} bytes of names at a time in {widths:?}"
        );
        // Each is entered, read and left, and not every name can be kept.
        assert!(steps <= 5 * made, "{steps} steps for {made} in {widths:?}");
        assert_eq!(walk.run().unwrap().removed, made as u64);
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
    }
}

#[test]
fn directories_are_left_to_the_helper_and_removed_after_it() {
    // More files than are read at a time, as many as are left to the helper, fewer; none.
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
            let together = FsTuning {
                two_threads: true,
                sort_directories: true,
            };
            let walk = Walk::within(SMALL, together, root, &progress).unwrap();
            let report = walk.run().unwrap();
            assert_eq!((report.removed, report.passes), (made, 1));
            assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
        }
    }
}
