//! Any tree at all, beside one that must not change.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use support::Sandbox;

use crate::below::overlay;
use crate::volume::{clean, make_canary, on_each_filesystem, on_filesystems, snapshot};

/// One step in making a tree. Where something goes is chosen among the directories there are.
#[derive(Clone, Debug)]
enum Step {
    Directory { mode: u32 },
    File { mode: u32, size: u16 },
    Sparse,
    Fragmented,
    Node(SFlag, u64),
    Symlink { target: Target },
    HardLink,
    Flag { flag: &'static str, on_file: bool },
    Mount(Mounted),
}

#[derive(Clone, Copy, Debug)]
enum Mounted {
    Tmpfs,
    Canary,
    CanaryFile,
    /// A part of the volume itself.
    Inside,
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
    let mode = prop::sample::select(vec![0o755, 0o700, 0, 0o1777, 0o2750, 0o4711]);
    // A FIFO, a socket, the null device, the whiteout of an overlay.
    let node = prop::sample::select(vec![
        (SFlag::S_IFIFO, 0),
        (SFlag::S_IFSOCK, 0),
        (SFlag::S_IFCHR, makedev(1, 3)),
        (SFlag::S_IFCHR, 0),
    ]);
    let mounted = prop::sample::select(vec![
        Mounted::Tmpfs,
        Mounted::Canary,
        Mounted::CanaryFile,
        Mounted::Inside,
    ]);
    let flag = (prop::sample::select(vec!["+i", "+a"]), any::<bool>());
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
        1 => Just(Step::Fragmented),
        2 => node.prop_map(|(kind, device)| Step::Node(kind, device)),
        3 => target.prop_map(|target| Step::Symlink { target }),
        1 => Just(Step::HardLink),
        1 => flag.prop_map(|(flag, on_file)| Step::Flag { flag, on_file }),
        // In about every second tree.
        1 => mounted.prop_map(Step::Mount),
    ]
}

/// Any name that a directory entry can have.
fn name_of_entry() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => b'a'..=b'z', 1 => 1_u8..=255];
    let length = prop_oneof![9 => 1_usize..12, 1 => 200..=255_usize];
    let bytes = length.prop_flat_map(move |length| prop::collection::vec(byte.clone(), length));
    bytes.prop_filter_map("a name", |mut name: Vec<u8>| {
        name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'_');
        (name != b"." && name != b"..").then_some(name)
    })
}

/// Mounts something on a new entry.
fn put_mount(what: Mounted, path: &Path, canary: &Path, inside: &Path) {
    let none = None::<&str>;
    let bind = |source: &Path| mount(Some(source), path, none, MsFlags::MS_BIND, none).unwrap();
    if let Mounted::CanaryFile = what {
        File::create(path).unwrap();
        return bind(&canary.join("file"));
    }
    fs::create_dir(path).unwrap();
    match what {
        Mounted::Tmpfs => {
            mount(Some("t"), path, Some("tmpfs"), MsFlags::empty(), none).unwrap();
            fs::write(path.join("file"), "x").unwrap();
        }
        Mounted::Inside => bind(inside),
        Mounted::Canary | Mounted::CanaryFile => bind(canary),
    }
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
                (0..8_u64).for_each(|n| file.write_all_at(b"x", n << 21).unwrap());
            }
            Step::Fragmented => {
                let file = File::create(&path).unwrap();
                file.write_all_at(&vec![7; 64 << 12], 0).unwrap();
                let mode =
                    FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                for block in (0..64).step_by(2) {
                    fallocate(&file, mode, block << 12, 1 << 12).unwrap();
                }
                files.push(path);
            }
            Step::Node(kind, device) => match mknod(&path, *kind, Mode::S_IRWXU, *device) {
                // An overlay keeps whiteouts for itself.
                Err(Errno::EPERM) if *device == 0 => {}
                made => made.unwrap(),
            },
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
            Step::Flag { flag, on_file } => {
                let directory = &directories[place % directories.len()];
                let on = files.last().filter(|_| *on_file).unwrap_or(directory);
                flags.push((on.clone(), *flag));
            }
            Step::Mount(what) => {
                put_mount(*what, &path, canary, &directories[place % directories.len()]);
                mounted.push(path);
            }
        }
    }
    for (path, mode) in modes {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    for (path, flag) in flags.iter().filter(|(path, _)| path != root) {
        // Filesystems without flags, machines without chattr: then without.
        let _ = std::process::Command::new("chattr").arg(flag).arg(path).output();
    }
    mounted
}

type Contents = BTreeMap<String, (u32, Vec<u8>)>;

/// All gone; or, when something is mounted in it, a refusal that names it and nothing deleted.
fn check(
    sandbox: &Sandbox,
    root: &Path,
    canary: &Path,
    expected: &Contents,
    steps: &[(usize, Vec<u8>, Step)],
) {
    let mounted = grow(root, canary, steps);
    if !mounted.is_empty() {
        let before = snapshot(root);
        let error = clean(root).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("is mounted inside the volume"), "{said}");
        assert_eq!(snapshot(root), before);
        for path in mounted.iter().rev() {
            sandbox.umount(path).unwrap();
        }
    }
    clean(root).unwrap();
    let left = snapshot(root).into_keys().filter(|path| path != "lost+found");
    assert_eq!(left.count(), 0);
    assert_eq!(&snapshot(canary), expected);
}

/// Many trees in a volume that is a part of the filesystem at `disk`, as the canary is: no device
/// number tells them apart.
fn any_tree(sandbox: &Sandbox, disk: &Path, name: &str) {
    let (volume, canary) = (disk.join("volume"), disk.join("canary"));
    fs::create_dir(&volume).unwrap();
    make_canary(&canary);
    let root = sandbox.bind(&volume, &format!("root-{name}")).unwrap();
    let expected = snapshot(&canary);
    let steps = prop::collection::vec((any::<usize>(), name_of_entry(), step()), 0..60);
    // On this thread: only it is in the sandbox.
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(support::seed()),
        ..Config::with_cases(if support::slow() { 256 } else { 32 })
    });
    runner
        .run(&steps, |steps| {
            check(sandbox, &root, &canary, &expected, &steps);
            Ok(())
        })
        .unwrap();
}

#[test]
fn everything_inside_is_deleted_and_nothing_outside() {
    on_each_filesystem(|sandbox, disk| {
        let name = disk.file_name().unwrap().to_str().unwrap();
        any_tree(sandbox, disk, name);
    });
    on_filesystems(&["tmpfs", "ext4"], |sandbox, base| {
        let below = base.file_name().unwrap().to_str().unwrap();
        any_tree(sandbox, &overlay(base), &format!("overlay-on-{below}"));
    });
}
