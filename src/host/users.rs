//! The loop devices over files in a filesystem volume, which the kernel does not list as users.

use std::io;
use std::path::Path;

use super::filesystem::may_lie_on;
use super::mounts::{Mount, MountTable};
use super::sysfs::{Loop, Sysfs};

/// The first of the loop devices for a message; `None` if there are none.
#[must_use]
pub fn in_words(loops: &[Loop]) -> Option<String> {
    let Loop { name, file, .. } = loops.first()?;
    // A tenant chooses the path: `Debug` quotes and escapes it.
    let file = file.to_string_lossy();
    Some(format!("{name} is a loop device over {file:?} in it"))
}

/// The loop devices over files in a filesystem volume. [`Sysfs::loops_over`] lists those over a device.
///
/// The driver reports the file's filesystem, not its directory. If the volume is a directory of a filesystem, the
/// path decides. That misses a file whose path is from another mount namespace.
///
/// # Errors
/// When `/sys` is not there.
pub fn loops_in(volume: &Mount, mounts: &MountTable, sysfs: &Sysfs) -> io::Result<Vec<Loop>> {
    let mut loops = sysfs.loops()?.to_vec();
    loops.retain(|it| is_loop_in(it, volume, mounts));
    Ok(loops)
}

fn is_loop_in(it: &Loop, volume: &Mount, mounts: &MountTable) -> bool {
    if it.lies_on().is_some_and(|on| !may_lie_on(volume, on)) {
        return false;
    }
    if it.lies_on() == Some(volume.device) && volume.root == Path::new("/") {
        return true;
    }
    let through = mounts.holding(&it.file);
    let path = through.filter(|mount| mount.device == volume.device);
    let path = path.and_then(|mount| mount.path_in_fs(&it.file));
    path.is_some_and(|path| path.starts_with(&volume.root))
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::makedev;

    use super::*;
    use crate::host::ioctl::LoopBacking;
    use crate::host::mounts::DeviceNumber;

    const HOST: &str = "\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:16 / /mnt/disks/whole rw - ext4 /dev/sdb rw
22 20 8:1 /data/one /mnt/disks/one rw - ext4 /dev/sda1 rw
";

    #[test]
    fn loop_device_is_found_by_filesystem_and_path_of_its_file() {
        let mounts = MountTable::parse(HOST.as_bytes());
        let found = |point: &str, file: &str, lies_on: Option<&str>| {
            let on = lies_on.and_then(DeviceNumber::parse);
            let it = Loop {
                name: "loop0".into(),
                file: file.into(),
                backing: on.map(|on| LoopBacking {
                    dev: makedev(on.major.into(), on.minor.into()),
                    inode: 7,
                    rdev: 0,
                }),
                over: None,
            };
            is_loop_in(&it, mounts.at(Path::new(point)).unwrap(), &mounts)
        };
        let whole = "/mnt/disks/whole";
        assert!(found(whole, "/a/container/says/image", Some("8:16")));
        assert!(!found(whole, "/mnt/disks/whole/image", Some("8:1")));
        assert!(found(whole, "/mnt/disks/whole/image", None));
        assert!(!found(whole, "/mnt/disks/image", None));
        let one = "/mnt/disks/one";
        assert!(found(one, "/mnt/disks/one/image", Some("8:1")));
        assert!(found(one, "/data/one/image (deleted)", Some("8:1")));
        assert!(!found(one, "/data/two/image", Some("8:1")));
        assert!(!found(one, "/data/one/image", Some("8:16")));
    }

    #[test]
    fn paths_in_messages_are_escaped() {
        let it = Loop {
            name: "loop0".into(),
            file: "/x\u{1b}[2J".into(),
            backing: None,
            over: None,
        };
        let words = in_words(&[it]).unwrap();
        assert_eq!(words, r#"loop0 is a loop device over "/x\u{1b}[2J" in it"#);
        assert_eq!(in_words(&[]), None);
    }
}
