//! Volumes that are cleaned, and dry runs, which clean nothing.

use std::fs::File;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use support::{LoopDevice, Sandbox, sandbox};

use crate::ground::{
    SIZE, assert_clean, bytes, command, device_with_secret, device_without_offload, ext4_volume,
    has_secret, is_empty, is_full, volume,
};

#[test]
fn a_filesystem_is_shown_and_left_alone_and_then_emptied() {
    let sandbox = sandbox!();
    let mut volumes = vec![(volume(&sandbox, "ram"), "tmpfs", "2 entries removed.", None)];
    if let Some((root, device)) = ext4_volume(&sandbox, "disk") {
        volumes.push((root, "ext4", "the disk was told of", Some(device)));
    }
    for (root, fs_type, trimmed, _device) in volumes {
        let path = root.as_os_str();
        let identity = format!("v1:fs={fs_type},");
        let shown = [
            "will be   emptied",
            "holds",
            &identity,
            "nothing was touched",
        ];
        assert_clean(&[path, "--dry-run".as_ref()], 0, &shown);
        assert!(is_full(&root));
        let done = ["Cleaned /mnt/", "2 entries removed", trimmed];
        assert_clean(&[path, "--yes".as_ref()], 0, &done);
        assert!(is_empty(&root), "{fs_type}");
        // Once more is no fault.
        assert_clean(&[path, "--yes".as_ref()], 0, &["0 entries removed"]);
    }
}

#[test]
fn without_trim_it_says_that_data_stays() {
    let sandbox = sandbox!();
    let (root, _device) = or_skip!(ext4_volume(&sandbox, "disk"));
    std::fs::remove_file(root.join("dir/file")).unwrap();
    let stays = ["stay readable on the disk", "1 entry removed; not trimmed"];
    assert_clean(
        &[root.as_os_str(), "--trim=false".as_ref(), "--yes".as_ref()],
        0,
        &stays,
    );
    assert!(is_empty(&root));
}

/// A device, as one that can drop its contents or as one that cannot.
fn each(sandbox: &Sandbox) -> [(LoopDevice, bool); 2] {
    [
        (device_with_secret(sandbox.path()), true),
        (device_without_offload(sandbox), false),
    ]
}

#[test]
fn a_device_is_shown_and_left_as_it_is_by_a_dry_run() {
    let sandbox = sandbox!();
    for (device, _) in each(&sandbox) {
        let before = bytes(&device);
        let udev = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        udev.add_watch(device.path(), AddWatchFlags::IN_CLOSE_WRITE)
            .unwrap();
        for method in ["quick", "zero", "overwrite", "discard", "auto"] {
            let args = [
                device.path().as_os_str(),
                "--dry-run".as_ref(),
                "--method".as_ref(),
                method.as_ref(),
            ];
            let shown = ["crypto_LUKS at byte 0", "size      64.0 MiB", "v1:loop="];
            assert_clean(&args, 0, &shown);
            assert!(bytes(&device) == before, "{method}");
        }
        // Which would read it anew, and make its links anew.
        assert_eq!(udev.read_events().unwrap_err(), Errno::EAGAIN);
    }
}

#[test]
fn a_dry_run_that_cannot_be_seen_touches_nothing_and_says_so() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    for go in ["--dry-run", "--yes"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = command(["/mnt/volume", go]);
        let output = command.stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("nothing was touched"), "{said}");
        assert!(is_full(&root));
    }
}

#[test]
fn a_device_is_zero_by_every_method_that_says_so() {
    let sandbox = sandbox!();
    for args in [
        &["--method=zero"][..],
        &["--method=zero", "--passes=2"],
        &["--method=overwrite", "--passes=1"],
        &["--method=discard"],
        &["--method=auto"],
        &["--method=zero", "--verify"],
    ] {
        for (device, can_drop) in each(&sandbox) {
            let path = [device.path().as_os_str(), "--yes".as_ref()];
            let args: Vec<_> = path
                .into_iter()
                .chain(args.iter().map(AsRef::as_ref))
                .collect();
            let mut told = vec!["Cleaned /dev/loop", "the device reads as zeros"];
            if args.contains(&"--verify".as_ref()) {
                told.extend(["and then read back as a whole", "every byte was read back"]);
            }
            assert_clean(&args, 0, &told);
            assert_eq!(bytes(&device).len() as u64, SIZE);
            assert!(device.is_zero().unwrap(), "{args:?} {can_drop}");
        }
    }
}

#[test]
fn a_quick_reset_is_the_default_and_says_what_it_leaves() {
    let sandbox = sandbox!();
    for (device, can_drop) in each(&sandbox) {
        let args = [device.path().as_os_str(), "--yes".as_ref()];
        let told: &[&str] = if can_drop {
            &["(quick); for other ways", "punched"]
        } else {
            &[
                "this device drops nothing",
                "signatures only",
                "may still be readable",
            ]
        };
        assert_clean(&args, 0, told);
        assert_eq!(has_secret(&device), !can_drop);
        assert_eq!(device.is_zero().unwrap(), can_drop);
        assert!(bytes(&device)[..1 << 20].iter().all(|byte| *byte == 0));
        assert_clean(&args, 0, &["holds     nothing that is known"]);
    }
}

#[test]
fn a_link_to_a_device_is_followed_and_shown() {
    let sandbox = sandbox!();
    let device = device_with_secret(sandbox.path());
    let link = sandbox.path().join("by-id");
    std::os::unix::fs::symlink(device.path(), &link).unwrap();
    let real = format!("real path  \"{}\"", device.path().display());
    assert_clean(
        &[link.as_os_str(), "--yes".as_ref()],
        0,
        &[&real, "Cleaned /mnt/by-id"],
    );
    assert!(device.is_zero().unwrap());
}
