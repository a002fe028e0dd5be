use super::*;

const HOST: &str = "\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:16 / /mnt/disks/whole rw - ext4 /dev/sdb rw
22 20 8:1 /data/one /mnt/disks/one rw - ext4 /dev/sda1 rw
23 20 0:50 / /mnt/nfs rw - nfs4 server:/ rw
";
/// A container in which the directory is mounted as `/data`, and something inside that.
const CONTAINER: &str = "\
40 39 0:60 / / rw - overlay overlay rw
41 40 8:1 /data/one /data rw - ext4 /dev/sda1 rw
42 41 0:61 / /data/sub rw - tmpfs tmpfs rw
43 40 8:1 /data /all rw - ext4 /dev/sda1 rw
44 43 0:62 / /all/one/other rw - tmpfs tmpfs rw
45 43 0:63 / /all/two rw - tmpfs tmpfs rw
";

fn table(text: &str) -> MountTable {
    MountTable::parse(text.as_bytes())
}

fn number(text: &str) -> DeviceNumber {
    DeviceNumber::parse(text).unwrap()
}

/// The volume that is mounted at a path of the host.
fn volume(point: &str) -> Storage {
    let mount = table(HOST).at(Path::new(point)).unwrap().clone();
    let st_dev = mount.device;
    Storage::Filesystem { mount, st_dev }
}

fn mount_of(storage: &Storage) -> &Mount {
    match storage {
        Storage::Filesystem { mount, .. } => mount,
        Storage::Device(_) => unreachable!(),
    }
}

#[test]
fn what_another_namespace_has_mounted_inside_is_told_by_the_place_in_the_filesystem() {
    let (one, whole) = (volume("/mnt/disks/one"), volume("/mnt/disks/whole"));
    let nested = |storage: &Storage, root: &str| {
        SeenMounts::default().add(&table(CONTAINER), Path::new(root), mount_of(storage))
    };
    assert_eq!(
        nested(&one, "/"),
        ["/data/sub", "/all/one/other"].map(Path::new)
    );
    // A process in a root directory of its own, where points are shorter than they are.
    assert_eq!(
        nested(&one, "/chroot"),
        ["/chroot/data/sub", "/chroot/all/one/other"].map(Path::new)
    );
    assert_eq!(nested(&whole, "/"), [] as [PathBuf; 0]);
    let mut mounts = SeenMounts::default();
    assert_eq!(
        mounts
            .add(&table(CONTAINER), Path::new("/"), mount_of(&one))
            .len(),
        2
    );
    let again = mounts.add(&table(CONTAINER), Path::new("/chroot"), mount_of(&one));
    assert_eq!(again, [] as [PathBuf; 0], "told once");
    // The volume's own mount lies on a directory of the host's filesystem, and not inside itself.
    let host = SeenMounts::default().add(&table(HOST), Path::new("/"), mount_of(&one));
    assert_eq!(host, [] as [PathBuf; 0]);
}

#[test]
fn an_open_file_is_told_by_the_place_in_the_filesystem() {
    let one = volume("/mnt/disks/one");
    let mut mounts = SeenMounts::default();
    mounts.add(&table(HOST), Path::new("/"), mount_of(&one));
    mounts.add(&table(CONTAINER), Path::new("/"), mount_of(&one));
    for (path, mount, is_open) in [
        ("/mnt/disks/one/file", 22, true),
        ("/mnt/disks/one/file (deleted)", 22, true),
        ("/mnt/disks/one", 22, true),
        ("/data/one/file", 20, true),
        ("/data/one-and-a-half", 20, false),
        ("/data", 20, false),
        ("/data/file", 41, true),
        ("/data/sub/file", 42, false),
        ("/all/one/file", 43, true),
        ("/all/two/file", 43, false),
        ("/mnt/disks/whole/data/one", 21, false),
        ("/mnt/nfs/data/one", 23, false),
    ] {
        let file = OpenFile {
            mount: Some(mount),
            st_dev: number("8:1"),
            device: None,
        };
        let found = mounts.is_open(Path::new(path), &file, &one);
        assert_eq!(found, is_open, "{path} through {mount}");
    }
    // No longer mounted anywhere.
    for (on, is_open) in [("8:1", true), ("8:16", false)] {
        for mount in [Some(99), None] {
            let st_dev = number(on);
            let device = None;
            let file = OpenFile {
                mount,
                st_dev,
                device,
            };
            assert_eq!(mounts.is_open(Path::new("/file"), &file, &one), is_open);
        }
    }
}

#[test]
fn an_open_device_is_told_by_its_number_whatever_its_path() {
    let disk = Storage::Device(["8:16", "8:17"].map(number).into());
    for (device, is_open) in [
        (Some("8:16"), true),
        (Some("8:17"), true),
        (Some("8:32"), false),
        // A file on the disk is no device.
        (None, false),
    ] {
        let file = OpenFile {
            mount: Some(20),
            st_dev: number("8:16"),
            device: device.map(number),
        };
        let found = SeenMounts::default().is_open(Path::new("/dev/xvda"), &file, &disk);
        assert_eq!(found, is_open, "{device:?}");
    }
}

#[test]
fn a_descriptor_says_what_it_leads_to() {
    let look = |path: &str| {
        let mask = StatxFlags::TYPE | StatxFlags::MNT_ID;
        OpenFile::from(&statx(CWD, path, AtFlags::STATX_DONT_SYNC, mask).unwrap())
    };
    let null = look("/dev/null");
    assert_eq!(null.device, None, "a character device");
    let proc = look("/proc/self");
    let table = MountTable::read().unwrap();
    let mount = table.at(Path::new("/proc")).unwrap();
    assert_eq!(proc.st_dev, mount.device);
    assert!(proc.mount.is_none_or(|id| id == mount.id));
}

#[test]
fn a_loop_device_is_told_by_the_filesystem_of_its_file_and_where_need_be_by_the_path() {
    let mounts = table(HOST);
    let found = |point: &str, file: &str, lies_on: Option<&str>| {
        let storage = volume(point);
        let it = Loop {
            name: "loop0".into(),
            file: file.into(),
            lies_on: lies_on.map(number),
        };
        is_loop_in(&it, mount_of(&storage), &mounts)
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
fn users_are_named_for_people_and_no_name_fools_a_log() {
    let process = Process {
        pid: 12,
        command: "a\nb".into(),
    };
    let user = User::Process {
        process,
        path: "/x\u{1b}[2J".into(),
        how: "open",
    };
    assert_eq!(
        user.to_string(),
        r#"process 12 ("a\nb") has "/x\u{1b}[2J" open"#
    );
}
