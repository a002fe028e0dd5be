use nix::mount::{MntFlags, umount2};

use super::*;

#[test]
fn a_device_keeps_its_identity_whatever_is_put_on_it() {
    let sandbox = or_skip!(Sandbox::enter());
    let image = sandbox.path().join("disk image");
    let backing = fs::File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&image)
        .unwrap();
    backing.set_len(16 << 20).unwrap();
    let device = LoopDevice::over(&backing).unwrap();
    let first = device_identity(device.path());
    assert!(!first.weak);
    let inode = backing.metadata().unwrap().ino();
    let uuid = field(&first, "on").unwrap();
    assert_eq!(
        first.text,
        format!("v1:loop=/mnt/disk image:{inode},on={uuid}")
    );
    device.format("ext4").unwrap();
    assert_eq!(device_identity(device.path()), first);
    let link = sandbox.path().join("link");
    symlink(device.path(), &link).unwrap();
    assert_eq!(
        device_identity(&link),
        first,
        "a link's name is no part of it"
    );
    // Another file of the same name.
    drop((device, backing));
    fs::rename(&image, sandbox.path().join("old")).unwrap();
    let backing = fs::File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&image)
        .unwrap();
    backing.set_len(16 << 20).unwrap();
    let other = LoopDevice::over(&backing).unwrap();
    assert_eq!(
        compare(&first.text, &device_identity(other.path())),
        Match::Different
    );
}

/// An image is copied to another disk, which is mounted in place of the first.
#[test]
fn images_with_one_path_and_inode_on_two_filesystems_are_two_devices() {
    let sandbox = or_skip!(Sandbox::enter());
    let image = || {
        let dir = sandbox.tmpfs("images", "size=4m").unwrap();
        let file = fs::File::create_new(dir.join("image")).unwrap();
        file.set_len(1 << 20).unwrap();
        let device = LoopDevice::over(&file).unwrap();
        (dir, file.metadata().unwrap().ino(), device)
    };
    let (dir, inode, device) = image();
    let first = device_identity(device.path());
    umount2(&dir, MntFlags::MNT_DETACH).unwrap();
    let unseen = device_identity(device.path());
    assert!(unseen.weak, "its filesystem is not mounted: {unseen}");
    let (_, other_inode, other) = image();
    assert_eq!(inode, other_inode);
    let other = device_identity(other.path());
    assert_eq!(field(&other, "loop"), field(&first, "loop"));
    assert_eq!(compare(&first.text, &other), Match::Different);
}
