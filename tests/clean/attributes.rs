//! More attributes of a volume's root than the kernel lists.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::volume::{assert_cleans, clean, on_each_filesystem, on_filesystems};

/// Sets more attributes than the kernel lists (64 KiB of names). Not every filesystem stores that many.
fn set_many_attributes(root: &Path) {
    let opened = File::open(root).unwrap();
    let create = rustix::fs::XattrFlags::CREATE;
    for n in 0..700 {
        let name = format!("user.{n:0250}");
        rustix::fs::fsetxattr(&opened, name, b"a tenant's", create).unwrap();
    }
    rustix::fs::fsetxattr(&opened, "trusted.operator", b"kept", create).unwrap();
    let listed = rustix::fs::flistxattr(&opened, &mut vec![0; 64 << 10][..]);
    assert_eq!(listed, Err(rustix::io::Errno::TOOBIG));
}

#[test]
fn more_attributes_than_can_be_listed_are_removed() {
    on_filesystems(&["xfs", "btrfs"], |_, root| {
        set_many_attributes(root);
        assert_cleans(root);
        let mut names = [0; 1024];
        let length = rustix::fs::flistxattr(File::open(root).unwrap(), &mut names[..]).unwrap();
        assert_eq!(&names[..length], b"trusted.operator\0");
    });
}

#[test]
fn mark_stays_when_the_volume_is_cleaned() {
    on_each_filesystem(|_, root| {
        let opened = File::open(root).unwrap();
        for name in ["security.local-volume", "user.tenant"] {
            rustix::fs::fsetxattr(&opened, name, b"value", rustix::fs::XattrFlags::CREATE).unwrap();
        }
        assert_cleans(root);
        let mut names = [0; 1024];
        let length = rustix::fs::flistxattr(&opened, &mut names[..]).unwrap();
        assert_eq!(&names[..length], b"security.local-volume\0");
    });
}

/// The process without the capability gets the volume from the one that mounts it.
#[test]
fn attributes_that_only_the_capability_lists_are_named_with_the_remedy() {
    const VOLUME: &str = "VOLUME_OF_ATTRIBUTES";
    if let Some(volume) = std::env::var_os(VOLUME) {
        let error = clean(Path::new(&volume)).unwrap_err().to_string();
        for words in ["too many attributes", "CAP_SYS_ADMIN", "mkfs"] {
            assert!(error.contains(words), "{error}");
        }
        return;
    }
    on_filesystems(&["xfs", "btrfs"], |_, root| {
        set_many_attributes(root);
        let mut program = Command::new("setpriv");
        program.args(["--bounding-set", "-sys_admin"]);
        program.arg(std::env::current_exe().unwrap()).args([
            "--exact",
            "attributes::attributes_that_only_the_capability_lists_are_named_with_the_remedy",
        ]);
        let output = program.env(VOLUME, root).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    });
}
