use super::*;

const TABLE: &[u8] = b"\
    1 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
    2 1 8:16 / /here/fast/a rw - ext4 /dev/sdb rw\n\
    3 1 8:1 /data/b /here/fast/b rw - ext4 /dev/sda1 rw\n\
    4 1 8:16 /db /srv/db rw - ext4 /dev/sdb rw\n\
    5 1 0:99 / /nfs rw - nfs4 server:/ rw\n";

fn look_at(path: &Path) -> Seen {
    let device = |text, below: &[&str]| {
        let number = |text| DeviceNumber::parse(text).unwrap();
        let below = below.iter().map(|it| number(it));
        Seen::Device(number(text), below.collect())
    };
    match path.to_str().unwrap() {
        "/link" => Seen::Link("/mnt/fast/a".into()),
        "/deep/link" => Seen::Link("../link/db".into()),
        "/here/fast/alias" => Seen::Link("a".into()),
        "/here/fast/out" => Seen::Link("/data".into()),
        "/here/fast/disk" => Seen::Link("/dev/sdc".into()),
        "/loop" => Seen::Link("/loop".into()),
        "/dev/sdb" => device("8:16", &["8:16"]),
        "/dev/by-name" => Seen::Link("sdc".into()),
        "/dev/sdc" | "/elsewhere/sdc" => device("8:32", &["8:32"]),
        "/dev/sdc1" => device("8:33", &["8:33", "8:32"]),
        "/dev/sdd" => device("8:48", &["8:48"]),
        "/nfs/link" => panic!("a network filesystem was touched"),
        "/unseen" => Seen::Nothing,
        _ => Seen::Other,
    }
}

#[test]
fn path_is_followed_through_links_and_mounts() {
    use Relation::{Around, Inside, Same};
    let mounts = MountTable::parse(TABLE);
    let dir = ("/mnt/fast".parse().unwrap(), "/here/fast".parse().unwrap());
    let view = HostView {
        dirs: vec![dir],
        mounts: &mounts,
        look: &look_at,
    };
    let device = |text| DeviceNumber::parse(text).unwrap();
    let filesystem = |fs, root: &str| Footprint::Filesystem {
        devices: [device(fs)].into(),
        fs: device(fs),
        root: root.into(),
    };
    let a = ("/mnt/fast/a", filesystem("8:16", "/"));
    let b = ("/mnt/fast/b", filesystem("8:1", "/data/b"));
    let disk = Footprint::Device {
        number: device("8:32"),
        below: [device("8:32")].into(),
        wwid: None,
    };
    let disk = ("/mnt/fast/disk", disk);
    for (path, (entry, volume), expected) in [
        ("/mnt/fast/a", &a, Some(Same)),
        ("/mnt/fast/a/db", &a, Some(Inside)),
        ("/mnt/./fast/a", &a, Some(Same)),
        ("/mnt", &a, Some(Around)),
        ("/", &a, Some(Around)),
        ("/mnt/fast/ab", &a, None),
        ("/mnt/fast/b", &a, None),
        ("/unseen/x", &a, None),
        // By links.
        ("/link", &a, Some(Same)),
        ("/link/db", &a, Some(Inside)),
        ("/deep/link", &a, Some(Inside)),
        ("/mnt/fast/alias", &a, Some(Same)),
        ("/mnt/fast/alias", &b, None),
        ("/loop/x", &a, None),
        // By mounts.
        ("/srv/db/x", &a, Some(Inside)),
        ("/data/b/x", &b, Some(Inside)),
        ("/data", &b, Some(Around)),
        ("/mnt/fast/out/b", &b, Some(Same)),
        ("/data/c", &b, None),
        ("/nfs/link/a", &a, None),
        // By devices.
        ("/dev/sdb", &a, Some(Around)),
        ("/dev/sdd", &a, None),
        ("/dev/sdc", &disk, Some(Same)),
        ("/dev/by-name", &disk, Some(Same)),
        ("/elsewhere/sdc", &disk, Some(Same)),
        ("/dev/sdc1", &disk, Some(Inside)),
        ("/dev/sdd", &disk, None),
    ] {
        let found = view.relation(Path::new(path), Path::new(entry), volume);
        assert_eq!(found, expected, "{path} and {entry}");
    }
}

#[test]
fn hostpath_pv_owns_no_volume_below_its_path() {
    let entry = HostPath::from_api("/mnt/fast/a").unwrap();
    for (path, local, hostpath) in [
        ("/mnt/fast/a", true, true),
        ("/mnt/fast/a/b", true, true),
        ("/mnt/fast", true, false),
        ("/", true, false),
        ("/mnt/fast/b", false, false),
    ] {
        for (owns_below, expected) in [(true, local), (false, hostpath)] {
            let (pv, uid, path) = ("pv".into(), "uid".into(), path.into());
            let owner = PathOwner {
                pv,
                uid,
                path,
                owns_below,
            };
            let found = owners_by_text(std::slice::from_ref(&owner), &entry);
            assert_eq!(!found.is_empty(), expected, "{owner:?}");
        }
    }
}
