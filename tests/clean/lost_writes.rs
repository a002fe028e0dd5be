//! A disk that refuses writes, below a filesystem that seems to work.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use local_volume_provisioner::host::mounts::MountTable;
use nix::errno::Errno;
use nix::mount::MsFlags;
use support::{LoopDevice, sandbox};

use crate::volume::{clean, on_filesystems, run};

const FILES: usize = 2000;

fn mount(device: &LoopDevice, at: &Path) {
    let options = Some("noinit_itable");
    nix::mount::mount(Some(device.path()), at, Some("ext4"), MsFlags::MS_NOATIME, options).unwrap();
}

/// An ext4 whose journal has no room on the disk: what is deleted never gets there.
#[test]
fn what_is_deleted_only_in_memory_is_never_taken_for_gone() {
    let sandbox = sandbox!("mke2fs");
    let below = sandbox.tmpfs("below", "size=60m").unwrap();
    let backing = tempfile::tempfile_in(&below).unwrap();
    backing.set_len(400 << 20).unwrap();
    let device = LoopDevice::over(&backing).unwrap();
    let lazily = "lazy_itable_init=0,lazy_journal_init=1";
    let path = device.path().to_str().unwrap();
    run("mke2fs", &["-q", "-t", "ext4", "-E", lazily, path]);
    let root = sandbox.dir("volume").unwrap();
    // Reading the directory must not write to the filesystem: that would show the error.
    mount(&device, &root);
    for n in 0..FILES {
        fs::write(root.join(format!("secret-{n}")), "secret").unwrap();
    }
    nix::unistd::syncfs(File::open(&root).unwrap()).unwrap();
    let filler = below.join("filler");
    let full = fs::write(&filler, vec![1; 60 << 20]);
    assert_eq!(full.unwrap_err().raw_os_error(), Some(Errno::ENOSPC as i32));

    for attempt in 1..=3 {
        let error = clean(&root).expect_err("the journal cannot be written");
        eprintln!("attempt {attempt}: {error}");
    }
    // What the next tenant would find, once the disk is well again.
    sandbox.umount(&root).unwrap();
    fs::remove_file(&filler).unwrap();
    mount(&device, &root);
    let left = fs::read_dir(&root).unwrap().flatten();
    let is_secret = |name: &OsString| name.to_str().unwrap().starts_with("secret");
    let secrets = left.filter(|entry| is_secret(&entry.file_name()));
    assert_eq!(secrets.count(), FILES);
    clean(&root).unwrap();
}

/// Their flags and their options in the mount table may still say that they can be written.
#[test]
fn a_filesystem_that_an_error_made_read_only_is_named_as_that() {
    on_filesystems(&["ext4"], |sandbox, root| {
        fs::write(root.join("file"), "data").unwrap();
        let table = MountTable::read().unwrap();
        let device = table.at(root).unwrap().source.to_str().unwrap();
        let device = device.trim_start_matches("/dev/").to_owned();
        nix::mount::mount(
            None::<&str>,
            root,
            None::<&str>,
            MsFlags::MS_REMOUNT,
            Some("errors=remount-ro"),
        )
        .unwrap();
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "a test").unwrap();
        let error = clean(root).unwrap_err();
        assert!(error.to_string().contains("is read-only, by"), "{error}");
        assert_eq!(fs::read(root.join("file")).unwrap(), b"data");
        sandbox.umount(root).unwrap();
    });
}
