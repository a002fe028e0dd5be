//! Owner, mode, ACLs, project and inode of the root are restored.

use std::os::unix::fs::{PermissionsExt, chown};

use local_volume_provisioner::host::mark::{Inode, RootAttributes, check_usable};

use super::*;

#[test]
fn attributes_of_the_root_are_restored() {
    let sandbox = sandbox!();
    // Version 2: the owner, the user 1000, the group, the mask, and others.
    let acl = |user: u8| {
        let entries = [
            [1, 0, 7, 0, 255, 255, 255, 255],
            [2, 0, user, 0, 232, 3, 0, 0],
            [4, 0, 5, 0, 255, 255, 255, 255],
            [16, 0, 7, 0, 255, 255, 255, 255],
            [32, 0, 0, 0, 255, 255, 255, 255],
        ];
        [vec![2, 0, 0, 0], entries.concat()].concat()
    };
    for fs_type in ["ext4", "xfs"] {
        let Some((path, _device)) = mounted(&sandbox, fs_type, fs_type) else {
            continue;
        };
        let root = File::open(&path).unwrap();
        let set_acl = |name: &str, user| {
            fsetxattr(&root, name, &acl(user), XattrFlags::empty()).unwrap();
        };
        let project = |id: &str| {
            if fs_type == "xfs" {
                run("chattr", &["-p", id, path.to_str().unwrap()]);
            }
        };
        let read = || RootAttributes::read(root.as_fd()).unwrap();
        let inode = |xflags: u32, extent_size| {
            let inode = Inode {
                flags: IFlags::SYNC.bits(),
                // Synchronous, nodump; on XFS also nosymlinks and an extent size for new files.
                xflags: 0xa0 | if fs_type == "xfs" { xflags } else { 0 },
                extent_size: if fs_type == "xfs" { extent_size } else { 0 },
                ..Inode::default()
            };
            let inode = Some(Inode { flags: inode.flags | IFlags::NODUMP.bits(), ..inode });
            let failed = RootAttributes { inode, ..read() }.restore(root.as_fd());
            assert_eq!(failed, Vec::<String>::new(), "{fs_type}");
        };
        let plain = read();
        assert_eq!(plain.inode, Some(Inode::default()));
        chown(&path, Some(5), Some(6)).unwrap();
        set_acl("system.posix_acl_access", 6);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2770)).unwrap();
        project("7");
        inode(0, 0);
        let prepared = read();
        assert_eq!((prepared.uid, prepared.gid, prepared.mode), (5, 6, 0o2770));
        assert_eq!(prepared.project, if fs_type == "xfs" { 7 } else { 0 });
        chown(&path, Some(8), Some(9)).unwrap();
        for name in ["system.posix_acl_access", "system.posix_acl_default"] {
            set_acl(name, 7);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        project("9");
        inode(0x1400, 64 << 10);
        for wanted in [prepared, plain] {
            assert_ne!(read(), wanted);
            assert_eq!(wanted.restore(root.as_fd()), Vec::<String>::new());
            assert_eq!(read(), wanted, "{fs_type}");
        }
        // A tenant whose files are to count for no project.
        let inherits = || ioctl_getflags(&root).unwrap().bits() & 0x2000_0000 != 0;
        if fs_type == "xfs" {
            project("7");
            run("chattr", &["-P", path.to_str().unwrap()]);
            assert!(!inherits());
            assert_eq!(read().restore(root.as_fd()), Vec::<String>::new());
            assert!(inherits());
        }
    }
}

#[test]
fn root_in_which_no_file_can_be_made_is_reported() {
    let sandbox = sandbox!();
    let path = sandbox.tmpfs("disk", "size=1m").unwrap();
    let root = File::open(&path).unwrap();
    let is_usable = || check_usable(root.as_fd(), None);
    ioctl_setflags(&root, IFlags::IMMUTABLE).unwrap();
    let fault = is_usable().unwrap_err().to_string();
    ioctl_setflags(&root, IFlags::empty()).unwrap();
    assert!(fault.contains("no file can be made"), "{fault}");
    assert_eq!(is_usable(), Ok(()));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

#[test]
fn refused_attributes_of_the_root_are_reported() {
    let sandbox = sandbox!();
    let path = sandbox.tmpfs("disk", "size=1m").unwrap();
    let root = File::open(&path).unwrap();
    let same = RootAttributes::read(root.as_fd()).unwrap();
    let prepared = RootAttributes { uid: 5, ..same.clone() };
    ioctl_setflags(&root, IFlags::IMMUTABLE).unwrap();
    assert_eq!(same.restore(root.as_fd()), [""; 0], "nothing to do");
    let failed = prepared.restore(root.as_fd());
    ioctl_setflags(&root, IFlags::empty()).unwrap();
    assert!(failed[0].starts_with("owner: Operation not permitted"), "{failed:?}");
}
