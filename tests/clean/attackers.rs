//! Processes that change the volume while it is being cleaned.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::volume::{assert_cleans, clean, make_canary, on_filesystems, snapshot};

/// Stops the attacker also when the work beside it panics: the scope waits for both.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Repeats `attack` in a thread of its own as long as `work` takes.
fn while_attacked(attack: impl Fn() + Send + Sync, work: impl FnOnce()) {
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                attack();
            }
        });
        let _stop = Stop(&stopped);
        work();
    });
}

fn exchange(one: &Path, other: &Path) {
    let _ = renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE);
}

#[test]
fn a_directory_that_is_swapped_for_a_symlink_all_the_time() {
    on_filesystems(&["tmpfs", "ext4"], |sandbox, root| {
        let canary = sandbox.dir("canary").unwrap();
        make_canary(&canary.join("x"));
        let before = snapshot(&canary);
        let (real, link) = (root.join("real"), root.join("link"));
        let attack = || exchange(&real, &link);
        let mut cleaned = 0;
        while_attacked(attack, || {
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                // Made elsewhere: nothing of this goes through the link. The attacker may be in the
                // way of any of these; then it is tried again in the next round.
                make_canary(&root.join("fresh/x"));
                let _ = fs::rename(root.join("fresh"), &real);
                let _ = symlink(&canary, &link);
                cleaned += u32::from(clean(root).is_ok());
            }
        });
        assert_eq!(snapshot(&canary), before);
        assert!(cleaned > 10, "only {cleaned} rounds");
        assert_cleans(root);
        fs::remove_file(canary.join("x/link")).unwrap();
    });
}

#[test]
fn a_deep_directory_that_is_moved_out_of_the_volume_and_back() {
    on_filesystems(&["ext4"], |sandbox, fs_root| {
        // The volume is a part of a larger filesystem, in which the attacker can move things.
        let (inside, outside) = (fs_root.join("volume"), fs_root.join("outside"));
        fs::create_dir(&inside).unwrap();
        make_canary(&outside);
        let before = snapshot(&outside);
        let volume = sandbox.bind(&inside, "bound").unwrap();
        let (here, there) = (inside.join("deep"), outside.join("deep"));
        let attack = || {
            // Again and again, so that it is away when the cleaner comes back up to it.
            let _ = fs::rename(&here, &there);
            thread::sleep(Duration::from_micros(200));
            let _ = fs::rename(&there, &here);
            thread::sleep(Duration::from_micros(200));
        };
        while_attacked(attack, || {
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                let mut dir = here.clone();
                (0..60).for_each(|_| dir.push("level"));
                // It may be moved away in the middle of this.
                let _ = fs::create_dir_all(&dir);
                let _ = fs::write(dir.join("file"), "x");
                let _ = clean(&volume);
            }
        });
        let mut after = snapshot(&outside);
        after.retain(|path, _| !path.starts_with("deep"));
        assert_eq!(after, before, "something outside the volume was deleted");
        let _ = fs::rename(&there, &here);
        assert_cleans(&volume);
    });
}

#[test]
fn a_writer_that_does_not_stop_is_reported_and_does_not_keep_us_for_ever() {
    on_filesystems(&["tmpfs", "ext4"], |_, root| {
        // Whatever is deleted is there again at once.
        let attack = || {
            let _ = fs::create_dir(root.join("dir"));
            for n in 0..8 {
                let _ = File::create(root.join(format!("dir/{n}")));
                let _ = File::create(root.join(n.to_string()));
            }
        };
        let mut reported = None;
        while_attacked(attack, || {
            let end = Instant::now() + Duration::from_secs(10);
            while reported.is_none() && Instant::now() < end {
                let start = Instant::now();
                // The writer may just be out of breath when we look.
                reported = clean(root).err().map(|error| error.to_string());
                assert!(start.elapsed() < Duration::from_secs(5));
            }
        });
        let reported = reported.unwrap();
        assert!(reported.contains("is writing to"), "{reported}");
        assert_cleans(root);
    });
}
