//! Any tree at all, beside one that must not change.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, mknod};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::Sandbox;

use crate::volume::{clean, formatted, make_canary, snapshot};

/// One step in making a tree. Where something goes is chosen among the directories there are.
#[derive(Clone, Debug)]
enum Step {
    Directory { mode: u32 },
    File { mode: u32, size: u16 },
    Sparse,
    Fifo,
    Symlink { target: Target },
    HardLink,
    Flag(&'static str),
    Mount { bind: bool },
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Canary,
    CanaryFile,
    Root,
    Up,
    Nowhere,
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![Just(0o755), Just(0o700), Just(0), Just(0o1777)];
    let target = prop::sample::select(vec![
        Target::Canary,
        Target::CanaryFile,
        Target::Root,
        Target::Up,
        Target::Nowhere,
    ]);
    prop_oneof![
        8 => mode.clone().prop_map(|mode| Step::Directory { mode }),
        6 => (mode, any::<u16>()).prop_map(|(mode, size)| Step::File { mode, size }),
        1 => Just(Step::Sparse),
        1 => Just(Step::Fifo),
        3 => target.prop_map(|target| Step::Symlink { target }),
        1 => Just(Step::HardLink),
        1 => prop::sample::select(vec!["+i", "+a"]).prop_map(Step::Flag),
        // In about every third tree.
        1 => prop::bool::weighted(0.5).prop_map(|bind| Step::Mount { bind }),
    ]
}

/// Any name that a directory entry can have.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => b'a'..=b'z', 1 => 1_u8..=255];
    prop::collection::vec(byte, 1..12).prop_filter_map("a name", |mut name: Vec<u8>| {
        name.iter_mut()
            .filter(|byte| **byte == b'/')
            .for_each(|byte| *byte = b'_');
        (name != b"." && name != b"..").then_some(name)
    })
}

/// Makes the tree; where something is mounted in it.
fn grow(root: &Path, canary: &Path, steps: &[(usize, Vec<u8>, Step)]) -> Vec<PathBuf> {
    let mut directories = vec![root.to_owned()];
    let mut files = Vec::new();
    let mut mounted = Vec::new();
    let mut modes = Vec::new();
    let mut flags = Vec::new();
    for (place, name, step) in steps {
        let path = directories[place % directories.len()].join(OsStr::from_bytes(name));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match step {
            Step::Directory { mode } => {
                fs::create_dir(&path).unwrap();
                modes.push((path.clone(), *mode));
                directories.push(path);
            }
            Step::File { mode, size } => {
                fs::write(&path, vec![7; usize::from(*size)]).unwrap();
                modes.push((path.clone(), *mode));
                files.push(path);
            }
            Step::Sparse => {
                let file = File::create(&path).unwrap();
                (0..8_u64).for_each(|n| file.write_all_at(b"x", n << 24).unwrap());
            }
            Step::Fifo => mknod(&path, SFlag::S_IFIFO, Mode::S_IRWXU, 0).unwrap(),
            Step::Symlink { target } => {
                let file = canary.join("file");
                let target = match target {
                    Target::Canary => canary,
                    Target::CanaryFile => &file,
                    Target::Root => Path::new("/"),
                    Target::Up => Path::new("../.."),
                    Target::Nowhere => Path::new("nowhere"),
                };
                symlink(target, &path).unwrap();
            }
            Step::HardLink => {
                if let Some(file) = files.last() {
                    fs::hard_link(file, &path).unwrap();
                }
            }
            Step::Flag(flag) => flags.push((directories[place % directories.len()].clone(), *flag)),
            Step::Mount { bind } => {
                fs::create_dir(&path).unwrap();
                let none = None::<&str>;
                if *bind {
                    mount(Some(canary), &path, none, MsFlags::MS_BIND, none).unwrap();
                } else {
                    mount(Some("t"), &path, Some("tmpfs"), MsFlags::empty(), none).unwrap();
                    fs::write(path.join("file"), "x").unwrap();
                }
                mounted.push(path);
            }
        }
    }
    for (path, mode) in modes {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    for (path, flag) in flags.iter().filter(|(path, _)| path != root) {
        // Filesystems without flags, machines without chattr: then without.
        let _ = std::process::Command::new("chattr")
            .arg(flag)
            .arg(path)
            .output();
    }
    mounted
}

type Contents = BTreeMap<String, (u32, Vec<u8>)>;

/// All gone; or, when something is mounted in it, a refusal that names it and nothing deleted.
fn check(root: &Path, canary: &Path, expected: &Contents, steps: &[(usize, Vec<u8>, Step)]) {
    let mounted = grow(root, canary, steps);
    if !mounted.is_empty() {
        let before = snapshot(root);
        let error = clean(root).unwrap_err();
        assert_eq!(error.reason(), "NestedMount", "{error}");
        assert_eq!(snapshot(root), before);
        for path in mounted.iter().rev() {
            nix::mount::umount(path).unwrap();
        }
    }
    clean(root).unwrap();
    let left = snapshot(root)
        .into_keys()
        .filter(|path| path != "lost+found");
    assert_eq!(left.count(), 0);
    assert_eq!(&snapshot(canary), expected);
}

#[test]
fn everything_inside_goes_and_nothing_outside() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let Some(device) = formatted(&sandbox, "ext4") else {
        return;
    };
    let disk = sandbox.mount(device.path(), "ext4", "disk").unwrap();
    // The canary is on the same filesystem as the volume: no device number tells them apart.
    let (volume, canary) = (disk.join("volume"), disk.join("canary"));
    fs::create_dir(&volume).unwrap();
    make_canary(&canary);
    let root = sandbox.bind(&volume, "root").unwrap();
    let expected = snapshot(&canary);
    let steps = prop::collection::vec((any::<usize>(), name(), step()), 0..60);
    // On this thread: only it is in the sandbox.
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(32)
    });
    runner
        .run(&steps, |steps| {
            check(&root, &canary, &expected, &steps);
            Ok(())
        })
        .unwrap();
}
