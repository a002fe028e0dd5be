//! Cleanings of directories that are cancelled.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

use local_volume_provisioner::wipe::error::WipeError;
use local_volume_provisioner::wipe::progress::Progress;
use local_volume_provisioner::wipe::tree;

use crate::volume::{assert_cleans, make_canary, on_filesystems, snapshot};

#[test]
fn a_cancelled_cleaning_stops_at_once() {
    on_filesystems(&["tmpfs"], |_, root| {
        make_canary(root);
        let before = snapshot(root);
        let progress = Progress::default();
        progress.cancel();
        let opened = File::open(root).unwrap();
        let error = tree::empty(opened.as_fd(), &[], &progress).unwrap_err();
        assert_eq!(error, WipeError::Cancelled);
        assert_eq!(snapshot(root), before);
    });
    on_filesystems(&["ext4"], |_, root| {
        for directories in [1, 300] {
            let fill = || {
                for n in 0..30_000 {
                    let dir = root.join((n % directories).to_string());
                    fs::create_dir_all(&dir).unwrap();
                    File::create(dir.join(n.to_string())).unwrap();
                }
            };
            // It takes less time than a thread may have to wait for its turn on a busy machine.
            let was_in_time = (0..20).any(|_| {
                fill();
                cancel_in_the_middle(root)
            });
            assert!(was_in_time, "it was never cancelled in time");
            assert_cleans(root);
        }
    });
}

/// `false` if it had ended before it was cancelled.
fn cancel_in_the_middle(root: &Path) -> bool {
    /// Each of two threads may hold this many.
    const SHARE: u64 = 64;
    let progress = Progress::default();
    let opened = File::open(root).unwrap();
    let watcher = progress.clone();
    let stopper = std::thread::spawn(move || {
        while watcher.entries() == 0 {
            std::thread::yield_now();
        }
        watcher.cancel();
        watcher.entries()
    });
    let result = tree::empty(opened.as_fd(), &[], &progress);
    let removed = progress.entries();
    let Err(error) = result else { return false };
    assert_eq!(error, WipeError::Cancelled);
    let more = removed.saturating_sub(stopper.join().unwrap());
    assert!(more <= 2 * SHARE, "{more} more after it was cancelled");
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(progress.entries(), removed, "a thread goes on");
    true
}
