//! What these tests have in common.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{LoopDevice, Stage};

pub const SECRET: &[u8] = b"the tenant's secret";
/// In no place where a filesystem keeps a copy of its superblock.
pub const SECRET_AT: u64 = 45 << 20;
pub const SIZE: u64 = 64 << 20;

/// A stage with a class of filesystems.
pub fn stage() -> Option<Stage> {
    let stage = Stage::set(env!("CARGO_BIN_EXE_local-volume-provisioner"))?;
    stage.class("fast", &json!({}));
    Some(stage)
}

/// The command line, without a terminal for the question.
pub fn command(stage: &Stage, args: &[&str]) -> Command {
    let mut command = stage.command();
    command.arg("clean").arg("--config").arg(stage.config_dir());
    command.arg("--kubelet-dir").arg(stage.kubelet_dir());
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a command, which has to end in this way and write all of this. Returns what it writes.
pub fn assert_ends(command: &mut Command, code: i32, words: &[&str]) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {text}");
    for words in words {
        assert!(text.contains(words), "{command:?}: no {words:?} in {text}");
    }
    text
}

/// Refused with these words, with `--yes` and in a dry run.
pub fn assert_refused(stage: &Stage, volume: &str, words: &str) {
    for go in ["--dry-run", "--yes"] {
        let expected = ["error: ", words, "nothing was touched"];
        let text = assert_ends(&mut command(stage, &[volume, go]), 2, &expected);
        assert_eq!(text.matches("nothing was").count(), 1, "{text}");
        assert!(!text.contains("will be cleaned"), "{text}");
    }
}

/// A filesystem with a tenant's files, as an entry of the class `fast`.
pub fn volume(stage: &Stage, entry: &str) -> PathBuf {
    let path = format!("disks/fast/{entry}");
    let root = stage.sandbox.tmpfs(&path, "size=16m").unwrap();
    fill(&root);
    root
}

pub fn fill(root: &Path) {
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

/// A class of raw devices, and a device in it that is full of data, with a secret and a signature.
pub fn raw(stage: &Stage, settings: &Value, dir: &Path) -> (LoopDevice, PathBuf) {
    let mut settings = settings.clone();
    settings["volumeMode"] = json!("Block");
    let class = stage.class("raw", &settings);
    let device = LoopDevice::new(dir, SIZE).unwrap();
    let file = File::options().write(true).open(device.path()).unwrap();
    let data = vec![0xa5; usize::try_from(SIZE).unwrap()];
    file.write_all_at(&data, 0).unwrap();
    file.write_all_at(b"LUKS\xba\xbe", 0).unwrap();
    file.write_all_at(SECRET, SECRET_AT).unwrap();
    file.sync_all().unwrap();
    let link = class.join("disk");
    symlink(device.path(), &link).unwrap();
    (device, link)
}

pub fn has_secret(device: &LoopDevice) -> bool {
    let mut found = [0; SECRET.len()];
    let device = File::open(device.path()).unwrap();
    device.read_exact_at(&mut found, SECRET_AT).unwrap();
    found == SECRET
}
