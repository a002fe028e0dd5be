//! Processes that change the volume while it is being cleaned.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, open, openat, renameat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;

use crate::volume::{
    assert_cleans, clean, clean_unaware, make_canary, mounts_inside, on_each_filesystem,
    on_filesystems, snapshot,
};

/// Stops the attacker also when the work beside it panics: the scope waits for both.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns whether it worked.
type Attack<'a> = &'a (dyn Fn() -> bool + Sync);

/// Repeats each attack in a thread of its own as long as `work` takes, which is given whether all of them have worked.
/// An attack that never works is a failure.
fn while_attacked(attacks: &[Attack<'_>], work: impl FnOnce(&dyn Fn() -> bool)) {
    let stopped = AtomicBool::new(false);
    let hits: Vec<_> = attacks.iter().map(|_| AtomicU32::new(0)).collect();
    let all_hit = || hits.iter().all(|hits| hits.load(Ordering::Relaxed) > 0);
    thread::scope(|scope| {
        for (attack, hits) in attacks.iter().zip(&hits) {
            let stopped = &stopped;
            scope.spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    hits.fetch_add(attack().into(), Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stopped);
        work(&all_hit);
    });
    eprintln!("attacks: {hits:?}");
    assert!(all_hit(), "an attack never worked: {hits:?}");
}

fn exchange(one: &Path, other: &Path) -> bool {
    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).is_ok()
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
            let moved = fs::rename(&here, &there).is_ok();
            thread::sleep(Duration::from_micros(200));
            let _ = fs::rename(&there, &here);
            thread::sleep(Duration::from_micros(200));
            moved
        };
        while_attacked(&[&attack], |_| {
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
fn a_writer_that_does_not_stop_is_reported_and_the_cleaning_ends() {
    on_filesystems(&["tmpfs", "ext4"], |_, root| {
        // Whatever is deleted is there again at once.
        let attack = || {
            let _ = fs::create_dir(root.join("dir"));
            let files = (0..8).flat_map(|n| [format!("dir/{n}"), n.to_string()]);
            let made = files.filter(|file| File::create(root.join(file)).is_ok());
            made.count() > 0
        };
        let mut reported = None;
        while_attacked(&[&attack], |_| {
            let end = Instant::now() + Duration::from_mins(1);
            while reported.is_none() && Instant::now() < end {
                let start = Instant::now();
                // The writer may just be suspended.
                reported = clean(root).err().map(|error| error.to_string());
                assert!(start.elapsed() < Duration::from_secs(30));
            }
        });
        let reported = reported.unwrap();
        assert!(reported.contains("is writing to"), "{reported}");
        assert_cleans(root);
    });
}

/// What all attackers do to one volume at the same time.
struct Mob {
    inside: PathBuf,
    outside: PathBuf,
    /// The volume as it is mounted.
    root: PathBuf,
}

impl Mob {
    /// Directories become links to ones outside that have the same names in them.
    fn swap(&self) -> bool {
        let [real, link] = ["real", "link"].map(|name| self.inside.join(name));
        let swapped = exchange(&real, &link);
        // Not through a link: the canary is not to be changed by the attacker himself.
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let directory = open(&real, flags, Mode::empty())
            .and_then(|real| openat(real, "directory", flags, Mode::empty()));
        if let Ok(directory) = directory {
            let swap = RenameFlags::RENAME_EXCHANGE;
            let _ = renameat2(&directory, "below", &directory, "link-below", swap);
        }
        swapped
    }

    /// A directory leaves the volume while it is emptied, and comes back.
    fn move_out(&self) -> bool {
        let [here, there] = [&self.inside, &self.outside].map(|dir| dir.join("deep"));
        let moved = fs::rename(&here, &there).is_ok();
        thread::sleep(Duration::from_micros(200));
        let _ = fs::rename(&there, &here);
        moved
    }

    /// A directory goes up and down.
    fn move_up(&self) -> bool {
        let [below, up] = ["deep/level/level", "up"].map(|name| self.inside.join(name));
        let moved = fs::rename(&below, &up).is_ok();
        thread::sleep(Duration::from_micros(100));
        let _ = fs::rename(&up, &below);
        moved
    }

    /// Files outside get names inside.
    fn link(&self) -> bool {
        let linked = ["file", "directory/below/file"].map(|file| {
            let name = self.inside.join(file.replace('/', "-"));
            fs::hard_link(self.canary().join(file), name).is_ok()
        });
        thread::sleep(Duration::from_micros(50));
        linked.contains(&true)
    }

    /// What is outside is mounted inside.
    fn mount(&self) -> bool {
        let (spot, none) = (self.root.join("spot"), None::<&str>);
        let _ = fs::create_dir(&spot);
        let mounted = mount(Some(&self.canary()), &spot, none, MsFlags::MS_BIND, none);
        thread::sleep(Duration::from_micros(500));
        if mounted.is_ok() {
            umount2(&spot, MntFlags::MNT_DETACH).unwrap();
        }
        thread::sleep(Duration::from_millis(1));
        mounted.is_ok()
    }

    fn write(&self) -> bool {
        let dir = self.inside.join("written");
        let _ = fs::create_dir(&dir);
        let made = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| File::create(dir.join(n.to_string())).is_ok());
        thread::sleep(Duration::from_micros(500));
        made.contains(&true)
    }

    fn canary(&self) -> PathBuf {
        self.outside.join("canary")
    }

    /// Creates their targets. Made elsewhere: nothing of this goes through a link.
    fn build(&self) {
        let [fresh, real] = ["fresh", "real"].map(|name| self.inside.join(name));
        for name in ["directory/below", "directory", "."] {
            let dir = fresh.join(name);
            let _ = fs::create_dir_all(&dir);
            let _ = fs::write(dir.join("file"), "a tenant's");
        }
        // Relative ones: the way from `/` would lead through other mounts, which is refused already.
        let canary = Path::new("../outside/canary");
        let below = Path::new("../..").join(canary).join("directory/below");
        let _ = symlink(below, fresh.join("directory/link-below"));
        let _ = fs::rename(&fresh, &real);
        let _ = symlink(canary, self.inside.join("link"));
        let deep = self.inside.join("deep");
        // It may be moved away in the middle of this.
        let _ = fs::create_dir_all(deep.join("level/level/level/level/level"));
        let _ = fs::write(deep.join("level/level/level/file"), "x");
    }
}

#[test]
fn all_of_them_at_once() {
    let minute = if support::slow() { 60 } else { 3 };
    on_each_filesystem(|sandbox, disk| {
        let [inside, outside] = ["volume", "outside"].map(|name| disk.join(name));
        fs::create_dir(&inside).unwrap();
        let name = disk.file_name().unwrap().to_str().unwrap();
        let root = sandbox.bind(&inside, &format!("bound-{name}")).unwrap();
        let mob = Mob { inside, outside, root: root.clone() };
        make_canary(&mob.canary());
        let before = snapshot(&mob.canary());

        let mut ends = BTreeMap::new();
        let attacks: [Attack; 6] = [
            &|| mob.swap(),
            &|| mob.move_out(),
            &|| mob.move_up(),
            &|| mob.link(),
            &|| mob.mount(),
            &|| mob.write(),
        ];
        while_attacked(&attacks, |all_hit| {
            // There are four filesystems. On a busy machine an attack may take its time to work.
            let end = Instant::now() + Duration::from_secs(minute) / 4;
            let late = end + Duration::from_secs(10);
            while Instant::now() < end || (!all_hit() && Instant::now() < late) {
                mob.build();
                // As if all mounts came after the look at the mount table; as it is; and where links
                // lead out of the volume without leaving the mount.
                for end in [clean_unaware(&root), clean(&root), clean_unaware(&mob.inside)] {
                    const ENDS: [&str; 3] = ["is mounted inside", "still gets", "but contains"];
                    let end = match end.map_err(|error| error.to_string()) {
                        Ok(_) => "Ok",
                        Err(text) => {
                            let mut known = ENDS.into_iter();
                            let known = known.find(|words| text.contains(words));
                            known.unwrap_or_else(|| panic!("{text}"))
                        }
                    };
                    *ends.entry(end).or_insert(0) += 1;
                }
            }
        });
        eprintln!("cleanings: {ends:?}");
        assert_eq!(snapshot(&mob.canary()), before);
        assert!(ends.values().sum::<u32>() > 3, "{ends:?}");
        assert_eq!(mounts_inside(&root), [""; 0].map(PathBuf::from));
        assert_cleans(&root);
        let left: Vec<_> = fs::read_dir(&mob.outside).unwrap().flatten().collect();
        let others = left.iter().map(fs::DirEntry::file_name);
        let others: Vec<_> = others.filter(|name| name != "canary").collect();
        assert!(others.is_empty() || others == ["deep"], "{others:?}");
    });
}
