use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use proptest::prelude::*;

use super::*;

/// A line like the kernel's, for a mount of `root` at `point`.
fn line(id: u64, parent: u64, root: &str, point: &str) -> String {
    format!("{id} {parent} 8:1 {root} {point} rw,relatime shared:1 - ext4 /dev/sda1 rw\n")
}

fn only(bytes: &[u8]) -> Mount {
    let table = MountTable::parse(bytes);
    assert_eq!(table.unparsed, [] as [String; 0]);
    assert_eq!(table.iter().count(), 1);
    table.iter().next().unwrap().clone()
}

#[test]
fn a_line_has_all_its_fields() {
    let mount = only(b"36 35 98:17 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root ro,errors=x\n");
    assert_eq!(
        mount,
        Mount {
            id: 36,
            parent: 35,
            device: DeviceNumber { major: 98, minor: 17 },
            root: "/mnt1".into(),
            point: "/mnt2".into(),
            fs_type: "ext3".into(),
            source: "/dev/root".into(),
            read_only: true,
            propagates: true,
            is_shared: false,
            layers: Vec::new(),
        }
    );
}

#[test]
fn layers_of_an_overlay_are_in_its_options() {
    for (options, layers) in [
        ("rw,lowerdir=/a,upperdir=/b,workdir=/c", &["/a", "/b", "/c"][..]),
        ("rw,lowerdir=/a:/b::/c", &["/a", "/b", "/c"]),
        (r"ro,lowerdir=/a\134:b:/c\040d", &["/a:b", "/c d"]),
        ("rw,lowerdir+=/a,lowerdir+=/b,datadir+=/c", &["/a", "/b", "/c"]),
        ("rw,lowerdir=1/fs:2/fs,xino=on,metacopy", &[]),
    ] {
        let line = |kind| format!("2 1 0:9 / /o rw - {kind} overlay {options}\n");
        let expected: Vec<_> = layers.iter().map(PathBuf::from).collect();
        assert_eq!(only(line("overlay").as_bytes()).layers, expected, "{options}");
        assert_eq!(only(line("ext4").as_bytes()).layers, [] as [PathBuf; 0]);
    }
}

#[test]
fn fault_17_any_byte_may_be_in_a_mount_path() {
    for (written, meant) in [
        (b"/a\\040b".as_slice(), b"/a b".as_slice()),
        (b"/a\\011b", b"/a\tb"),
        (b"/a\\012b", b"/a\nb"),
        (b"/a\\134b", b"/a\\b"),
        (b"/a\\134040b", b"/a\\040b"),
        (b"/a\\043b", b"/a#b"),
        ("/a\u{a0}b".as_bytes(), "/a\u{a0}b".as_bytes()),
        ("/a\u{2003}b\u{85}".as_bytes(), "/a\u{2003}b\u{85}".as_bytes()),
        (b"/a\xffb\x0b\x0c\r", b"/a\xffb\x0b\x0c\r"),
        (b"/x//deleted", b"/x//deleted"),
        (b"/not\\escape\\9", b"/not\\escape\\9"),
        (b"/high\\377\\400", b"/high\xff\\400"),
        (b"/-", b"/-"),
    ] {
        let text = [b"1 0 0:5 ", written, b" ", written, b" rw - tmpfs ", written, b" rw"].concat();
        let mount = only(&text);
        let meant = OsStr::from_bytes(meant);
        assert_eq!(mount.root.as_os_str(), meant);
        assert_eq!(mount.point.as_os_str(), meant);
        assert_eq!(mount.source, meant);
    }
}

#[test]
fn odd_but_legal_lines_parse() {
    let source = |text: &str| only(text.as_bytes()).source;
    // An empty source is printed as nothing at all.
    assert_eq!(source("1 0 0:5 / /a rw - tmpfs  rw"), "");
    assert_eq!(
        source("1 0 0:5 / /a rw shared:1 master:2 propagate_from:3 unbindable - t s rw"),
        "s"
    );
    assert_eq!(source("1 0 0:5 - /a rw - t - rw,opt=with blank"), "-");
    assert!(!only(b"1 0 0:5 / /a rw,errors=ro - t s rw,mode=ro1").read_only);
    assert!(only(b"1 0 0:5 / /a ro,nosuid - t s rw").read_only);
    assert!(only(b"1 0 0:5 / /a rw - ext4 s rw,emergency_ro").read_only);
}

#[test]
fn a_line_that_does_not_parse_hides_no_other() {
    let text = format!(
        "{}garbage \x01\n1 0 0:x / /b rw - t s rw\n7 1 0:5 / b rw - t s rw\n{}",
        line(1, 0, "/", "/"),
        line(2, 1, "/", "/c")
    );
    let table = MountTable::parse(text.as_bytes());
    assert!(table.at(Path::new("/c")).is_some());
    let unparsed = ["“garbage \\u{1}”", "“1 0 0:x / /b rw - t s rw”", "“7 1 0:5 / b rw - t s rw”"];
    assert_eq!(table.unparsed, unparsed);
}

fn id_at(table: &str, point: &str) -> Option<u64> {
    MountTable::parse(table.as_bytes()).at(Path::new(point)).map(|mount| mount.id)
}

#[test]
fn the_topmost_mount_counts_and_a_hidden_one_does_not() {
    let root = line(1, 0, "/", "/");
    for (what, lines, point, expected) in [
        ("plain", line(2, 1, "/", "/a"), "/a", Some(2)),
        ("not a mount point", line(2, 1, "/", "/a"), "/a/b", None),
        ("no mount at all", String::new(), "/a", None),
        ("the root", String::new(), "/", Some(1)),
        ("no prefix by bytes", line(2, 1, "/", "/ab"), "/a", None),
        ("trailing slash", line(2, 1, "/", "/a"), "/a/", Some(2)),
        ("needless parts", line(2, 1, "/", "/a"), "//./a/.", Some(2)),
        ("relative", line(2, 1, "/", "/a"), "a", None),
        ("twice on one mount", line(3, 1, "/", "/a") + &line(2, 1, "/", "/a"), "/a", Some(2)),
        ("stacked", line(2, 1, "/", "/a") + &line(3, 2, "/", "/a"), "/a", Some(3)),
        // Ids are reused, so their order means nothing.
        ("stacked, ids reused", line(9, 1, "/", "/a") + &line(3, 9, "/", "/a"), "/a", Some(3)),
        (
            "stacked, listed upside down",
            line(3, 2, "/", "/a") + &line(2, 1, "/", "/a"),
            "/a",
            Some(3),
        ),
        (
            "hidden by a later mount above",
            line(2, 1, "/", "/a/b") + &line(3, 1, "/", "/a"),
            "/a/b",
            None,
        ),
        ("on the mount above", line(3, 1, "/", "/a") + &line(2, 3, "/", "/a/b"), "/a/b", Some(2)),
        ("its own parent", line(2, 2, "/", "/a"), "/a", None),
    ] {
        assert_eq!(id_at(&(root.clone() + &lines), point), expected, "{what}");
    }
    assert_eq!(id_at(&line(7, 7, "/", "/"), "/"), Some(7), "a root that is its own parent");
    assert_eq!(id_at(&line(7, 3, "/", "/a"), "/a"), Some(7), "below a chroot that is no mount");
}

#[test]
fn what_is_mounted_inside_a_directory_is_found_by_whatever_path() {
    let at = |id: u64, parent: u64, device: &str, root: &str, point: &str| {
        format!("{id} {parent} {device} {root} {point} rw - ext4 x rw\n")
    };
    let table = MountTable::parse(
        [
            at(1, 0, "8:1", "/", "/"),
            at(2, 1, "8:1", "/data/vol", "/mnt/vol"),
            at(3, 1, "8:2", "/", "/data/vol/by-the-other-path"),
            at(4, 2, "8:2", "/sub", "/mnt/vol/sub"),
            at(5, 4, "8:1", "/x", "/mnt/vol/sub/deeper"),
            at(6, 2, "8:1", "/y", "/mnt/vol/of-the-same-filesystem"),
            at(7, 1, "8:2", "/", "/data/volume"),
            at(8, 2, "8:2", "/", "/mnt/vol"),
            at(9, 8, "8:2", "/", "/mnt/vol/in-what-hides-it"),
            at(10, 99, "8:1", "/", "/parent/unknown"),
        ]
        .concat()
        .as_bytes(),
    );
    let inside = |device: &str, dir: &str| {
        let device = DeviceNumber::parse(device).unwrap();
        let found = table.inside(device, Path::new(dir));
        found.map(|mount| mount.id).collect::<Vec<_>>()
    };
    assert_eq!(inside("8:1", "/data/vol"), [3, 4, 6]);
    assert_eq!(inside("8:1", "/data"), [3, 4, 6, 7, 8]);
    assert_eq!(inside("8:2", "/"), [5, 9], "on /sub and on /in-what-hides-it");
    assert_eq!(inside("8:2", "/sub"), [5]);
    assert_eq!(inside("8:3", "/"), [] as [u64; 0]);
}

/// The kernel's escaping, for the round trip.
fn escape(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => text.extend(format!("\\{byte:03o}").into_bytes()),
            other => text.push(*other),
        }
    }
    text
}

#[test]
fn mount_table_that_lacks_something_is_incomplete() {
    let complete = |text: &str| MountTable::parse(text.as_bytes()).complete();
    let (root, other) = (line(1, 0, "/", "/"), line(2, 1, "/", "/mnt"));
    assert_eq!(complete(&format!("{root}{other}")), Ok(()));
    let chroot = complete(&other).unwrap_err();
    assert!(chroot.contains("outside of the chroot"), "{chroot}");
    let strange = complete(&format!("{root}what is this\n")).unwrap_err();
    assert!(strange.ends_with("does not parse: “what is this”"), "{strange}");
}

proptest! {
    #[test]
    fn any_name_survives(name in proptest::collection::vec(1_u8..=255, 1..40)) {
        let escaped = escape(&name);
        let text = [b"1 0 0:5 / /", escaped.as_slice(), b" rw - tmpfs tmpfs rw\n"].concat();
        let mount = only(&text);
        prop_assert_eq!(mount.point.as_os_str().as_bytes(), [b"/".as_slice(), &name].concat());
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let table = MountTable::parse(&bytes);
        let _ = table.at(Path::new("/"));
    }

    #[test]
    fn no_parents_loop(parents in proptest::collection::vec(0_u64..6, 6)) {
        let text: String = (0_u64..).zip(&parents).map(|(id, parent)| line(id, *parent, "/", "/a")).collect();
        let table = MountTable::parse(text.as_bytes());
        let _ = table.at(Path::new("/a"));
    }
}

#[test]
fn changes_are_found_anywhere_in_long_tables() {
    let lines = (0..100).map(|id| line(id, 1, "/", &format!("/mnt/{id}")));
    let lines: Vec<_> = lines.collect();
    let table = lines.concat();
    let ids = |before: &str, now: &str| {
        let changes = changes(before.as_bytes(), now.as_bytes());
        let mut ids: Vec<_> = changes.iter().map(|it| it.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(&table, &table).len(), 0);
    assert_eq!(ids("", &table).len(), 100);
    for (at, line) in lines.iter().enumerate() {
        let id = at as u64;
        let less = table.replace(line, "");
        assert_eq!(ids(&table, &less), [id]);
        assert_eq!(ids(&less, &table), [id]);
        let other = table.replace(line, &line.replace("rw", "ro"));
        assert_eq!(ids(&table, &other), [id, id]);
    }
}
