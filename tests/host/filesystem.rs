use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use local_volume_provisioner::host::access::OpenError;
use local_volume_provisioner::host::filesystem::FsRoot;
use local_volume_provisioner::host::mounts::MountTable;
use nix::mount::MsFlags;
use support::sandbox;

use crate::volumes::{SIZES, formatted, open, remount, umount};

#[test]
fn every_kind_of_mount_is_a_mount_point() {
    let sandbox = sandbox!();
    for (fs_type, size) in SIZES {
        let Some(device) = formatted(&sandbox, fs_type) else {
            continue;
        };
        let path = sandbox.mount(device.path(), fs_type, fs_type).unwrap();
        let root = open(&path).unwrap();
        assert_eq!(root.mount().fs_type, fs_type);
        assert_eq!(root.mount().root, Path::new("/"));
        let total = root.size_and_read_only().unwrap().0;
        assert!(total > size / 2 && total <= size, "{fs_type}: {total} of {size}");
        assert!(!root.size_and_read_only().unwrap().1);
    }
    let tmpfs = sandbox.tmpfs("tmpfs", "size=4m").unwrap();
    assert_eq!(open(&tmpfs).unwrap().size_and_read_only().unwrap().0, 4 << 20);
    assert_eq!(open(&tmpfs).unwrap().mount().device.major, 0);
}

#[test]
fn a_path_that_is_no_mount_point_is_reported() {
    let sandbox = sandbox!();
    let dir = sandbox.dir("dir").unwrap();
    let mounted = sandbox.tmpfs("mounted", "size=1m").unwrap();
    fs::create_dir(mounted.join("inner")).unwrap();
    for path in [&dir, &mounted.join("inner")] {
        let error = open(path).unwrap_err();
        assert!(matches!(error, OpenError::NotMounted(_)), "{error}");
        assert_eq!(
            error.to_string(),
            format!("path \"{}\" is not a valid mount point", path.display())
        );
    }
    let link = sandbox.path().join("link");
    symlink(&mounted, &link).unwrap();
    assert!(matches!(open(&link), Err(OpenError::Failed(_))));
    let file = sandbox.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(open(&file), Err(OpenError::Failed(_))));
    let fifo = sandbox.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(open(&fifo), Err(OpenError::Failed(_))));
    assert!(matches!(open(&sandbox.path().join("none")), Err(OpenError::Failed(_))));
}

#[test]
fn a_link_on_the_way_is_followed() {
    let sandbox = sandbox!();
    sandbox.tmpfs("disks/a", "size=1m").unwrap();
    symlink(sandbox.path().join("disks"), sandbox.path().join("elsewhere")).unwrap();
    let root = open(&sandbox.path().join("elsewhere/a")).unwrap();
    assert_eq!(root.mount().point, sandbox.path().join("disks/a"));
}

#[test]
fn a_stale_table_vouches_for_nothing() {
    let sandbox = sandbox!();
    let path = sandbox.dir("disk").unwrap();
    let before = MountTable::read().unwrap();
    sandbox.tmpfs("disk", "size=1m").unwrap();
    assert!(matches!(FsRoot::open(&path, &before), Err(OpenError::NotMounted(_))));
    let lower = MountTable::read().unwrap();
    let root = FsRoot::open(&path, &lower).unwrap();
    // Mounted over: the old table's mount is no longer what the path leads to.
    sandbox.tmpfs("disk", "size=2m").unwrap();
    assert!(matches!(FsRoot::open(&path, &lower), Err(OpenError::NotMounted(_))));
    let upper = MountTable::read().unwrap();
    assert_eq!(
        root.size_and_read_only().unwrap().0,
        1 << 20,
        "the descriptor still means the lower one"
    );
    assert_eq!(FsRoot::open(&path, &upper).unwrap().size_and_read_only().unwrap().0, 2 << 20);
    umount(&sandbox, &path);
    drop(root);
    umount(&sandbox, &path);
    assert!(matches!(FsRoot::open(&path, &upper), Err(OpenError::NotMounted(_))));
}

/// Mount ids are given again. An old table may have the id of another filesystem at the same place.
#[test]
fn a_reused_mount_id_vouches_for_nothing() {
    let sandbox = sandbox!();
    let tmpfs = sandbox.tmpfs("disk", "size=1m").unwrap();
    let [upper, lower] = ["disk/upper", "disk/lower"].map(|name| sandbox.dir(name).unwrap());
    let overlay = sandbox.dir("overlay").unwrap();
    let options = format!("lowerdir={}:{}", upper.display(), lower.display());
    let flags = MsFlags::MS_RDONLY;
    nix::mount::mount(Some("overlay"), &overlay, Some("overlay"), flags, Some(&*options)).unwrap();
    let mut paths = vec![tmpfs, overlay];
    for fs_type in ["ext4", "btrfs"] {
        if let Some(device) = formatted(&sandbox, fs_type) {
            paths.push(sandbox.mount(device.path(), fs_type, fs_type).unwrap());
        }
    }
    for path in paths {
        let mount = open(&path).unwrap().mount().clone();
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let line = |device: &str, fs_type: &str| {
            let line = table.lines().find(|line| line.starts_with(&format!("{} ", mount.id)));
            let line = line.unwrap().replace(&format!(" {} ", mount.device), device);
            let line = line.replace(&format!(" - {} ", mount.fs_type), fs_type);
            FsRoot::open(&path, &MountTable::parse(line.as_bytes()))
        };
        let (device, fs_type) = (format!(" {} ", mount.device), format!(" - {} ", mount.fs_type));
        line(&device, &fs_type).unwrap();
        let stale = line(" 8:77 ", " - ext4 ");
        assert!(matches!(stale, Err(OpenError::NotMounted(_))), "{mount:?}");
        // Only btrfs has other numbers than its mounts.
        let other = line(" 0:9999 ", &fs_type);
        assert_eq!(other.is_ok(), mount.fs_type == "btrfs", "{mount:?}");
    }
}

#[test]
fn read_only_is_detected_whatever_its_cause() {
    let sandbox = sandbox!();
    let path = sandbox.tmpfs("disk", "size=1m").unwrap();
    let bound = sandbox.bind(&path, "bound").unwrap();
    let states = || {
        [&path, &bound].map(|path| {
            let root = open(path).unwrap();
            assert_eq!(root.mount().read_only, root.size_and_read_only().unwrap().1);
            root.size_and_read_only().unwrap().1
        })
    };
    assert_eq!(states(), [false, false]);
    remount(&bound, MsFlags::MS_BIND | MsFlags::MS_RDONLY);
    assert_eq!(states(), [false, true]);
    remount(&bound, MsFlags::MS_BIND);
    let root = open(&path).unwrap();
    remount(&path, MsFlags::MS_RDONLY);
    assert_eq!(states(), [true, true]);
    assert!(root.size_and_read_only().unwrap().1, "asked of the filesystem, not of the table");
}
