//! What the tests of directory cleaning have in common.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use local_volume_provisioner::clean::progress::Progress;
use local_volume_provisioner::clean::tree::{self, TreeError, TreeReport};
use local_volume_provisioner::host::mounts::MountTable;
use support::{LoopDevice, Sandbox, skip};
use walkdir::WalkDir;

/// A filesystem of each kind that this machine can make, one after the other, mounted.
pub fn on_each_filesystem(test: impl Fn(&Sandbox, &Path)) {
    on_filesystems(&["tmpfs", "ext4", "xfs", "btrfs"], test);
}

/// As above, of some kinds.
pub fn on_filesystems(types: &[&str], test: impl Fn(&Sandbox, &Path)) {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    for fs_type in types {
        let name = format!("volume-{fs_type}");
        let (root, _device) = if *fs_type == "tmpfs" {
            (sandbox.tmpfs(&name, "size=64m").unwrap(), None)
        } else {
            let Some(device) = formatted(&sandbox, fs_type) else {
                continue;
            };
            (
                sandbox.mount(device.path(), fs_type, &name).unwrap(),
                Some(device),
            )
        };
        eprintln!("on {fs_type}:");
        test(&sandbox, &root);
    }
}

/// A device with a filesystem on it, where the machine has the tool.
pub fn formatted(sandbox: &Sandbox, fs_type: &str) -> Option<LoopDevice> {
    if !has(&format!("mkfs.{fs_type}")) {
        skip(&format!(
            "no mkfs.{fs_type} on this machine; the others are tested"
        ));
        return None;
    }
    Some(LoopDevice::formatted(sandbox.path(), 1280 << 20, fs_type).unwrap())
}

/// Whether there is such a program.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Runs a program that has to succeed; what it wrote.
pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {text}");
    text
}

/// Runs one test again, in a process that was prepared by another program. Whether this is that
/// process.
pub fn in_prepared_process(test: &str, prepare: &[&str]) -> bool {
    const MARK: &str = "TEST_IN_PREPARED_PROCESS";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let output = Command::new(prepare[0])
        .args(&prepare[1..])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    false
}

/// Runs one test again, without these capabilities; where that cannot be done it is skipped. Whether
/// this is the process without them.
pub fn without_capabilities(test: &str, dropped: &str) -> bool {
    if !has("setpriv") || !nix::unistd::geteuid().is_root() {
        skip("it takes root and setpriv");
        return false;
    }
    in_prepared_process(test, &["setpriv", "--bounding-set", dropped])
}

/// Mount points inside a volume, as the mount table has them.
pub fn mounts_inside(root: &Path) -> Vec<PathBuf> {
    let table = MountTable::read().unwrap();
    let volume = table.at(root).unwrap();
    let inside = table.inside(volume.device, &volume.root);
    inside.map(|mount| mount.point.clone()).collect()
}

/// Cleans a volume as the provisioner does.
pub fn clean(root: &Path) -> Result<TreeReport, TreeError> {
    clean_with(root, &mounts_inside(root))
}

/// Cleans a volume as if something had been mounted after the look at the mount table.
pub fn clean_unaware(root: &Path) -> Result<TreeReport, TreeError> {
    clean_with(root, &[])
}

fn clean_with(root: &Path, nested: &[PathBuf]) -> Result<TreeReport, TreeError> {
    let root = File::open(root).unwrap();
    let progress = Progress::default();
    let report = tree::empty(root.as_fd(), nested, &progress)?;
    assert_eq!(progress.entries(), report.removed);
    tree::sync(root.as_fd())?;
    tree::check_empty(root.as_fd())?;
    Ok(report)
}

/// Cleans a volume, which has to succeed, and looks at it in another way than the cleaner does.
pub fn assert_cleans(root: &Path) {
    clean(root).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        snapshot(root)
            .into_keys()
            .filter(|path| path != "lost+found")
            .count(),
        0
    );
}

/// Everything below a directory: what it is, its mode, and what is in it. Nothing is followed.
pub fn snapshot(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let look = |entry: walkdir::DirEntry| {
        let path = entry.path();
        let metadata = entry.metadata().unwrap();
        let contents = if metadata.is_symlink() {
            fs::read_link(path)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_owned()
        } else if metadata.is_file() {
            fs::read(path).unwrap()
        } else {
            Vec::new()
        };
        let name = path.strip_prefix(dir).unwrap().as_os_str().as_bytes();
        (name.escape_ascii().to_string(), (metadata.mode(), contents))
    };
    WalkDir::new(dir)
        .min_depth(1)
        .into_iter()
        .map(|entry| look(entry.unwrap()))
        .collect()
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
