//! What the tests of directory cleaning have in common.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use local_volume_provisioner::host::mounts::MountTable;
use local_volume_provisioner::wipe::error::WipeError;
use local_volume_provisioner::wipe::progress::Progress;
use local_volume_provisioner::wipe::tree;
use support::{LoopDevice, Sandbox, prepared_by, run_prepared, sandbox, skip};
pub use support::{has, run};
use walkdir::WalkDir;

/// A filesystem of each kind that this machine can make, one after the other, mounted.
pub fn on_each_filesystem(test: impl Fn(&Sandbox, &Path)) {
    on_filesystems(&["tmpfs", "ext4", "xfs", "btrfs"], test);
}

/// As above, of some kinds.
pub fn on_filesystems(types: &[&str], test: impl Fn(&Sandbox, &Path)) {
    let sandbox = sandbox!();
    for fs_type in types {
        let size = if *fs_type == "tmpfs" { 64 } else { 1280 } << 20;
        if let Some((root, _device)) = mounted(&sandbox, fs_type, size) {
            eprintln!("on {fs_type}:");
            test(&sandbox, &root);
        }
    }
}

/// A filesystem of one kind, mounted, where the machine has the tool. It is gone with its device.
pub fn mounted(
    sandbox: &Sandbox,
    fs_type: &str,
    size: u64,
) -> Option<(PathBuf, Option<LoopDevice>)> {
    let name = format!("volume-{fs_type}");
    if fs_type == "tmpfs" {
        let root = sandbox.tmpfs(&name, &format!("size={size}")).unwrap();
        return Some((root, None));
    }
    let mkfs = format!("mkfs.{fs_type}");
    if !has(&mkfs) {
        skip(&format!("no {mkfs} on this machine; the others are tested"));
        return None;
    }
    let device = LoopDevice::formatted(sandbox.path(), size, fs_type).unwrap();
    let root = sandbox.mount(device.path(), fs_type, &name).unwrap();
    Some((root, Some(device)))
}

/// Runs one test again, without these capabilities; where that cannot be done it is skipped. Whether
/// this is the process without them.
pub fn without_capabilities(dropped: &str) -> bool {
    if prepared_by().is_some() {
        return true;
    }
    if has("setpriv") && nix::unistd::geteuid().is_root() {
        run_prepared(&["setpriv", "--bounding-set", dropped]);
    } else {
        skip("it takes root and setpriv");
    }
    false
}

/// Mount points inside a volume, as the mount table has them.
pub fn mounts_inside(root: &Path) -> Vec<PathBuf> {
    let table = MountTable::read().unwrap();
    let volume = table.at(root).unwrap();
    let inside = table.inside(volume.device, &volume.root);
    inside.map(|mount| mount.point.clone()).collect()
}

/// Cleans a volume as the provisioner does.
pub fn clean(root: &Path) -> Result<u64, WipeError> {
    clean_with(root, &mounts_inside(root))
}

/// Cleans a volume as if something had been mounted after the mount table was read.
pub fn clean_unaware(root: &Path) -> Result<u64, WipeError> {
    clean_with(root, &[])
}

fn clean_with(root: &Path, nested: &[PathBuf]) -> Result<u64, WipeError> {
    let root = File::open(root).unwrap();
    let progress = Progress::default();
    tree::empty(root.as_fd(), nested, &progress)?;
    tree::sync(root.as_fd())?;
    tree::check_empty(root.as_fd())?;
    Ok(progress.entries())
}

/// Cleans a volume, which has to succeed, and verifies it by other means than the cleaner's.
pub fn assert_cleans(root: &Path) {
    clean(root).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(snapshot(root).into_keys().filter(|path| path != "lost+found").count(), 0);
}

/// The contents of a file as they are on the disk, not in the cache.
pub fn read_from_disk(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    nix::unistd::syncfs(&file).unwrap();
    let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    nix::fcntl::posix_fadvise(&file, 0, 0, advice).unwrap();
    fs::read(path).unwrap()
}

/// Everything below a directory: what it is, its mode, and what is in it. Nothing is followed.
pub fn snapshot(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let look = |entry: walkdir::DirEntry| {
        let path = entry.path();
        let metadata = entry.metadata().unwrap();
        let contents = if metadata.is_symlink() {
            fs::read_link(path).unwrap().as_os_str().as_bytes().to_owned()
        } else if metadata.is_file() {
            fs::read(path).unwrap()
        } else {
            Vec::new()
        };
        let name = path.strip_prefix(dir).unwrap().as_os_str().as_bytes();
        (name.escape_ascii().to_string(), (metadata.mode(), contents))
    };
    WalkDir::new(dir).min_depth(1).into_iter().map(|entry| look(entry.unwrap())).collect()
}

/// A tree that must not change, whatever is done beside it.
pub fn make_canary(dir: &Path) {
    for name in ["", "directory", "directory/below"] {
        let path = dir.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("file"), format!("the canary sings in {name:?}")).unwrap();
    }
    symlink("file", dir.join("link")).unwrap();
}
