//! What these tests have in common.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{LoopDevice, Sandbox, bare_command, has, skip};

pub const SECRET: &[u8] = b"the tenant's secret";
/// In no place where a filesystem keeps a copy of its superblock.
pub const SECRET_AT: u64 = 45 << 20;
pub const SIZE: u64 = 64 << 20;

/// How a run ended, and all that it wrote.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub said: String,
}

/// The command line, with nobody to ask. It hears of hang-ups also where the tests run under `nohup`.
pub fn command<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = bare_command("env");
    let clean = [env!("CARGO_BIN_EXE_local-volume-provisioner"), "clean"];
    command.arg("--default-signal=HUP").args(clean).args(args);
    command.stdin(Stdio::null());
    command
}

/// Runs it.
pub fn clean<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Ran {
    run(&mut command(args))
}

fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        said: String::from_utf8([output.stdout, output.stderr].concat()).unwrap(),
    }
}

/// Runs it as `kubectl exec` would, with what the kubelet's directory is said to be.
pub fn clean_in_pod(path: &Path, go: &str, variable: &str) -> Ran {
    let (name, value) = variable.split_once('=').unwrap();
    let args = [
        path.as_os_str(),
        go.as_ref(),
        "--kubelet-dir=/mnt/kubelet".as_ref(),
    ];
    run(command(args).env(name, value))
}

/// Runs it, which has to end in this way and say all of this.
pub fn assert_clean(args: &[&OsStr], code: i32, words: &[&str]) {
    let ran = clean(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.said);
    for words in words {
        assert!(
            ran.said.contains(words),
            "{args:?}: no {words:?} in {}",
            ran.said
        );
    }
}

/// Refused with these words, for good and in a dry run.
pub fn assert_refused(path: &Path, more: &[&str], words: &str) {
    for go in ["--dry-run", "--yes"] {
        let more = more.iter().map(OsStr::new);
        let args: Vec<_> = [path.as_os_str(), go.as_ref()]
            .into_iter()
            .chain(more)
            .collect();
        assert_clean(&args, 2, &["error: ", words, "nothing was touched"]);
    }
}

/// A device that is full of data, with a secret and a signature.
pub fn device_with_secret(dir: &Path) -> LoopDevice {
    let device = LoopDevice::new(dir, SIZE).unwrap();
    put_secret(&device);
    device
}

/// The same, and the file below it can neither punch nor discard.
pub fn device_without_offload(sandbox: &Sandbox) -> LoopDevice {
    device_with_secret(&sandbox.ramfs("ramfs").unwrap())
}

fn put_secret(device: &LoopDevice) {
    let file = File::options().write(true).open(device.path()).unwrap();
    let data = vec![0xa5; usize::try_from(SIZE).unwrap()];
    file.write_all_at(&data, 0).unwrap();
    file.write_all_at(b"LUKS\xba\xbe", 0).unwrap();
    file.write_all_at(SECRET, SECRET_AT).unwrap();
    file.sync_all().unwrap();
}

pub fn has_secret(device: &LoopDevice) -> bool {
    let mut found = [0; SECRET.len()];
    let device = File::open(device.path()).unwrap();
    device.read_exact_at(&mut found, SECRET_AT).unwrap();
    found == SECRET
}

/// All that is on a device.
pub fn bytes(device: &LoopDevice) -> Vec<u8> {
    fs::read(device.path()).unwrap()
}

/// A filesystem with a tenant's files, mounted.
pub fn volume(sandbox: &Sandbox, name: &str) -> PathBuf {
    let root = sandbox.tmpfs(name, "size=16m").unwrap();
    fill(&root);
    root
}

/// The same on a disk of its own, where the machine can make one.
pub fn ext4_volume(sandbox: &Sandbox, name: &str) -> Option<(PathBuf, LoopDevice)> {
    if !has("mkfs.ext4") {
        skip("no mkfs.ext4 on this machine");
        return None;
    }
    let device = LoopDevice::formatted(sandbox.path(), SIZE, "ext4").unwrap();
    let root = sandbox.mount(device.path(), "ext4", name).unwrap();
    fill(&root);
    Some((root, device))
}

fn fill(root: &Path) {
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/file"), SECRET).unwrap();
}

pub fn is_full(root: &Path) -> bool {
    fs::read(root.join("dir/file")).is_ok_and(|bytes| bytes == SECRET)
}

pub fn is_empty(root: &Path) -> bool {
    let mut entries = fs::read_dir(root).unwrap();
    entries.all(|entry| entry.unwrap().file_name() == "lost+found")
}
