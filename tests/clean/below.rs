//! Volumes that share what is below them with others: overlays, reflinks, projects, open files.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sys::stat::{SFlag, stat};
use nix::sys::statvfs::statvfs;
use support::{LoopDevice, sandbox};

use crate::volume::{assert_cleans, make_canary, on_filesystems, read_from_disk, run, snapshot};

/// Mounts an overlay of the directories `lower`, `upper` and `work` in `base` on `merged` in it.
pub fn overlay(base: &Path) -> PathBuf {
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir_all(base.join(name)).unwrap();
    }
    let at = |name: &str| base.join(name).to_str().unwrap().to_owned();
    let data = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    let merged = base.join("merged");
    let (name, none) = (Some("overlay"), MsFlags::empty());
    mount(name, &merged, name, none, Some(data.as_str())).unwrap();
    merged
}

#[test]
fn an_overlay_is_emptied_and_what_lies_below_it_stays() {
    on_filesystems(&["tmpfs", "ext4", "xfs"], |sandbox, base| {
        make_canary(&base.join("lower/a"));
        make_canary(&base.join("lower/b/c"));
        let before = snapshot(&base.join("lower"));
        let root = overlay(base);
        // Some of it changed, some of it new.
        fs::write(root.join("a/file"), "a tenant's").unwrap();
        make_canary(&root.join("b/d"));
        make_canary(&root.join("new"));
        assert_cleans(&root);
        assert_eq!(snapshot(&base.join("lower")), before);
        fs::write(root.join("next"), "the next tenant's").unwrap();
        sandbox.umount(&root).unwrap();
    });
}

#[test]
fn what_an_overlay_left_in_a_volume_is_deleted() {
    on_filesystems(&["tmpfs", "ext4", "xfs"], |sandbox, root| {
        make_canary(&root.join("lower/a"));
        make_canary(&root.join("lower/b"));
        let merged = overlay(root);
        assert_cleans(&merged);
        make_canary(&merged.join("b"));
        sandbox.umount(&merged).unwrap();
        let whiteout = stat(&root.join("upper/a")).unwrap();
        assert_eq!(whiteout.st_mode & SFlag::S_IFMT.bits(), SFlag::S_IFCHR.bits());
        assert_eq!(whiteout.st_rdev, 0);
        assert_cleans(root);
    });
}

#[test]
fn a_file_that_shares_blocks_with_one_outside_is_deleted_alone() {
    on_filesystems(&["xfs", "btrfs"], |sandbox, disk| {
        let [inside, beside] = ["volume", "beside"].map(|name| disk.join(name));
        fs::create_dir(&inside).unwrap();
        let contents: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
        fs::write(&beside, &contents).unwrap();
        let [from, to] =
            [&beside, &inside.join("clone")].map(|path| path.to_str().unwrap().to_owned());
        run("cp", &["--reflink=always", &from, &to]);
        let fs_type = disk.file_name().unwrap().to_str().unwrap();
        let root = sandbox.bind(&inside, &format!("part-of-{fs_type}")).unwrap();
        assert_cleans(&root);
        assert!(read_from_disk(&beside) == contents);
    });
}

/// The space of a file is free when its last descriptor is closed.
#[test]
fn an_open_file_is_unlinked_and_not_truncated() {
    on_filesystems(&["tmpfs", "ext4", "xfs"], |_, root| {
        let used = || {
            let facts = statvfs(root).unwrap();
            (facts.blocks() - facts.blocks_free()) * facts.fragment_size()
        };
        let size: usize = 32 << 20;
        fs::write(root.join("file"), vec![1; size]).unwrap();
        let mut file = File::open(root.join("file")).unwrap();
        let full = used();
        assert_cleans(root);
        let mut contents = Vec::new();
        file.read_to_end(&mut contents).unwrap();
        assert_eq!(contents.len(), size, "it was truncated while open");
        assert!(used() + (1 << 20) > full, "{} {full}", used());
        drop(file);
        // XFS frees it when it has time to.
        let deadline = Instant::now() + Duration::from_secs(10);
        while used() + (size as u64) > full + (1 << 20) {
            assert!(Instant::now() < deadline, "{} of {full}", used());
            thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn files_of_a_project_are_deleted_and_the_root_stays_in_it() {
    let sandbox = sandbox!("chattr", "mkfs.xfs");
    let device = LoopDevice::formatted(sandbox.path(), 320 << 20, "xfs").unwrap();
    let root = sandbox.mount(device.path(), "xfs", "volume").unwrap();
    let path = root.to_str().unwrap();
    run("chattr", &["-p", "7", "+P", path]);
    make_canary(&root.join("tree"));
    let project = |path: &Path| {
        let listed = run("lsattr", &["-d", "-p", path.to_str().unwrap()]);
        listed.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(project(&root.join("tree/file")), "7");
    // Of another project: it could not be moved out of its directory.
    run("chattr", &["-p", "8", root.join("tree/file").to_str().unwrap()]);
    assert_cleans(&root);
    assert_eq!(project(&root), "7");
}
