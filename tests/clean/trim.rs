//! What is left on the disk after a filesystem was emptied.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use local_volume_provisioner::host::mounts::DeviceNumber;
use local_volume_provisioner::wipe::error::WipeError;
use local_volume_provisioner::wipe::progress::Progress;
use local_volume_provisioner::wipe::trim::{Trim, trim, trim_rarely};
use nix::errno::Errno;
use support::{LoopDevice, sandbox, skip};

use crate::volume::{assert_cleans, has, on_filesystems, read_from_disk, without_capabilities};

const SECRET: &[u8] = b"the tenant's secret: ";
const FILES: usize = 200;

fn trimmed(root: &Path) -> Trim {
    let root = File::open(root).unwrap();
    trim(root.as_fd(), &Progress::default()).unwrap()
}

/// How many of the secrets can be read in a file (without its holes).
fn secrets(disk: &File) -> usize {
    let mut found = 0;
    let (mut block, end) = (vec![0; 1 << 20], disk.metadata().unwrap().len());
    for at in (0..end).step_by(block.len()) {
        let length = disk.read_at(&mut block, at).unwrap();
        // Each begins a block, and these are 1 KiB in a small ext4.
        found += block[..length].chunks(1024).filter(|chunk| chunk.starts_with(SECRET)).count();
    }
    found
}

#[test]
fn what_was_deleted_is_gone_from_the_disk_after_a_trim() {
    let sandbox = sandbox!();
    for fs_type in ["ext4", "xfs", "btrfs"] {
        if !has(&format!("mkfs.{fs_type}")) {
            skip(&format!("no mkfs.{fs_type} on this machine"));
            continue;
        }
        let backing = tempfile::tempfile_in(sandbox.path()).unwrap();
        backing.set_len(400 << 20).unwrap();
        let device = LoopDevice::over(&backing).unwrap();
        device.format(fs_type).unwrap();
        let root = sandbox.mount(device.path(), fs_type, fs_type).unwrap();
        let secret = [SECRET, &[b'x'; 4096]].concat()[..4096].repeat(16);
        for n in 0..FILES {
            fs::write(root.join(n.to_string()), &secret).unwrap();
        }
        nix::unistd::syncfs(File::open(&root).unwrap()).unwrap();
        assert_eq!(secrets(&backing), FILES * 16, "{fs_type}");

        assert_cleans(&root);
        assert!(secrets(&backing) > 0, "deleting alone erases: {fs_type}");
        let Trim::Done { bytes } = trimmed(&root) else {
            panic!("a loop device over a tmpfs knows discard")
        };
        assert!(bytes >= (FILES * secret.len()) as u64, "{bytes}");
        assert_eq!(secrets(&backing), 0, "{fs_type}");
        // The filesystem has not suffered.
        fs::write(root.join("next"), "the next tenant's").unwrap();
        sandbox.umount(&root).unwrap();
        let root = sandbox.mount(device.path(), fs_type, fs_type).unwrap();
        assert_eq!(fs::read(root.join("next")).unwrap(), b"the next tenant's");
    }
}

#[test]
fn a_trim_touches_no_file_beside_the_volume() {
    on_filesystems(&["ext4", "xfs", "btrfs"], |sandbox, disk| {
        let [inside, beside] = ["volume", "beside"].map(|name| disk.join(name));
        fs::create_dir(&inside).unwrap();
        let contents: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
        for file in [&inside.join("file"), &beside] {
            fs::write(file, &contents).unwrap();
        }
        let name = format!("part-of-{}", disk.file_name().unwrap().to_str().unwrap());
        let root = sandbox.bind(&inside, &name).unwrap();
        assert_cleans(&root);
        assert!(matches!(trimmed(&root), Trim::Done { .. }));
        assert!(read_from_disk(&beside) == contents);
    });
}

fn rarely(path: &Path, progress: &Progress) -> Result<Trim, WipeError> {
    let root = File::open(path).unwrap();
    let filesystem = DeviceNumber::from_rdev(fs::metadata(path).unwrap().dev());
    trim_rarely(root.as_fd(), filesystem, progress)
}

/// Otherwise each attempt would run out of time.
#[test]
fn trim_that_exceeds_the_time_limit_is_omitted_by_the_next_attempt() {
    on_filesystems(&["ext4"], |_, root| {
        let late = Progress::default();
        late.time_out();
        assert!(rarely(root, &late).is_err());
        let next = rarely(root, &Progress::default());
        assert_eq!(next, Ok(Trim::TooEarly));
    });
}

/// A tenant creates and deletes volumes on one filesystem without end.
#[test]
fn filesystem_is_not_trimmed_again_at_once() {
    on_filesystems(&["ext4", "xfs"], |_, root| {
        let cancelled = Progress::default();
        cancelled.cancel();
        assert!(rarely(root, &cancelled).is_err());
        let trimmed = rarely(root, &Progress::default()).unwrap();
        assert!(matches!(trimmed, Trim::Done { .. }), "{trimmed:?}");
        for _ in 0..2 {
            let again = rarely(root, &Progress::default());
            assert_eq!(again, Ok(Trim::TooEarly));
        }
    });
    on_filesystems(&["tmpfs"], |_, root| {
        for _ in 0..2 {
            let refused = rarely(root, &Progress::default());
            assert_eq!(refused, Ok(Trim::NotOffered(Errno::ENOTTY)));
        }
    });
}

#[test]
fn where_nothing_can_be_trimmed_nothing_happens() {
    on_filesystems(&["tmpfs"], |_, root| {
        assert_eq!(trimmed(root), Trim::NotOffered(Errno::ENOTTY));
    });
}

#[test]
fn without_the_capability_nothing_is_trimmed() {
    // The root of this machine's own filesystem will do: nothing can happen to it.
    if without_capabilities("-sys_admin") {
        let refused = trimmed(&std::env::current_dir().unwrap());
        assert!(
            matches!(refused, Trim::NotOffered(Errno::EPERM | Errno::EOPNOTSUPP | Errno::ENOTTY)),
            "{refused:?}"
        );
    }
}

#[test]
fn a_trim_can_be_cancelled() {
    on_filesystems(&["ext4"], |_, root| {
        let progress = Progress::default();
        progress.cancel();
        assert!(trim(File::open(root).unwrap().as_fd(), &progress).is_err());
    });
}
