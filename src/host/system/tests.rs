use super::*;

const TABLE: &[u8] = b"\
    1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
    2 1 0:5 / /dev rw - devtmpfs dev rw\n\
    3 1 0:6 / /proc rw - proc proc rw\n\
    4 1 8:2 / /boot/efi rw - vfat /dev/sda2 rw\n\
    5 1 8:3 / /var rw - ext4 /dev/sda3 rw\n\
    6 1 8:16 / /mnt/disks/a rw - ext4 /dev/sdb rw\n\
    7 1 8:1 / /mnt/root rw - ext4 /dev/sda1 rw\n\
    8 1 8:1 /usr/share /mnt/share rw - ext4 /dev/sda1 rw\n\
    9 1 8:2 / /mnt/efi rw - vfat /dev/sda2 rw\n\
    10 1 8:3 /volumes/b /mnt/disks/b rw - ext4 /dev/sda3 rw\n\
    11 1 8:3 /lib /mnt/lib rw - ext4 /dev/sda3 rw\n\
    12 1 0:6 / /mnt/proc rw - proc proc rw\n\
    13 1 8:1 /home/me /mnt/me rw - ext4 /dev/sda1 rw\n\
    14 1 8:1 /srv/c /mnt/disks/c rw - ext4 /dev/sda1 rw\n\
    15 5 8:3 /volumes/b /var/lib/kubelet/pods/1/volumes/l/b rw - ext4 /dev/sda3 rw\n\
    16 1 8:48 /swap /mnt/disks/s rw - ext4 /dev/sdd rw\n\
    17 1 8:3 /lib/etcd/member /mnt/etcd rw - ext4 /dev/sda3 rw\n\
    18 1 8:3 /lib/kubelet/pods/1/etc-hosts /mnt/pod rw - ext4 /dev/sda3 rw\n\
    19 1 8:64 / /usr/disks/d rw - ext4 /dev/sde rw\n";

/// What a container sees of a host that has `/` on sda1 and `/var` on sda3.
const CONTAINER: &[u8] = b"\
    1 0 0:90 / / rw - overlay overlay rw\n\
    2 1 0:6 / /proc rw - proc proc rw\n\
    3 1 0:5 / /dev rw - devtmpfs dev rw\n\
    4 1 8:3 /lib/kubelet/pods /var/lib/kubelet/pods ro - ext4 /dev/sda3 rw\n\
    5 1 8:3 /lib/kubelet/plugins /var/lib/kubelet/plugins ro - ext4 /dev/sda3 rw\n\
    6 1 8:1 /mnt/disks /disks rw - ext4 /dev/sda1 rw\n\
    7 1 8:3 /lib/kubelet/pods/1/etc-hosts /etc/hosts rw - ext4 /dev/sda3 rw\n\
    8 6 8:1 / /disks/root rw - ext4 /dev/sda1 rw\n\
    9 6 8:1 /etc /disks/etc rw - ext4 /dev/sda1 rw\n\
    10 6 8:1 /home /disks/home rw - ext4 /dev/sda1 rw\n\
    11 6 8:3 / /disks/var rw - ext4 /dev/sda3 rw\n\
    12 6 8:3 /lib/etcd /disks/etcd rw - ext4 /dev/sda3 rw\n\
    13 6 8:3 /lib/kubelet /disks/kubelet rw - ext4 /dev/sda3 rw\n\
    14 6 8:1 /home/me/a /disks/a rw - ext4 /dev/sda1 rw\n\
    15 6 8:1 /srv/b /disks/b rw - ext4 /dev/sda1 rw\n\
    16 6 8:16 / /disks/c rw - ext4 /dev/sdb rw\n\
    17 6 8:16 /etc /disks/d rw - ext4 /dev/sdb rw\n";

fn dir(rule: Rule, host: &str, here: Option<&str>) -> Dir {
    Dir { rule, host: host.into(), here: here.map(Into::into) }
}

fn all(rule: Rule, dirs: &[&str], here: bool) -> Vec<Dir> {
    let dirs = dirs.iter();
    dirs.map(|path| dir(rule, path, here.then_some(path))).collect()
}

#[track_caller]
fn assert_needed(
    dirs: &[Dir],
    shared: &[Dir],
    discovery: &str,
    table: &[u8],
    cases: &[(&str, &str)],
) {
    let table = MountTable::parse(table);
    let storage = SystemStorage::locate(dirs, shared, vec![discovery.into()], &table);
    for (point, why) in cases {
        let found = storage.needs(table.at(Path::new(point)).unwrap());
        assert_eq!(found.as_deref().unwrap_or_default(), *why, "{point}");
    }
}

#[test]
fn system_storage_is_recognised_wherever_it_is_mounted() {
    let program = "/home/me/work";
    let swap = "/mnt/disks/s/file";
    let dirs = [
        all(Rule::System, &["/boot", "/dev", "/proc", "/usr"], true),
        all(Rule::Private, &["/var/lib/etcd", "/var/lib/kubelet/pods"], true),
        all(Rule::Held, &["/", "/home", "/var", "/var/lib"], true),
        [program, swap].map(|path| dir(Rule::Held, path, Some(path))).into(),
    ]
    .concat();
    let cases = [
        ("/", "/boot is in it"),
        ("/dev", "it is a part of /dev"),
        ("/boot/efi", "it is a part of /boot"),
        ("/var", "/var/lib/etcd is in it"),
        ("/mnt/root", "/boot is in it"),
        ("/mnt/share", "it is a part of /usr"),
        ("/mnt/efi", "it is a part of /boot"),
        ("/mnt/lib", "/var/lib/etcd is in it"),
        ("/mnt/proc", "it is a part of /proc"),
        ("/mnt/me", "/home/me/work is in it"),
        ("/mnt/disks/s", "/mnt/disks/s/file is in it"),
        ("/mnt/etcd", "it is a part of /var/lib/etcd"),
        ("/mnt/pod", "it is a part of /var/lib/kubelet/pods"),
        ("/mnt/disks/a", ""),
        ("/mnt/disks/b", ""),
        ("/mnt/disks/c", ""),
        ("/usr/disks/d", ""),
    ];
    assert_needed(&dirs, &[], "/usr/disks", TABLE, &cases);
}

#[test]
fn system_storage_of_the_host_is_recognised_in_a_container() {
    let known = [("/mnt/disks", "/disks"), ("/var/lib/kubelet/pods", "/var/lib/kubelet/pods")];
    let shared = known.map(|(host, here)| dir(Rule::Held, host, Some(here)));
    let dirs = [
        all(Rule::System, &["/etc"], true),
        all(Rule::Private, &["/var/lib/etcd"], false),
        all(Rule::Held, &["/", "/home", "/var", "/var/lib/kubelet"], false),
    ]
    .concat();
    let cases = [
        ("/disks/root", "/etc is in it"),
        ("/disks/etc", "it is a part of /etc"),
        ("/disks/home", "/home is in it"),
        ("/disks/var", "/var/lib/etcd is in it"),
        ("/disks/etcd", "it is a part of /var/lib/etcd"),
        ("/disks/kubelet", "/var/lib/kubelet is in it"),
        ("/disks/a", ""),
        ("/disks/b", ""),
        ("/disks/c", ""),
        ("/disks/d", ""),
    ];
    assert_needed(&dirs, &shared, "/disks", CONTAINER, &cases);
}

#[test]
fn root_filesystem_of_this_machine_is_needed() {
    let table = MountTable::read().unwrap();
    let kubelet = KubeletDir::new("/var/lib/kubelet", None);
    let storage = SystemStorage::read(&kubelet, Vec::new(), &table).unwrap();
    let root = table.at(Path::new("/")).unwrap();
    assert!(storage.needs(root).is_some());
    let program = std::env::current_exe().unwrap();
    let mut needed = storage.needed.iter();
    let found = needed.any(|(dir, _)| dir.here.as_ref() == Some(&program));
    assert!(found, "{storage:?}");
}

#[test]
fn swap_devices_and_files_are_read() {
    let text = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
        /dev/sda2                               partition\t8388604\t\t0\t\t-2\n\
        /swap\\040file                           file\t\t1024\t\t0\t\t-3\n\
        /dev/a\\040b\\134c partition 1 0 -4\n";
    let expected = ["/dev/sda2", "/swap file", "/dev/a b\\c"];
    assert_eq!(parse_swaps(text), expected.map(PathBuf::from));
    assert!(parse_swaps(b"").is_empty());
}
