use std::os::unix::fs::symlink;

use super::Relation::{Around, Inside, Same};
use super::*;
use crate::host::mounts::MountTable;

fn number(text: &str) -> DeviceNumber {
    DeviceNumber::parse(text).unwrap()
}

fn filesystem(fs: &str, root: &str) -> Footprint {
    Footprint::Filesystem { devices: [number(fs)].into(), fs: number(fs), root: root.into() }
}

fn device(number: DeviceNumber, below: &[DeviceNumber]) -> Footprint {
    Footprint::Device { number, below: below.iter().copied().collect(), wwid: None }
}

/// The class has `/mnt/disks` of the host at another path here. Its first volume is a filesystem of its own, the second
/// a directory of the root filesystem. The third entry is a link to a filesystem inside another directory.
#[test]
fn path_is_followed_by_text_links_and_mounts() {
    let sandbox = tempfile::tempdir().unwrap();
    let top = sandbox.path().canonicalize().unwrap();
    let disks = top.join("disks");
    for dir in
        ["disks/bound", "disks/own/link-inside", "elsewhere", "data/bound/part", "pool/sub", "nfs"]
    {
        fs::create_dir_all(top.join(dir)).unwrap();
    }
    symlink("/mnt/disks/own", disks.join("absolute")).unwrap();
    symlink("own/link-inside", disks.join("relative")).unwrap();
    symlink(top.join("data"), disks.join("out")).unwrap();
    symlink(top.join("pool/sub"), disks.join("pool")).unwrap();
    symlink("loop", disks.join("loop")).unwrap();
    symlink("../data/bound", top.join("elsewhere/link")).unwrap();
    // Not to be followed.
    symlink(top.join("data/bound"), disks.join("own/link")).unwrap();
    symlink("/mnt/disks/own", top.join("nfs/link")).unwrap();
    let table = format!(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
         2 1 8:1 /mnt/disks {disks} rw - ext4 /dev/sda1 rw\n\
         3 2 8:1 {top}/data/bound {disks}/bound rw - ext4 /dev/sda1 rw\n\
         4 2 8:16 / {disks}/own rw - xfs /dev/sdb rw\n\
         5 1 8:16 /db {top}/srv/db rw - xfs /dev/sdb rw\n\
         6 1 8:48 / {top}/pool/sub rw - xfs /dev/sdd rw\n\
         7 1 0:99 / {top}/nfs rw - nfs4 server:/ rw\n",
        top = top.display(),
        disks = disks.display(),
    );
    let machine = Machine { mounts: MountTable::parse(table.as_bytes()), ..Machine::default() };
    let shared = [Dir::discovery("/mnt/disks", disks)];
    let in_top = |path: &str| top.join(path).to_str().unwrap().to_owned();
    let volumes = [
        ("/mnt/disks/own", filesystem("8:16", "/")),
        ("/mnt/disks/bound", filesystem("8:1", &in_top("data/bound"))),
        ("/mnt/disks/pool", filesystem("8:48", "/")),
    ];
    for (path, expected) in [
        ("/", [Some(Around); 3]),
        ("/mnt", [Some(Around); 3]),
        ("/mnt/disks", [Some(Around); 3]),
        ("/mnt/disks/own", [Some(Same), None, None]),
        ("/mnt/disks/own/", [Some(Same), None, None]),
        ("/mnt/./disks/own", [Some(Same), None, None]),
        ("/mnt/disks/own/dir", [Some(Inside), None, None]),
        ("/mnt/disks/own/link", [Some(Inside), None, None]),
        ("/mnt/disks/own2", [None; 3]),
        ("/mnt/disks/absolute", [Some(Same), None, None]),
        ("/mnt/disks/absolute/dir", [Some(Inside), None, None]),
        ("/mnt/disks/relative", [Some(Inside), None, None]),
        ("/mnt/disks/loop", [None; 3]),
        ("/mnt/disks/loop/dir", [None; 3]),
        ("/mnt/disks/bound", [None, Some(Same), None]),
        ("/mnt/disks/out", [None, Some(Around), None]),
        ("/mnt/disks/out/bound", [None, Some(Same), None]),
        (&in_top("disks"), [None; 3]),
        (&in_top("disks/own"), [Some(Same), None, None]),
        (&in_top("data"), [None, Some(Around), None]),
        (&in_top("data/other"), [None; 3]),
        (&in_top("data/bound/part"), [None, Some(Inside), None]),
        (&in_top("elsewhere/link"), [None, Some(Same), None]),
        (&in_top("elsewhere/link/part"), [None, Some(Inside), None]),
        (&in_top("srv/db/dir"), [Some(Inside), None, None]),
        (&in_top("pool"), [None, None, Some(Around)]),
        (&in_top("nfs/link"), [None; 3]),
        ("/not/visible/here", [None; 3]),
    ] {
        let may_touch = |mount: &Mount| mount.fs_type == "ext4";
        let paths = volumes.iter().map(|(entry, _)| *entry).chain([path]);
        let paths = HostPaths::follow(paths.map(PathBuf::from), &shared, &machine, may_touch);
        let found = volumes.each_ref();
        let found =
            found.map(|(entry, volume)| paths.relation(path.as_ref(), entry.as_ref(), volume));
        assert_eq!(found, expected, "{path}: {paths:?}");
    }
}

#[test]
fn device_is_compared_by_number() {
    let [whole, part, other] = ["8:32", "8:33", "8:16"].map(number);
    let volumes = [device(whole, &[whole]), device(part, &[part, whole]), filesystem("8:16", "/")];
    for (leads_to, below, expected) in [
        (whole, vec![whole], [Some(Same), Some(Around), None]),
        (part, vec![part, whole], [Some(Inside), Some(Same), None]),
        (other, vec![other], [None, None, Some(Around)]),
        // The kernel did not say on which ones it lies.
        (part, vec![], [None, Some(Same), None]),
        (number("8:48"), vec![], [None; 3]),
    ] {
        let target = Target {
            real: "/dev/node".into(),
            device: Some((leads_to, below.into_iter().collect())),
            ..Target::default()
        };
        let paths = HostPaths([("/link".into(), target)].into());
        let found = volumes.each_ref();
        let found = found.map(|it| paths.relation("/link".as_ref(), "/mnt/a".as_ref(), it));
        assert_eq!(found, expected, "{leads_to}");
    }
}

#[test]
fn link_to_a_device_node_leads_to_its_device() {
    let sandbox = tempfile::tempdir().unwrap();
    let Some((node, facts)) = fs::read_dir("/dev").unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        let facts = fs::symlink_metadata(&path).unwrap();
        facts.file_type().is_block_device().then_some((path, facts))
    }) else {
        return;
    };
    let link = sandbox.path().join("link");
    symlink(&node, &link).unwrap();
    let machine = Machine { mounts: MountTable::read().unwrap(), ..Machine::default() };
    let paths = [node, link, "/dev".into()];
    let followed = HostPaths::follow(paths.clone(), &[], &machine, |_| true);
    let [volume, other] = [0, 1_000_000].map(|more| {
        let number = DeviceNumber::from_rdev(facts.rdev() + more);
        device(number, &[number])
    });
    let entry = Path::new("/mnt/disks/raw");
    let found = paths.map(|path| [&volume, &other].map(|it| followed.relation(&path, entry, it)));
    assert_eq!(found[..2], [[Some(Same), None]; 2], "{followed:?}");
    assert_eq!(found[2], [None; 2], "{followed:?}");
}
