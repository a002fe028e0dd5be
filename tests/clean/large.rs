//! Trees that are wide, deep, or large: with few descriptors and little memory.

use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use support::{prepared_by, run_prepared};
use walkdir::WalkDir;

use crate::volume::{clean, on_filesystems, without_capabilities};

/// What lets root read and change directories of any mode and owner.
const UNPRIVILEGED: &str = "-dac_override,-dac_read_search";

/// More than the levels of which the names are in memory.
const LEVELS: usize = 120_000;

/// Makes `depth` directories, one in the other, and a file in each hundredth. Returns the deepest one.
fn dig(root: &Path, depth: usize, name: &str) -> OwnedFd {
    let mut dir = OwnedFd::from(File::open(root).unwrap());
    for level in 0..depth {
        if level % 100 == 0 {
            let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
            drop(openat(&dir, "file", flags, Mode::S_IRWXU).unwrap());
        }
        mkdirat(&dir, name, Mode::S_IRWXU).unwrap();
        dir = openat(&dir, name, OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    }
    dir
}

#[test]
fn ten_thousand_levels_with_64_descriptors() {
    let prepare = ["sh", "-c", "ulimit -n 64 && exec \"$@\"", "sh"];
    if prepared_by().is_none() {
        return run_prepared(&prepare);
    }
    on_filesystems(&["tmpfs", "ext4"], |_, root| {
        dig(root, 10_000, "level");
        let start = std::time::Instant::now();
        assert_eq!(clean(root).unwrap(), 10_100);
        eprintln!("{:?}", start.elapsed());
    });
}

/// In KiB: what the process has in memory, or had at most since it was last asked.
fn resident(which: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(which)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// By how many KiB the process grows at most during some work.
fn growth(work: impl FnOnce()) -> u64 {
    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, start) = (resident("VmRSS:"), std::time::Instant::now());
    work();
    let grown = resident("VmHWM:").saturating_sub(before);
    eprintln!("{grown} KiB, {:?}", start.elapsed());
    grown
}

#[test]
fn any_tree_takes_little_memory() {
    // In a process of its own, for its memory to be measured.
    if prepared_by().is_none() {
        return run_prepared(&["env"]);
    }
    on_filesystems(&["tmpfs"], |sandbox, _| {
        let root = sandbox.tmpfs("large", "size=2g,nr_inodes=0").unwrap();
        // As long as can be, as many as can be remembered, one below the other.
        let wide = |dir: &Path, files: usize, dirs: usize| {
            let name = |n: usize| dir.join(format!("{n:0>250}"));
            (0..files).for_each(|n| drop(File::create(name(n)).unwrap()));
            (files..files + dirs).for_each(|n| fs::create_dir(name(n)).unwrap());
            name(files)
        };
        let below = wide(&root, 0, 60_000);
        let below = wide(&below, 10_000, 10_000);
        wide(&below, 0, 10_000);
        let short = root.join("short");
        fs::create_dir(&short).unwrap();
        (0..30_000).for_each(|n| drop(File::create(short.join(n.to_string())).unwrap()));
        let grown = growth(|| assert_eq!(clean(&root).unwrap(), 90_000 + 30_001));
        assert!(grown <= 16 << 10, "{grown} KiB");
    });
}

#[test]
fn memory_is_independent_of_the_depth() {
    // In a process of its own, for its memory to be measured.
    if prepared_by().is_none() {
        return run_prepared(&["env"]);
    }
    on_filesystems(&["tmpfs"], |sandbox, _| {
        let root = sandbox.tmpfs("deep", "size=2g,nr_inodes=0").unwrap();
        dig(&root, LEVELS, &"x".repeat(250));
        let entries = (LEVELS + LEVELS / 100) as u64;
        let grown = growth(|| assert_eq!(clean(&root).unwrap(), entries));
        assert!(grown <= 32 << 10, "{grown} KiB");
    });
}

/// The levels below those that fit into memory are removed in rounds, which must end.
#[test]
fn directory_in_the_depth_that_cannot_be_deleted_is_one_error() {
    if !without_capabilities(UNPRIVILEGED) {
        return;
    }
    on_filesystems(&["tmpfs"], |sandbox, _| {
        let root = sandbox.tmpfs("deep", "size=2g,nr_inodes=0").unwrap();
        let bottom = dig(&root, LEVELS, "level");
        mkdirat(&bottom, "closed", Mode::empty()).unwrap();
        for branch in ["a", "z"] {
            fs::create_dir_all(root.join(branch).join("free")).unwrap();
        }
        let error = clean(&root).unwrap_err().to_string();
        assert!(error.contains("CAP_DAC_OVERRIDE"), "{error}");
        assert!(!error.contains("more could not be removed"), "{error}");
        let left = fs::read_dir(&root).unwrap().map(|it| it.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["level"]);
    });
}

/// A directory that has to be closed on the way down is read again on the way up: what could not be
/// removed then must not be tried for ever.
#[test]
fn many_deep_trees_that_cannot_be_deleted_are_one_error() {
    if !without_capabilities(UNPRIVILEGED) {
        return;
    }
    on_filesystems(&["tmpfs", "ext4"], |_, root| {
        for n in 0..150 {
            let closed = root.join(format!("trees/{n}")).join("level/".repeat(40));
            fs::create_dir_all(&closed).unwrap();
            fs::write(closed.join("free"), "x").unwrap();
            fs::create_dir(closed.join("closed")).unwrap();
            fs::set_permissions(closed.join("closed"), Permissions::from_mode(0o000)).unwrap();
        }
        fs::write(root.join("free"), "x").unwrap();
        let error = clean(root).unwrap_err();
        for words in ["CAP_DAC_OVERRIDE", "more could not be removed"] {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(!root.join("free").exists(), "what can be deleted is");
    });
}

/// So many names that some are forgotten and read again: also those of directories in which something
/// could not be removed.
#[test]
fn a_file_that_cannot_be_deleted_blocks_no_other() {
    // More than are read at a time below the root.
    const MANY: usize = 11_000;
    if !without_capabilities(UNPRIVILEGED) {
        return;
    }
    on_filesystems(&["tmpfs"], |_, root| {
        let name = |n: usize| format!("{n:0250}");
        let fill = |dir: &Path| (0..MANY).for_each(|n| fs::create_dir(dir.join(name(n))).unwrap());
        fill(root);
        let places = [0, MANY - 1].map(|n| root.join(name(n)));
        for place in &places {
            fill(place);
            fill(&place.join(name(0)));
            let closed = place.join("closed");
            fs::create_dir_all(closed.join("free")).unwrap();
            fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
        }
        let error = clean(root).unwrap_err();
        assert!(error.to_string().contains("CAP_DAC_OVERRIDE"), "{error}");
        // Each is in its place.
        let left = WalkDir::new(root).min_depth(1).max_depth(2).into_iter();
        assert_eq!(left.flatten().count(), 2 * places.len());
    });
}
