use std::fs;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use proptest::prelude::*;
use tempfile::TempDir;

use super::codec::Content;
use super::*;
use crate::host::identity::Identity;
use crate::host::mounts::MountTable;

mod listing;

fn mark(state: MarkState) -> Mark {
    Mark {
        cluster: "c".into(),
        pv_uid: "u".into(),
        token: "t".into(),
        state,
        identity_hash: "h".into(),
        class: "fast".into(),
        ..Mark::default()
    }
}

fn content(mark: Mark) -> Content {
    Content {
        mark,
        replaces: Vec::new(),
        identity: String::new(),
        entry: String::new(),
        directory: None,
    }
}

fn full() -> Content {
    let root = RootAttributes {
        uid: 1000,
        gid: 4_294_967_294,
        mode: 0o2770,
        acl: "0200".into(),
        default_acl: String::new(),
        project: 7,
        inode: None,
        unknown: Unknown::new(),
    };
    Content {
        mark: Mark {
            claim: Some("team/data".into()),
            header: Some("ab".into()),
            read_only: true,
            root: Some(root),
            written_at: Timestamp::new(1_800_000_000, 5).unwrap(),
            ..mark(MarkState::Used)
        },
        replaces: vec!["one".into(), "two".into()],
        identity: "v1:wwid=naa.5".into(),
        entry: "disk1".into(),
        directory: None,
    }
}

fn is_readable(bytes: &[u8]) -> bool {
    Record::read(bytes).content.is_some()
}

/// The text with its own checksum.
fn checked(text: &str) -> Vec<u8> {
    format!("{text}checksum={}\n", sha256(text.as_bytes())).into_bytes()
}

#[test]
fn marks_are_read_as_they_were_written() {
    for state in MarkState::ALL {
        for content in [content(mark(state)), full()] {
            let bytes = content.encode().unwrap();
            assert_eq!(bytes.len(), codec::PADDED_BYTES);
            assert!(bytes.starts_with(b"version=1\n"));
            let record = Record::read(&bytes);
            assert_eq!(record.content.as_ref(), Some(&content));
            assert_eq!(record.on_disk(), MarkOnDisk::Valid(content.mark));
        }
    }
}

proptest! {
    #[test]
    fn chosen_text_forges_no_field(class in any::<String>(), entry in any::<String>(), claim in "[a\n\"{},%c]*") {
        let mut content = full();
        content.mark.class = class;
        content.mark.claim = Some(claim);
        content.entry = entry;
        prop_assert_eq!(Record::read(&content.encode().unwrap()).content, Some(content));
    }
}

#[test]
fn damaged_marks_are_not_readable() {
    let bytes = full().encode().unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(!is_readable(&damaged), "byte {at}");
        assert!(!is_readable(&bytes[..at]), "{at} bytes");
    }
    let body = String::from_utf8(bytes).unwrap();
    let body = body.split("checksum").next().unwrap();
    assert!(is_readable(&checked(body)));
    for (from, to) in [
        ("version=1", "version=2"),
        (r#""state":"used""#, r#""state":"lent""#),
        (r#""token":"t","#, ""),
        (r#""uid":1000"#, r#""uid":"1000""#),
        (r#""project":7"#, r#""other":7"#),
    ] {
        assert!(body.contains(from), "{from}");
        assert!(!is_readable(&checked(&body.replace(from, to))), "{to}");
    }
    let MarkOnDisk::Unreadable { digest } = Record::read(b"").on_disk() else {
        panic!("an empty mark is readable");
    };
    assert_eq!(digest, "e3b0c44298fc1c14");
}

/// A later version writes them, and runs on this node again after a downgrade.
#[test]
fn unknown_keys_of_a_mark_are_kept() {
    let text = String::from_utf8(full().encode().unwrap()).unwrap();
    let mut body = text.split("checksum").next().unwrap().to_owned();
    let (in_mark, in_root) = (r#""cleanedBy":{"why":["quick"]}"#, r#""quota":64"#);
    for (from, key) in [(r#""token":"t","#, in_mark), (r#""project":7,"#, in_root)] {
        let from = from.trim_end_matches(',');
        assert!(body.contains(from), "{from}");
        body = body.replace(from, &format!("{from},{key}"));
    }
    body = body.replace(r#""entry":"disk1""#, r#""entry":"disk1","later":true"#);
    let MarkOnDisk::Valid(mut mark) = Record::read(&checked(&body)).on_disk() else {
        panic!("{body}");
    };
    mark.state = MarkState::Free;
    let written = String::from_utf8(content(mark).encode().unwrap()).unwrap();
    for key in [in_mark, in_root, r#""state":"free""#] {
        assert!(written.contains(key), "{key} of {written}");
    }
}

/// A state directory on disk.
struct Dir {
    at: TempDir,
    state: StateDir,
}

impl Dir {
    fn new() -> Self {
        let at = tempfile::tempdir().unwrap();
        let state = StateDir::open(at.path(), false, &MountTable::default()).unwrap();
        Self { at, state }
    }

    fn find(&self, volume: &MarkedVolume<'_>) -> MarkOnDisk {
        let fact = self.state.read_all().unwrap().find(volume).unwrap();
        assert_eq!(fact.place, Some(Place::StateDirectory));
        fact.on_disk
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.at.path()).unwrap();
        let paths = entries.map(|it| it.unwrap().path());
        paths.filter(|it| it.ends_with("new") || it.extension().is_some()).collect()
    }
}

fn identity(text: &str, weak: bool) -> Identity {
    Identity { text: text.into(), weak }
}

fn device<'a>(identity: &'a Identity, class: &'a str, entry: &'a str) -> MarkedVolume<'a> {
    MarkedVolume { root: None, identity, class, entry }
}

/// The first one's mark, as the second one finds it.
fn is_found(written: (&Identity, &str, &str), looked_for: (&Identity, &str, &str)) -> bool {
    let dir = Dir::new();
    let mut mark = mark(MarkState::Used);
    mark.class = written.1.into();
    let volume = device(written.0, written.1, written.2);
    dir.state.write(&volume, &mark).unwrap();
    dir.find(&device(looked_for.0, looked_for.1, looked_for.2)) != MarkOnDisk::Absent
}

#[test]
fn strong_identity_finds_its_mark_in_every_class_and_entry() {
    let [disk, other] = ["v1:wwid=naa.5", "v1:wwid=naa.6"].map(|it| identity(it, false));
    assert!(is_found((&disk, "fast", "a"), (&disk, "slow", "b")));
    assert!(!is_found((&disk, "fast", "a"), (&other, "fast", "a")));
    // A newer kernel reports the UUID of the partition.
    let [old, new] = ["v1:start=8,wwid=w", "v1:partuuid=p,start=8,wwid=w"];
    let [old, new] = [old, new].map(|it| identity(it, false));
    assert!(is_found((&new, "fast", "a"), (&old, "fast", "b")));
}

#[test]
fn weak_identity_finds_its_mark_by_class_and_entry_after_a_reboot() {
    let text = |boot, seq, size| format!("v1:boot={boot},link=/dev/sda,seq={seq},size={size}");
    let [then, now] = [text("x", 1, 9), text("y", 2, 9)].map(|it| identity(&it, true));
    let larger = identity(&text("y", 2, 10), true);
    assert!(is_found((&then, "fast", "a"), (&then, "fast", "a")));
    assert!(is_found((&then, "fast", "a"), (&now, "fast", "a")));
    assert!(!is_found((&then, "fast", "a"), (&now, "slow", "a")));
    assert!(!is_found((&then, "fast", "a"), (&now, "fast", "b")));
    assert!(!is_found((&then, "fast", "a"), (&then, "fast", "b")));
    assert!(!is_found((&then, "fast", "a"), (&larger, "fast", "a")));
    // Both write to one file.
    let dir = Dir::new();
    for identity in [&then, &now] {
        let volume = device(identity, "fast", "a");
        dir.state.write(&volume, &mark(MarkState::Used)).unwrap();
    }
    assert_eq!(dir.files().len(), 1);
}

#[test]
fn write_replaces_files_under_earlier_texts_of_the_identity() {
    let dir = Dir::new();
    let texts = ["v1:partuuid=p,start=8,wwid=w", "v1:start=8,wwid=w"];
    let [old, new] = texts.map(|it| identity(it, false));
    let old = device(&old, "fast", "a");
    dir.state.write(&old, &mark(MarkState::Used)).unwrap();
    let new = device(&new, "fast", "a");
    dir.state.write(&new, &mark(MarkState::Free)).unwrap();
    assert_eq!(dir.files().len(), 1);
    for volume in [old, new] {
        assert_eq!(dir.find(&volume), MarkOnDisk::Valid(mark(MarkState::Free)));
    }
}

#[test]
fn volumes_that_share_the_directory_have_marks_of_their_own() {
    let dir = Dir::new();
    let texts = ["v1:wwid=naa.5", "v1:wwid=naa.6"].map(|it| identity(it, false));
    let [one, other] = [&texts[0], &texts[1]].map(|it| device(it, "fast", "a"));
    dir.state.write(&one, &mark(MarkState::Used)).unwrap();
    dir.state.write(&other, &mark(MarkState::Free)).unwrap();
    assert_eq!(dir.find(&one), MarkOnDisk::Valid(mark(MarkState::Used)));
    assert_eq!(dir.find(&other), MarkOnDisk::Valid(mark(MarkState::Free)));
}

#[test]
fn leftover_of_a_crashed_write_is_ignored_and_replaced() {
    let dir = Dir::new();
    let leftover = dir.at.path().join("new");
    fs::write(&leftover, "version=1\ncluster").unwrap();
    let disk = identity("v1:wwid=naa.5", false);
    let volume = device(&disk, "fast", "a");
    assert_eq!(dir.find(&volume), MarkOnDisk::Absent);
    dir.state.write(&volume, &mark(MarkState::Free)).unwrap();
    assert_eq!(dir.find(&volume), MarkOnDisk::Valid(mark(MarkState::Free)));
    assert!(!leftover.exists());
}

#[test]
fn damaged_file_is_unreadable_until_it_is_replaced() {
    let dir = Dir::new();
    let disk = identity("v1:wwid=naa.5", false);
    let volume = device(&disk, "fast", "a");
    dir.state.write(&volume, &mark(MarkState::Free)).unwrap();
    let file = &dir.files()[0];
    let long = [fs::read(file).unwrap(), vec![b'\n'; 64 << 10]].concat();
    for damaged in [b"".as_slice(), b"version=1\n", &long] {
        fs::write(file, damaged).unwrap();
        let unreadable = matches!(dir.find(&volume), MarkOnDisk::Unreadable { .. });
        assert!(unreadable, "{} bytes", damaged.len());
    }
    dir.state.write(&volume, &mark(MarkState::Free)).unwrap();
    assert_eq!(dir.find(&volume), MarkOnDisk::Valid(mark(MarkState::Free)));
}

#[test]
fn device_without_state_directory_has_no_place() {
    let (none, disk) = (StateDir::default(), identity("v1:wwid=naa.5", false));
    let volume = device(&disk, "fast", "a");
    let fact = none.read_all().unwrap().find(&volume).unwrap();
    assert_eq!((fact.on_disk, fact.place), (MarkOnDisk::Absent, None));
    let error = none.write(&volume, &mark(MarkState::Used)).unwrap_err();
    assert!(error.to_string().contains("STATE_DIRECTORY"), "{error}");
}

#[test]
fn most_restrictive_record_counts() {
    let record = |mark| Record::read(&content(mark).encode().unwrap());
    let unreadable = Record::read(b"");
    let names = ["free", "pending", "offered", "used", "wiping"];
    let states = MarkState::ALL;
    assert_eq!(states.map(MarkState::as_str), names);
    for (less, more) in states.iter().zip(&states[1..]) {
        let mut newer = mark(*less);
        newer.written_at += SignedDuration::from_secs(9);
        assert!(record(newer).restriction() < record(mark(*more)).restriction());
    }
    for state in states {
        let mut newer = mark(state);
        newer.written_at += SignedDuration::from_secs(9);
        assert!(record(mark(state)).restriction() < record(newer.clone()).restriction());
        assert!(record(newer).restriction() < unreadable.restriction());
    }
}

/// An open directory that was removed reads as empty. Its marks are not gone by that.
#[test]
fn removed_directory_is_an_error_and_no_absence() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("state");
    let disk = identity("v1:wwid=naa.5", false);
    let volume = device(&disk, "fast", "a");
    let open = || StateDir::open(&path, false, &MountTable::default()).unwrap();
    let is_known = |state: &StateDir| state.read_all().is_ok();
    fs::create_dir(&path).unwrap();
    let state = open();
    state.write(&volume, &mark(MarkState::Used)).unwrap();
    assert!(is_known(&state) && is_known(&open()));
    for file in fs::read_dir(&path).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    fs::remove_dir(&path).unwrap();
    let removed = state.read_all().unwrap_err().to_string();
    assert!(removed.contains("was removed"), "{removed}");
    fs::create_dir(&path).unwrap();
    assert!(state.read_of(&volume).is_err());
    assert!(state.write(&volume, &mark(MarkState::Free)).is_err());
    let new = open();
    assert!(is_known(&new) && !is_known(&state));
    fs::write(path.join("id"), "of another directory").unwrap();
    assert!(!is_known(&new) && is_known(&open()));
}

#[test]
fn container_requires_a_mount_that_outlives_it() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().canonicalize().unwrap();
    let open = |root: &str, point: &Path, fs_type: &str| {
        let point = point.display();
        let table =
            format!("1 1 8:1 / / rw - ext4 a rw\n2 1 8:2 {root} {point} rw - {fs_type} b rw\n");
        StateDir::open(&path, true, &MountTable::parse(table.as_bytes()))
    };
    open("/var/lib/local-volume-provisioner", &path, "ext4").unwrap();
    let empty_dir = "/pods/u/volumes/kubernetes.io~empty-dir/state";
    for (root, point, fs_type) in [
        ("/", path.as_path(), "tmpfs"),
        (empty_dir, &path, "ext4"),
        ("/", &path.join("below"), "ext4"),
        ("/", path.parent().unwrap(), "ext4"),
    ] {
        let error = open(root, point, fs_type).unwrap_err();
        assert!(error.contains("hostPath"), "{error}");
    }
    StateDir::open(&path, false, &MountTable::default()).unwrap();
    for missing in [path.join("none"), "/dev/null".into()] {
        StateDir::open(&missing, false, &MountTable::default()).unwrap_err();
    }
}
