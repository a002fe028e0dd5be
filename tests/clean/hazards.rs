//! What tenants leave behind, one hazard after the other.

use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use local_volume_provisioner::wipe::error::WipeError;
use local_volume_provisioner::wipe::progress::Progress;
use local_volume_provisioner::wipe::tree;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, mknod};
use support::{LoopDevice, Sandbox, prepared_by, run_prepared, sandbox, skip};

use crate::volume::{
    assert_cleans, clean, clean_unaware, has, make_canary, mounted, on_each_filesystem,
    on_filesystems, run, snapshot,
};

#[test]
fn an_ordinary_tree_is_emptied_and_an_empty_one_left() {
    on_each_filesystem(|_, root| {
        make_canary(&root.join("a"));
        make_canary(&root.join("b/c/d"));
        fs::write(root.join("file"), vec![1; 1 << 20]).unwrap();
        for removed in [17, 0] {
            assert_eq!(clean(root).unwrap(), removed);
            assert!(root.is_dir(), "the mount point itself stays");
        }
    });
}

#[test]
fn immutable_and_append_only_flags_are_taken_off() {
    on_filesystems(&["ext4", "xfs", "btrfs"], |_, root| {
        for n in 0..1000 {
            File::create(root.join(format!("file-{n}"))).unwrap();
        }
        let few = [0, 250, 251, 500, 998];
        let mut flagged: Vec<_> = few.map(|n| ("+i", root.join(format!("file-{n}")))).into();
        for n in 0..60 {
            let dir = root.join(format!("{n}/below"));
            fs::create_dir_all(&dir).unwrap();
            for file in 0..30 {
                File::create(dir.join(file.to_string())).unwrap();
            }
            match n % 5 {
                0 => flagged.push(("+i", dir.join((n % 30).to_string()))),
                1 => flagged.push(("+i", dir)),
                2 => flagged.push(("+a", dir.join((n % 30).to_string()))),
                3 => flagged.push(("+a", dir)),
                _ => {}
            }
        }
        for (flag, path) in flagged {
            run("chattr", &[flag, path.to_str().unwrap()]);
        }
        assert_eq!(clean(root).unwrap(), 1000 + 60 * 32);
    });
}

#[test]
fn everything_that_is_no_directory_is_removed_unopened() {
    on_each_filesystem(|sandbox, root| {
        let outside = sandbox.dir("outside").unwrap();
        fs::write(outside.join("linked"), "stays").unwrap();
        let node = |name: &str, kind, device| {
            mknod(&root.join(name), kind, Mode::S_IRWXU, device).unwrap();
        };
        // Opening the FIFO would hang, since it has no writer.
        node("fifo", SFlag::S_IFIFO, 0);
        node("null", SFlag::S_IFCHR, nix::sys::stat::makedev(1, 3));
        node("disk", SFlag::S_IFBLK, nix::sys::stat::makedev(7, 0));
        node("whiteout", SFlag::S_IFCHR, 0);
        drop(UnixListener::bind(root.join("socket")).unwrap());
        fs::write(root.join("one"), "x").unwrap();
        fs::hard_link(root.join("one"), root.join("two")).unwrap();
        for (target, name) in [
            (outside.as_path(), "to-directory"),
            (&outside.join("linked"), "to-file"),
            (Path::new("nowhere"), "dangling"),
            (Path::new("loop"), "loop"),
            (Path::new(".."), "up"),
            (Path::new("/"), "lost+found-link"),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        let before = snapshot(&outside);
        assert_cleans(root);
        assert_eq!(snapshot(&outside), before);
        fs::remove_file(outside.join("linked")).unwrap();
    });
}

#[test]
fn lost_and_found_is_emptied_and_kept() {
    on_filesystems(&["ext4"], |_, root| {
        let lost = root.join("lost+found");
        assert!(lost.is_dir());
        fs::create_dir(lost.join("#12")).unwrap();
        fs::write(lost.join("#12/file"), "a tenant's").unwrap();
        fs::create_dir_all(root.join("deeper/lost+found")).unwrap();
        let opened = File::open(&lost).unwrap();
        let create = rustix::fs::XattrFlags::CREATE;
        rustix::fs::fsetxattr(&opened, "user.secret", b"a tenant's", create).unwrap();
        chown(&lost, Some(5), Some(6)).unwrap();
        fs::set_permissions(&lost, Permissions::from_mode(0o1777)).unwrap();
        run("chattr", &["+i", lost.to_str().unwrap()]);
        let opened = File::open(root).unwrap();
        let error = tree::check_empty(opened.as_fd()).unwrap_err();
        assert!(matches!(error, WipeError::NotEmpty(_)), "{error}");
        assert_cleans(root);
        assert_eq!(snapshot(root).into_keys().collect::<Vec<_>>(), ["lost+found"]);
        let read = rustix::fs::getxattr(&lost, "user.secret", &mut [0; 64][..]);
        assert_eq!(read, Err(rustix::io::Errno::NODATA));
        fs::write(lost.join("file"), "flags are off").unwrap();
        let found = fs::metadata(&lost).unwrap();
        let mode = found.permissions().mode() & 0o7777;
        assert_eq!((found.uid(), found.gid(), mode), (0, 0, 0o700));
    });
    on_filesystems(&["tmpfs", "xfs"], |_, root| {
        fs::create_dir(root.join("lost+found")).unwrap();
        assert_cleans(root);
        assert!(!root.join("lost+found").exists(), "it is the tenant's");
        symlink("/", root.join("lost+found")).unwrap();
        assert_cleans(root);
        assert!(root.join("lost+found").symlink_metadata().is_err(), "a link is no lost+found");
    });
}

/// A volume that is a part of the filesystem at `disk`, and what is mounted in it.
fn with_nested_mounts(sandbox: &Sandbox, disk: &Path) -> (PathBuf, Vec<PathBuf>) {
    let [inside, same, outside] =
        [disk.join("volume"), disk.join("same"), sandbox.path().join("outside")];
    make_canary(&same);
    if !outside.exists() {
        make_canary(&outside);
    }
    make_canary(&inside.join("a"));
    for name in ["tmpfs", "d/bound", "same"] {
        fs::create_dir_all(inside.join(name)).unwrap();
    }
    fs::write(inside.join("file"), "x").unwrap();
    let disk_name = disk.file_name().unwrap().to_str().unwrap();
    let root = sandbox.bind(&inside, &format!("root-{disk_name}")).unwrap();
    let none = None::<&str>;
    let tmpfs = root.join("tmpfs");
    mount(Some("t"), &tmpfs, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    make_canary(&tmpfs);
    for (source, target) in [
        (&outside, "d/bound"),
        (&outside.join("file"), "file"),
        // The same device number as the volume, which `rm --one-file-system` compares.
        (&same, "same"),
    ] {
        mount(Some(source), &root.join(target), none, MsFlags::MS_BIND, none).unwrap();
    }
    let nested = ["tmpfs", "d/bound", "file", "same"].map(|name| root.join(name)).into();
    (root, nested)
}

fn contents(path: &Path) -> Vec<u8> {
    if path.is_dir() { format!("{:?}", snapshot(path)).into() } else { fs::read(path).unwrap() }
}

#[test]
fn fault_5_the_kernel_stops_us_at_a_mount_that_came_later() {
    on_each_filesystem(|sandbox, disk| {
        let (root, nested) = with_nested_mounts(sandbox, disk);
        let before: Vec<_> = nested.iter().map(|path| contents(path)).collect();
        for umount in 0..nested.len() {
            let error = clean_unaware(&root).unwrap_err();
            let said = error.to_string();
            assert!(said.contains("is mounted inside the volume"), "{said}");
            for (path, before) in nested.iter().zip(&before).skip(umount) {
                assert!(contents(path) == *before, "{} was touched", path.display());
            }
            sandbox.umount(&nested[umount]).unwrap();
        }
        assert_cleans(&root);
        assert_eq!(snapshot(&sandbox.path().join("outside")).len(), 6);
        assert_eq!(snapshot(&disk.join("same")).len(), 6);
    });
}

#[test]
fn without_the_capability_a_flag_is_reported_and_the_rest_is_deleted() {
    if prepared_by().is_none() {
        // The flag is set by a process that has the capability.
        let sandbox = sandbox!("setpriv", "chattr", "mkfs.ext4");
        let (root, _device) = mounted(&sandbox, "ext4", 16 << 20).unwrap();
        fs::write(root.join("free"), "x").unwrap();
        fs::create_dir(root.join("dir")).unwrap();
        fs::write(root.join("dir/kept"), "x").unwrap();
        run("chattr", &["+i", root.join("dir/kept").to_str().unwrap()]);
        return run_prepared(&["setpriv", "--bounding-set", "-linux_immutable"]);
    }
    let root = Path::new("/mnt/volume-ext4");
    let error = clean(root).unwrap_err();
    for words in ["“dir/kept”", "CAP_LINUX_IMMUTABLE"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(snapshot(root).into_keys().collect::<Vec<_>>(), ["dir", "dir/kept", "lost+found"]);
}

/// The machine swaps to this file while this lives.
struct SwapOn(String);

impl SwapOn {
    fn new(path: String) -> Self {
        File::create(&path).unwrap();
        // btrfs swaps to no file that it would copy on each write; the others have no such flag.
        let _ = Command::new("chattr").args(["+C", &path]).output();
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        run("mkswap", &[&path]);
        run("swapon", &["--priority", "0", &path]);
        Self(path)
    }
}

impl Drop for SwapOn {
    fn drop(&mut self) {
        run("swapoff", &[&self.0]);
    }
}

#[test]
fn a_swap_file_in_use_is_named() {
    on_filesystems(&["ext4", "xfs", "btrfs"], |_, root| {
        if !has("mkswap") || !has("swapon") {
            return skip("no mkswap and swapon on this machine");
        }
        let swap = SwapOn::new(root.join("swap").to_str().unwrap().to_owned());
        fs::write(root.join("other"), "x").unwrap();
        let error = clean(root).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("“swap”") && said.contains("swapoff"), "{said}");
        assert!(!root.join("other").exists(), "what can be deleted is");
        drop(swap);
        assert_cleans(root);
    });
}

#[test]
fn a_read_only_filesystem_is_refused_with_nothing_deleted() {
    on_each_filesystem(|_, root| {
        make_canary(&root.join("a"));
        let before = snapshot(root);
        let none = None::<&str>;
        let remount = |flags| mount(none, root, none, MsFlags::MS_REMOUNT | flags, none).unwrap();
        remount(MsFlags::MS_RDONLY);
        let error = clean(root).unwrap_err();
        assert!(error.to_string().contains("is read-only, by"), "{error}");
        assert_eq!(snapshot(root), before);
        remount(MsFlags::empty());
        assert_cleans(root);
    });
}

#[test]
fn a_full_filesystem_can_be_emptied() {
    let sandbox = sandbox!();
    let sizes = [("tmpfs", 16 << 20), ("ext4", 16 << 20), ("xfs", 300 << 20), ("btrfs", 128 << 20)];
    for (fs_type, size) in sizes {
        let Some((root, _device)) = mounted(&sandbox, fs_type, size) else {
            continue;
        };
        let mut files = 0;
        // First large files, then small ones, so that there is no room for anything.
        for size in [64 << 20, 64 << 10, 1] {
            while fs::write(root.join(files.to_string()), vec![1; size]).is_ok() && files < 20_000 {
                files += 1;
            }
        }
        assert!(files > 0);
        assert_cleans(&root);
    }
}

#[test]
fn the_root_keeps_no_flags_and_attributes_of_the_tenant() {
    on_filesystems(&["ext4", "xfs", "btrfs"], |_, root| {
        let opened = File::open(root).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        for name in ["user.secret", "user.more"] {
            rustix::fs::fsetxattr(&opened, name, b"a tenant's", flags).unwrap();
        }
        rustix::fs::fsetxattr(&opened, "trusted.operator", b"kept", flags).unwrap();
        fs::write(root.join("file"), "x").unwrap();
        fs::set_permissions(root, Permissions::from_mode(0o2770)).unwrap();
        run("chattr", &["+i", root.to_str().unwrap()]);
        assert_cleans(root);
        let mut names = [0; 1024];
        let length = rustix::fs::flistxattr(&opened, &mut names[..]).unwrap();
        let names = String::from_utf8_lossy(&names[..length]).into_owned();
        assert!(!names.contains("user."), "{names:?}");
        assert!(names.contains("trusted.operator"), "{names:?}");
        assert_eq!(fs::metadata(root).unwrap().permissions().mode() & 0o7777, 0o2770);
        fs::write(root.join("file"), "the next tenant's").unwrap();
        // Empty from the beginning, and yet not as it was.
        fs::remove_file(root.join("file")).unwrap();
        run("chattr", &["+a", root.to_str().unwrap()]);
        assert_cleans(root);
        fs::write(root.join("file"), "x").unwrap();
        fs::remove_file(root.join("file")).unwrap();
    });
}

#[test]
fn a_mount_of_a_file_is_no_directory_to_clean() {
    let sandbox = sandbox!();
    let device = LoopDevice::new(sandbox.path(), 1 << 20).unwrap();
    let opened = File::open(device.path()).unwrap();
    let error = tree::empty(opened.as_fd(), &[], &Progress::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot open ."), "{error}");
}

/// A volume may be a directory of a filesystem, and a file in it have a name outside.
#[test]
fn a_file_that_has_a_name_outside_keeps_its_flags_there() {
    on_filesystems(&["ext4", "xfs", "btrfs"], |sandbox, disk| {
        let [inside, outside] = ["volume", "outside"].map(|name| disk.join(name));
        fs::create_dir(&inside).unwrap();
        fs::write(&outside, "kept").unwrap();
        for name in ["first", "second"] {
            fs::hard_link(&outside, inside.join(name)).unwrap();
        }
        run("chattr", &["+i", outside.to_str().unwrap()]);
        let name = format!("part-of-{}", disk.file_name().unwrap().to_str().unwrap());
        assert_cleans(&sandbox.bind(&inside, &name).unwrap());
        assert_eq!(fs::read(&outside).unwrap(), b"kept");
        let refused = fs::remove_file(&outside).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::EPERM as i32));
        run("chattr", &["-i", outside.to_str().unwrap()]);
    });
}
