use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use local_volume_provisioner::host::access::Access;
use local_volume_provisioner::host::device::Device;
use local_volume_provisioner::host::filesystem::FsRoot;
use local_volume_provisioner::host::identity::{self, Identity};
use local_volume_provisioner::host::mark::{
    Mark, MarkOnDisk, MarkState, MarkedVolume, Place, StateDir, header_hash, is_distinctive,
};
use local_volume_provisioner::host::mounts::MountTable;
use local_volume_provisioner::host::sysfs::Sysfs;
use nix::mount::MsFlags;
use rustix::fs::{IFlags, XattrFlags, fgetxattr, fsetxattr, ioctl_getflags, ioctl_setflags};
use support::{LoopDevice, Sandbox, run, sandbox, sandbox_with, slow};

use crate::volumes::{formatted, open, remount};

mod replay;
mod root;

const DOCS: &str = include_str!("../../docs/marks.md");

const ATTRIBUTE: &str = "security.local-volume";

fn mark(state: MarkState) -> Mark {
    Mark {
        cluster: "cluster".into(),
        pv_uid: "uid".into(),
        token: "token".into(),
        state,
        identity_hash: "hash".into(),
        class: "fast".into(),
        written_at: Timestamp::now(),
        ..Mark::default()
    }
}

/// A volume of any kind, with a state directory.
struct Volume {
    opened: Opened,
    identity: Identity,
    state: StateDir,
    state_path: PathBuf,
}

enum Opened {
    Root(FsRoot),
    Device(Device),
}

impl Volume {
    fn new(opened: Opened, path: &Path, state_path: PathBuf) -> Self {
        let sysfs = Sysfs::default();
        let identity = match &opened {
            Opened::Root(root) => identity::of_filesystem(root, &sysfs),
            Opened::Device(device) => identity::of_device(device, path, &sysfs),
        };
        fs::create_dir_all(&state_path).unwrap();
        Self {
            opened,
            identity: identity.unwrap(),
            state: StateDir::open(&state_path, false, &MountTable::default()).unwrap(),
            state_path,
        }
    }

    fn root(sandbox: &Sandbox, path: &Path) -> Self {
        let state = sandbox.path().join("state");
        Self::new(Opened::Root(open(path).unwrap()), path, state)
    }

    fn device(sandbox: &Sandbox, path: &Path) -> Self {
        let device = Device::open(path, Access::Probe).unwrap();
        Self::new(Opened::Device(device), path, sandbox.path().join("state"))
    }

    fn marked(&self) -> MarkedVolume<'_> {
        MarkedVolume {
            root: match &self.opened {
                Opened::Root(root) => Some(root.as_fd()),
                Opened::Device(_) => None,
            },
            identity: &self.identity,
            class: "fast",
            entry: "disk",
        }
    }

    fn find(&self) -> MarkOnDisk {
        let marks = self.state.read_all().unwrap();
        marks.find(&self.marked()).unwrap().on_disk
    }

    /// Where a write is expected to go.
    fn place(&self) -> Option<Place> {
        let marks = self.state.read_all().unwrap();
        marks.find(&self.marked()).unwrap().place
    }

    /// Writes a mark and finds it. Returns where it is.
    fn write(&self, state: MarkState) -> Place {
        let mark = mark(state);
        let place = self.state.write(&self.marked(), &mark).unwrap();
        assert_eq!(self.find(), MarkOnDisk::Valid(mark));
        let files = self.files().len();
        assert_eq!(files, usize::from(place == Place::StateDirectory));
        place
    }

    /// The files of the state directory.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(&self.state_path).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let marks = paths.filter(|it| it.extension().is_some());
        marks.map(|it| (it.clone(), fs::read(it).unwrap())).collect()
    }

    fn attribute(&self) -> Vec<u8> {
        let mut value = vec![0; 4096];
        let root = self.marked().root.unwrap();
        let length = fgetxattr(root, ATTRIBUTE, &mut value[..]).unwrap();
        value.truncate(length);
        value
    }

    fn set_attribute(&self, value: &[u8]) {
        let root = self.marked().root.unwrap();
        fsetxattr(root, ATTRIBUTE, value, XattrFlags::empty()).unwrap();
    }

    fn set_flags(&self, flags: IFlags) {
        ioctl_setflags(self.marked().root.unwrap(), flags).unwrap();
    }
}

/// Fills a filesystem with data and with files, until it has no space for an attribute either.
fn fill(root: &Path) {
    for size in [1 << 20, 1 << 12, 1] {
        let chunk = vec![1; size];
        let mut file = File::create(root.join(format!("of {size}"))).unwrap();
        while std::io::Write::write_all(&mut file, &chunk).is_ok() {}
    }
    let names = (0..100_000).map(|n| root.join(format!("{n:0200}")));
    for name in names {
        if File::create(name).is_err() {
            break;
        }
    }
    nix::unistd::sync();
}

/// A filesystem of its own.
fn mounted(sandbox: &Sandbox, fs_type: &str, name: &str) -> Option<(PathBuf, LoopDevice)> {
    let device = formatted(sandbox, fs_type)?;
    let path = sandbox.mount(device.path(), fs_type, name).unwrap();
    Some((path, device))
}

/// What is marked where: the rows of the table in the documentation.
#[test]
fn marks_are_where_the_documentation_says() {
    let sandbox = sandbox!();
    let mut rows = Vec::new();
    let mut check = |what: &str, volume: &Volume, expected: Place| {
        for state in [MarkState::Offered, MarkState::Used] {
            assert_eq!(volume.write(state), expected, "{what}");
        }
        for (path, _) in volume.files() {
            fs::remove_file(path).unwrap();
        }
        rows.push((what.to_owned(), expected));
    };
    let root = |path: &Path| Volume::root(&sandbox, path);
    let tmpfs = sandbox.tmpfs("tmpfs", "size=4m").unwrap();
    check("tmpfs", &root(&tmpfs), Place::Attribute);
    let mut devices = Vec::new();
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let Some((path, device)) = mounted(&sandbox, fs_type, fs_type) else {
            return;
        };
        check(fs_type, &root(&path), Place::Attribute);
        fs::create_dir(path.join("dir")).unwrap();
        let bound = sandbox.bind(&path.join("dir"), &format!("{fs_type}-bound"));
        let what = "a directory that is bind-mounted";
        check(what, &root(&bound.unwrap()), Place::Attribute);
        let immutable = root(&path);
        immutable.set_flags(IFlags::IMMUTABLE);
        assert_eq!(immutable.place(), Some(Place::StateDirectory));
        let what = "a root with `chattr +i` or `+a`";
        check(what, &immutable, Place::StateDirectory);
        immutable.set_flags(IFlags::APPEND);
        check(what, &immutable, Place::StateDirectory);
        immutable.set_flags(IFlags::empty());
        remount(&path, MsFlags::MS_RDONLY);
        let read_only = root(&path);
        assert_eq!(read_only.place(), Some(Place::StateDirectory));
        check("a read-only filesystem", &read_only, Place::StateDirectory);
        devices.push(device);
    }
    let ramfs = sandbox.ramfs("ramfs").unwrap();
    let what = "a filesystem without such attributes (ramfs)";
    let ramfs = root(&ramfs);
    assert_eq!(ramfs.place(), Some(Place::StateDirectory));
    check(what, &ramfs, Place::StateDirectory);
    let (path, _device) = mounted(&sandbox, "ext4", "full").unwrap();
    fill(&path);
    let what = "a full filesystem, at the first write";
    check(what, &root(&path), Place::StateDirectory);
    let (path, _device) = mounted(&sandbox, "ext4", "filled").unwrap();
    let filled = root(&path);
    filled.write(MarkState::Pending);
    fill(&path);
    let what = "a full filesystem that has a mark";
    check(what, &filled, Place::Attribute);
    let raw = LoopDevice::new(sandbox.path(), 4 << 20).unwrap();
    let device = Volume::device(&sandbox, raw.path());
    check("a raw device", &device, Place::StateDirectory);
    raw.format("ext4").unwrap();
    let what = "a device that the kubelet formatted";
    check(what, &device, Place::StateDirectory);
    let (_, section) = DOCS.split_once("## Where a mark lies").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let of_docs = section.lines().filter(|line| line.starts_with("| "));
    let of_docs: Vec<_> = of_docs.skip(1).collect();
    for (what, place) in &rows {
        let place = match place {
            Place::Attribute => "attribute",
            Place::StateDirectory => "state directory",
        };
        let row = format!("| {what} | {place} |");
        assert!(of_docs.contains(&row.as_str()), "{row}");
    }
    rows.dedup();
    rows.sort_by_key(|row| format!("{row:?}"));
    rows.dedup();
    assert_eq!(of_docs.len(), rows.len(), "{of_docs:?}");
}

/// An attribute that grows may need space that a full filesystem does not have.
#[test]
fn mark_that_exceeds_its_reserved_space_is_in_the_state_directory() {
    let sandbox = sandbox!();
    let path = sandbox.tmpfs("disk", "size=4m").unwrap();
    let volume = Volume::root(&sandbox, &path);
    assert_eq!(volume.write(MarkState::Offered), Place::Attribute);
    let offered = volume.attribute();
    let mut long = mark(MarkState::Used);
    long.claim = Some(format!("team/{}", "c".repeat(600)));
    let place = volume.state.write(&volume.marked(), &long).unwrap();
    assert_eq!(place, Place::StateDirectory);
    assert_eq!(volume.find(), MarkOnDisk::Valid(long));
    assert_eq!(volume.attribute(), offered);
    assert_eq!(volume.write(MarkState::Free), Place::Attribute);
}

/// A process that dies between the two steps of a write leaves both records.
#[test]
fn file_that_an_attribute_replaced_does_not_count() {
    let sandbox = sandbox!();
    let path = sandbox.tmpfs("disk", "size=4m").unwrap();
    let volume = Volume::root(&sandbox, &path);
    volume.set_flags(IFlags::IMMUTABLE);
    assert_eq!(volume.write(MarkState::Wiping), Place::StateDirectory);
    let files = volume.files();
    volume.set_flags(IFlags::empty());
    assert_eq!(volume.write(MarkState::Free), Place::Attribute);
    let free = volume.find();
    let (path, bytes) = &files[0];
    fs::write(path, bytes).unwrap();
    assert_eq!(volume.find(), free);
    assert_eq!(volume.write(MarkState::Pending), Place::Attribute);
}

/// Otherwise the volume could never be cleaned, or never offered again.
#[test]
fn attribute_that_cannot_be_written_does_not_count_after_a_write() {
    let sandbox = sandbox!();
    let path = sandbox.tmpfs("disk", "size=4m").unwrap();
    let volume = Volume::root(&sandbox, &path);
    for old in [MarkState::Used, MarkState::Wiping] {
        assert_eq!(volume.write(old), Place::Attribute);
        let attribute = volume.attribute();
        volume.set_flags(IFlags::IMMUTABLE);
        for state in [MarkState::Wiping, MarkState::Free, MarkState::Pending] {
            assert_eq!(volume.write(state), Place::StateDirectory);
        }
        assert_eq!(volume.attribute(), attribute);
        volume.set_flags(IFlags::empty());
    }
    // Damage ends the same way.
    volume.set_attribute(b"damaged");
    assert!(matches!(volume.find(), MarkOnDisk::Unreadable { .. }));
    volume.set_flags(IFlags::IMMUTABLE);
    assert_eq!(volume.write(MarkState::Offered), Place::StateDirectory);
    volume.set_flags(IFlags::empty());
}

/// The disk is in another node, or the directory was lost.
#[test]
fn attribute_is_outdated_where_another_directory_may_have_a_newer_mark() {
    let sandbox = sandbox!();
    let path = sandbox.tmpfs("disk", "size=4m").unwrap();
    let volume = Volume::root(&sandbox, &path);
    assert_eq!(volume.write(MarkState::Free), Place::Attribute);
    let is_outdated = |state: &StateDir| {
        let fact = state.read_all().unwrap().find(&volume.marked()).unwrap();
        fact.is_outdated
    };
    let open = |path: &Path| StateDir::open(path, false, &MountTable::default()).unwrap();
    assert!(!is_outdated(&open(&volume.state_path)), "the next process");
    let other = sandbox.path().join("other");
    fs::create_dir(&other).unwrap();
    assert!(is_outdated(&open(&other)));
    assert!(is_outdated(&StateDir::default()));
}

/// A disk that was on another node has an attribute that this node's file does not replace.
#[test]
fn more_restrictive_of_two_places_counts() {
    let sandbox = sandbox!();
    let path = sandbox.tmpfs("disk", "size=4m").unwrap();
    let volume = Volume::root(&sandbox, &path);
    volume.write(MarkState::Used);
    let (used, found) = (volume.attribute(), volume.find());
    volume.write(MarkState::Pending);
    volume.set_flags(IFlags::IMMUTABLE);
    assert_eq!(volume.write(MarkState::Offered), Place::StateDirectory);
    volume.set_flags(IFlags::empty());
    volume.set_attribute(&used);
    assert_eq!(volume.find(), found);
    volume.set_attribute(b"");
    assert!(matches!(volume.find(), MarkOnDisk::Unreadable { .. }));
}

#[test]
fn mark_without_a_place_is_an_error_with_the_remedy() {
    let sandbox = sandbox!();
    let path = sandbox.tmpfs("disk", "size=4m").unwrap();
    let mut volume = Volume::root(&sandbox, &path);
    volume.write(MarkState::Used);
    volume.set_flags(IFlags::IMMUTABLE);
    volume.state = StateDir::default();
    assert_eq!(volume.place(), None);
    let mark = mark(MarkState::Wiping);
    let error = volume.state.write(&volume.marked(), &mark).unwrap_err();
    let text = error.to_string();
    for words in ["Operation not permitted", "STATE_DIRECTORY"] {
        assert!(text.contains(words), "{text}");
    }
    volume.set_flags(IFlags::empty());
    let place = volume.state.write(&volume.marked(), &mark).unwrap();
    assert_eq!(place, Place::Attribute);
}

#[test]
fn header_hash_covers_both_ends_of_a_device() {
    let sandbox = sandbox!();
    for mib in [1_u64, 4] {
        let real = LoopDevice::new(sandbox.path(), mib << 20).unwrap();
        let device = Device::open(real.path(), Access::Probe).unwrap();
        let hash = || header_hash(&device).unwrap();
        assert_eq!(hash(), "uniform-00");
        real.file().write_all_at(b"header", 512).unwrap();
        let before = hash();
        assert!(is_distinctive(&before));
        let last = (mib << 20) - 1;
        for (at, is_covered) in [(0, true), (last, true), (2 << 20, false)] {
            if at > last {
                continue;
            }
            real.file().write_all_at(b"x", at).unwrap();
            assert_eq!(hash() != before, is_covered, "byte {at}");
            real.file().write_all_at(b"\0", at).unwrap();
            assert_eq!(hash(), before);
        }
    }
}
