use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use local_volume_provisioner::host::access::Access;
use local_volume_provisioner::host::device::Device;
use local_volume_provisioner::host::footprint::{Footprint, Overlap, overlap};
use local_volume_provisioner::host::identity::{self, Identity, Match, compare};
use local_volume_provisioner::host::mounts::DeviceNumber;
use local_volume_provisioner::host::sysfs::Sysfs;
use nix::mount::MsFlags;
use support::{LoopDevice, Sandbox, skip};

use crate::volumes::{SIZES, clone_of, formatted, fs_footprint, fs_identity, remount, umount};

fn device_identity(path: &Path) -> Identity {
    identity::of_device(&Device::open(path, Access::Probe).unwrap(), path, &Sysfs::default())
        .unwrap()
}

fn field<'a>(identity: &'a Identity, key: &str) -> Option<&'a str> {
    identity
        .text
        .strip_prefix("v1:")
        .unwrap()
        .split(',')
        .find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
}

#[test]
fn a_filesystem_keeps_its_identity_until_it_is_made_again() {
    let sandbox = or_skip!(Sandbox::enter());
    for (fs_type, _) in SIZES {
        let Some(device) = formatted(&sandbox, fs_type) else {
            continue;
        };
        let path = sandbox.mount(device.path(), fs_type, fs_type).unwrap();
        let first = fs_identity(&path);
        assert!(!first.weak);
        assert_eq!(field(&first, "fs"), Some(fs_type));
        assert_eq!(field(&first, "root"), Some("/"));
        assert!(field(&first, "on").unwrap().starts_with("loop%3D"), "{first}");
        assert_eq!(field(&first, "uuid").map(str::to_owned), blkid(device.path()), "{fs_type}");
        // Neither use, nor a remount, nor another place makes a difference.
        fs::write(path.join("file"), "data").unwrap();
        remount(&path, MsFlags::MS_RDONLY);
        assert_eq!(fs_identity(&path), first);
        umount(&sandbox, &path);
        let elsewhere = sandbox.mount(device.path(), fs_type, &format!("{fs_type}-2")).unwrap();
        assert_eq!(fs_identity(&elsewhere), first);
        umount(&sandbox, &elsewhere);
        device.format(fs_type).unwrap();
        sandbox.mount(device.path(), fs_type, fs_type).unwrap();
        let again = fs_identity(&path);
        assert_eq!(compare(&first.text, &again), Match::Different, "{first} {again}");
        umount(&sandbox, &path);
    }
}

/// Another program's opinion of a filesystem's UUID.
fn blkid(device: &Path) -> Option<String> {
    nix::unistd::sync();
    let output = Command::new("blkid")
        .args(["-p", "-s", "UUID", "-o", "value"])
        .arg(device)
        .output()
        .unwrap();
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
        .filter(|uuid| !uuid.is_empty())
}

#[test]
fn cloned_disks_are_distinguished() {
    let sandbox = or_skip!(Sandbox::enter());
    for (fs_type, options) in [("ext4", None), ("xfs", Some("nouuid")), ("btrfs", None)] {
        let Some(device) = formatted(&sandbox, fs_type) else {
            continue;
        };
        let path = sandbox.mount(device.path(), fs_type, fs_type).unwrap();
        let original = fs_identity(&path);
        umount(&sandbox, &path);
        let copy = clone_of(&sandbox, &device);
        // Alone, and with the original mounted beside it: btrfs then makes up a UUID.
        let at = sandbox.mount(copy.path(), fs_type, &format!("{fs_type}-copy")).unwrap();
        let alone = fs_identity(&at);
        umount(&sandbox, &at);
        let path = sandbox.mount(device.path(), fs_type, fs_type).unwrap();
        let flags = MsFlags::empty();
        match nix::mount::mount(Some(copy.path()), &at, Some(fs_type), flags, options) {
            Ok(()) => {}
            // Btrfs before Linux 6.7 mounts no second clone.
            Err(error) => {
                skip(&format!("{fs_type} mounts no clone beside its original: {error}"));
                continue;
            }
        }
        assert_eq!(fs_identity(&path), original);
        let beside = fs_identity(&at);
        assert_eq!(field(&beside, "uuid"), field(&original, "uuid"));
        assert_eq!(beside, alone);
        assert_eq!(compare(&original.text, &beside), Match::Different);
        assert_eq!(overlap(&fs_footprint(&path), &fs_footprint(&at)), None);
    }
}

#[test]
fn subvolumes_and_directories_differ_by_their_root() {
    let sandbox = or_skip!(Sandbox::enter());
    let device = or_skip!(formatted(&sandbox, "btrfs"));
    let top = sandbox.mount(device.path(), "btrfs", "top").unwrap();
    let made = Command::new("btrfs")
        .args(["-q", "subvolume", "create"])
        .arg(top.join("sub"))
        .status()
        .unwrap();
    assert!(made.success());
    fs::create_dir(top.join("dir")).unwrap();
    let sub = sandbox.dir("sub").unwrap();
    nix::mount::mount(
        Some(device.path()),
        &sub,
        Some("btrfs"),
        MsFlags::empty(),
        Some("subvol=sub"),
    )
    .unwrap();
    let dir = sandbox.bind(&top.join("dir"), "dir").unwrap();
    let identities = [&top, &sub, &dir].map(|path| fs_identity(path));
    assert_eq!(identities.each_ref().map(|it| field(it, "root").unwrap()), ["/", "/sub", "/dir"]);
    assert_eq!(field(&identities[0], "uuid"), field(&identities[1], "uuid"));
    assert_eq!(overlap(&fs_footprint(&top), &fs_footprint(&sub)), Some(Overlap::Nested));
    assert_eq!(overlap(&fs_footprint(&dir), &fs_footprint(&sub)), None);
    let facts = Sysfs::default()
        .device(Device::open(device.path(), Access::Probe).unwrap().number())
        .unwrap();
    let below = Footprint::of_device(&facts);
    assert_eq!(overlap(&fs_footprint(&sub), &below), Some(Overlap::PartOf));
}

#[test]
fn a_filesystem_without_a_uuid_is_weak_and_equal_across_remounts() {
    let sandbox = or_skip!(Sandbox::enter());
    let path = sandbox.tmpfs("a,b", "size=1m").unwrap();
    let first = fs_identity(&path);
    assert!(first.weak);
    assert_eq!(first.text, "v1:fs=tmpfs,path=/mnt/a%2Cb,root=/");
    umount(&sandbox, &path);
    sandbox.tmpfs("a,b", "size=1m").unwrap();
    assert_eq!(compare(&first.text, &fs_identity(&path)), Match::Same);
}

/// An ext4 without a UUID stands for a kernel that does not report it.
fn without_uuid(sandbox: &Sandbox) -> Option<LoopDevice> {
    let device = formatted(sandbox, "ext4")?;
    let cleared =
        Command::new("tune2fs").args(["-f", "-U", "clear"]).arg(device.path()).output().unwrap();
    assert!(cleared.status.success(), "{cleared:?}");
    Some(device)
}

#[test]
fn another_disk_is_noticed_though_its_filesystem_has_no_uuid() {
    let sandbox = or_skip!(Sandbox::enter());
    let device = or_skip!(without_uuid(&sandbox));
    let mounted = |device: &LoopDevice| {
        let path = sandbox.mount(device.path(), "ext4", "disk").unwrap();
        let identity = fs_identity(&path);
        umount(&sandbox, &path);
        assert!(identity.weak, "{identity}");
        identity
    };
    let first = mounted(&device);
    assert_eq!(field(&first, "path"), Some("/mnt/disk"));
    assert!(field(&first, "on").unwrap().starts_with("loop%3D"), "{first}");
    assert_eq!(compare(&first.text, &mounted(&device)), Match::Same);
    let other = without_uuid(&sandbox).unwrap();
    assert_eq!(compare(&first.text, &mounted(&other)), Match::Different);
    // A kernel that reports the UUID.
    device.format("ext4").unwrap();
    let path = sandbox.mount(device.path(), "ext4", "disk").unwrap();
    let found = fs_identity(&path);
    assert!(!found.weak);
    assert_eq!(compare(&first.text, &found), Match::Same);
    assert_eq!(compare(&found.text, &first), Match::Unknown);
}

/// The directory of a device in a `/sys` of the sandbox.
fn dir_in_sys(sandbox: &Sandbox, number: DeviceNumber) -> PathBuf {
    let dir = sandbox.dir("sys/devices/disk").unwrap();
    let links = sandbox.dir("sys/dev/block").unwrap();
    symlink(&dir, links.join(number.to_string())).unwrap();
    dir
}

#[test]
fn a_filesystem_without_a_uuid_on_a_disk_without_a_name_is_known_until_the_next_boot() {
    let sandbox = or_skip!(Sandbox::enter());
    let device = or_skip!(without_uuid(&sandbox));
    let number = Device::open(device.path(), Access::Probe).unwrap().number();
    let dir = dir_in_sys(&sandbox, number);
    let path = sandbox.mount(device.path(), "ext4", "disk").unwrap();
    let observed = |diskseq: &str| {
        for (file, value) in [("dev", &*number.to_string()), ("size", "8"), ("diskseq", diskseq)] {
            fs::write(dir.join(file), value).unwrap();
        }
        let sysfs = Sysfs::new(sandbox.path().join("sys"), sandbox.path().join("udev"));
        identity::of_filesystem(&crate::volumes::open(&path).unwrap(), &sysfs).unwrap()
    };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = boot.trim();
    let first = observed("17");
    assert!(first.weak);
    assert_eq!(
        first.text,
        format!("v1:boot={boot},fs=ext4,path=/mnt/disk,root=/,seq=17,size=4096")
    );
    assert_eq!(compare(&first.text, &observed("17")), Match::Same);
    assert_eq!(compare(&first.text, &observed("18")), Match::Different);
    let before = first.text.replace(boot, "another");
    assert_eq!(compare(&before, &observed("18")), Match::Unknown);
    assert!(identity::only_rebooted(&before, &observed("18")));
}

#[test]
fn a_device_keeps_its_identity_whatever_is_put_on_it() {
    let sandbox = or_skip!(Sandbox::enter());
    let image = sandbox.path().join("disk image");
    let backing = fs::File::options().create_new(true).read(true).write(true).open(&image).unwrap();
    backing.set_len(16 << 20).unwrap();
    let device = LoopDevice::over(&backing).unwrap();
    let first = device_identity(device.path());
    assert!(!first.weak);
    let inode = backing.metadata().unwrap().ino();
    assert_eq!(first.text, format!("v1:loop=/mnt/disk image:{inode}"));
    device.format("ext4").unwrap();
    assert_eq!(device_identity(device.path()), first);
    let link = sandbox.path().join("link");
    symlink(device.path(), &link).unwrap();
    assert_eq!(device_identity(&link), first, "a link's name is no part of it");
    // Another file of the same name.
    drop((device, backing));
    fs::rename(&image, sandbox.path().join("old")).unwrap();
    let backing = fs::File::options().create_new(true).read(true).write(true).open(&image).unwrap();
    backing.set_len(16 << 20).unwrap();
    let other = LoopDevice::over(&backing).unwrap();
    assert_eq!(compare(&first.text, &device_identity(other.path())), Match::Different);
}

#[test]
fn a_loop_over_a_device_is_found_by_whatever_path_it_was_made() {
    let sandbox = or_skip!(Sandbox::enter());
    let lower = LoopDevice::new(sandbox.path(), 16 << 20).unwrap();
    // As the kubelet does it: the node on a file of its own, and a loop device over that one.
    let mapped = sandbox.path().join("pod-uid");
    fs::write(&mapped, "").unwrap();
    let flags = MsFlags::MS_BIND;
    nix::mount::mount(Some(lower.path()), &mapped, None::<&str>, flags, None::<&str>).unwrap();
    let file = fs::File::options().read(true).write(true).open(&mapped).unwrap();
    let upper = LoopDevice::over(&file).unwrap();
    drop(file);
    let facts = |device: &LoopDevice| {
        let number = Device::open(device.path(), Access::Probe).unwrap().number();
        Sysfs::default().device(number).unwrap()
    };
    let (below, above) = (facts(&lower), facts(&upper));
    assert_eq!(above.loop_backing.as_deref(), Some(mapped.as_path()));
    assert!(above.below.contains(&below.number));
    let loops = || Sysfs::default().loops_over(&[below.number].into()).unwrap();
    assert_eq!(loops(), [above.name.as_str()]);
    // Nor does it matter that the path is gone.
    nix::mount::umount2(&mapped, nix::mount::MntFlags::MNT_DETACH).unwrap();
    fs::remove_file(&mapped).unwrap();
    assert_eq!(loops(), [above.name.as_str()]);
}

#[test]
fn a_device_without_a_name_is_known_until_the_next_boot() {
    let sandbox = or_skip!(Sandbox::enter());
    let real = LoopDevice::new(sandbox.path(), 1 << 20).unwrap();
    let number = Device::open(real.path(), Access::Probe).unwrap().number();
    // The same device on a kernel that reports nothing about it but its size.
    let dir = dir_in_sys(&sandbox, number);
    fs::write(dir.join("dev"), format!("{number}\n")).unwrap();
    fs::write(dir.join("size"), "2048\n").unwrap();
    let sysfs = Sysfs::new(sandbox.path().join("sys"), sandbox.path().join("udev"));
    let link = sandbox.path().join("link");
    symlink(real.path(), &link).unwrap();
    let observed = |path: &Path| {
        identity::of_device(&Device::open(path, Access::Probe).unwrap(), path, &sysfs).unwrap()
    };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (boot, target) = (boot.trim(), real.path().display());
    assert!(observed(&link).weak);
    assert_eq!(observed(&link).text, format!("v1:boot={boot},link={target},size=1048576"));
    assert_eq!(observed(real.path()).text, format!("v1:boot={boot},size=1048576"));
    let before = observed(&link).text.replace(boot, "00000000-0000-0000-0000-000000000000");
    assert_eq!(compare(&before, &observed(&link)), Match::Unknown);
    assert!(identity::only_rebooted(&before, &observed(&link)));
    assert!(!identity::only_rebooted(&before, &observed(real.path())));
    // Another disk of the same size under the same name.
    let numbered = |diskseq: &str| {
        fs::write(dir.join("diskseq"), diskseq).unwrap();
        let sysfs = Sysfs::new(sandbox.path().join("sys"), sandbox.path().join("udev"));
        identity::of_device(&Device::open(&link, Access::Probe).unwrap(), &link, &sysfs).unwrap()
    };
    let first = numbered("17");
    assert_eq!(field(&first, "seq"), Some("17"));
    assert_eq!(compare(&first.text, &numbered("17")), Match::Same);
    assert_eq!(compare(&first.text, &numbered("18")), Match::Different);
    let before = first.text.replace(boot, "another");
    assert_eq!(compare(&before, &numbered("18")), Match::Unknown);
    assert!(identity::only_rebooted(&before, &numbered("18")));
}
