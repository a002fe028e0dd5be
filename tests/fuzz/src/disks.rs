//! What is on disks, in `/sys` and in the state directory.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

use local_volume_provisioner::host::identity::{Identity, uuid_to_make};
use local_volume_provisioner::host::mark::{MarkFact, MarkOnDisk, MarkedVolume, StateDir};
use local_volume_provisioner::host::mounts::{DeviceNumber, MountTable};
use local_volume_provisioner::host::sysfs::Sysfs;
use local_volume_provisioner::wipe::device::Disk;
use local_volume_provisioner::wipe::progress::Progress;
use local_volume_provisioner::wipe::{signature, superblock};
use nix::sys::memfd::{MFdFlags, memfd_create};
use ring::digest::{SHA256, digest};
use tempfile::TempDir;

/// A directory in memory, if there is one.
fn directory() -> TempDir {
    let named = |dir: &Path| tempfile::Builder::new().prefix("lvp-fuzz-").tempdir_in(dir);
    named("/dev/shm".as_ref()).or_else(|_| named(&std::env::temp_dir())).unwrap()
}

/// The first and the last bytes of a disk of 1 MiB, separated by a byte 0xFF that follows a byte 0.
pub fn superblock(bytes: &[u8]) {
    const SIZE: u64 = 1 << 20;
    let cut = bytes.windows(2).position(|pair| pair == [0, 0xFF]);
    let (head, tail) = cut.map_or((bytes, &[][..]), |cut| (&bytes[..cut], &bytes[cut + 2..]));
    let mut file = File::from(memfd_create("disk", MFdFlags::MFD_CLOEXEC).unwrap());
    let half = usize::try_from(SIZE / 2).unwrap();
    let (head, tail) = (&head[..head.len().min(half)], &tail[..tail.len().min(half)]);
    file.set_len(SIZE).unwrap();
    file.write_all(head).unwrap();
    let end = SIZE - u64::try_from(tail.len()).unwrap();
    file.seek(SeekFrom::Start(end)).unwrap();
    file.write_all(tail).unwrap();
    let progress = Progress::default();
    let found = superblock::find(Disk::new(&file, SIZE, &progress)).unwrap();
    let signature = signature::find(Disk::new(&file, SIZE, &progress)).unwrap();
    if let Some((fs_type, uuid)) = found {
        assert_eq!(uuid.len(), 36, "{fs_type:?} {uuid}");
        assert!(signature.is_some(), "{fs_type:?} without a signature would pass for blank");
    }
    let is_empty = head.iter().chain(tail).all(|byte| *byte == 0);
    assert!(!is_empty || signature.is_none(), "{signature:?} on a disk of zeros");
}

/// The attributes of the disk and of its partition, in the order of the bytes.
const ATTRIBUTES: [&str; 18] = [
    "wwid",
    "serial",
    "device/wwid",
    "device/serial",
    "device/model",
    "device/name",
    "device/vpd_pg80",
    "dm/uuid",
    "md/uuid",
    "diskseq",
    "queue/rotational",
    "removable",
    "size",
    "ro",
    "sda1/start",
    "sda1/size",
    "sda1/uevent",
    "../../../udev/b8:0",
];

thread_local! {
    // Unlike a static, it is dropped: the directory goes with its thread.
    static TREE: TempDir = tree();
    static STATE: TempDir = directory();
}

fn tree() -> TempDir {
    let dir = directory();
    let disk = dir.path().join("sys/devices/sda");
    for below in ["device", "dm", "md", "queue", "sda1", "../../../udev"] {
        fs::create_dir_all(disk.join(below)).unwrap();
    }
    fs::write(disk.join("dev"), "8:0\n").unwrap();
    fs::write(disk.join("sda1/dev"), "8:1\n").unwrap();
    fs::write(disk.join("sda1/partition"), "1\n").unwrap();
    let numbers = dir.path().join("sys/dev/block");
    fs::create_dir_all(&numbers).unwrap();
    symlink("../../devices/sda", numbers.join("8:0")).unwrap();
    symlink("../../devices/sda/sda1", numbers.join("8:1")).unwrap();
    dir
}

/// Attributes, each ended by a byte 0xFF. An empty one is not there.
pub fn sysfs(bytes: &[u8]) {
    TREE.with(|tree| sysfs_in(tree.path(), bytes));
}

fn sysfs_in(tree: &Path, bytes: &[u8]) {
    let disk = tree.join("sys/devices/sda");
    let mut values = bytes.split(|byte| *byte == 0xFF);
    for attribute in ATTRIBUTES {
        let file = disk.join(attribute);
        match values.next().filter(|value| !value.is_empty()) {
            Some(value) => fs::write(file, value).unwrap(),
            None => drop(fs::remove_file(file)),
        }
    }
    let sysfs = Sysfs::new(tree.join("sys"), tree.join("udev"));
    let [disk, partition] = ["8:0", "8:1"].map(|it| DeviceNumber::parse(it).unwrap());
    for number in [disk, partition] {
        let facts = sysfs.device(number).unwrap();
        assert_eq!((facts.number, facts.disk), (number, disk));
        assert!(facts.below.contains(&disk));
        let names = [&facts.wwid, &facts.dm_uuid, &facts.md_uuid, &facts.model];
        for name in names.into_iter().flatten() {
            let is_word = !name.is_empty() && !name.contains([' ', '\n', '\0']);
            assert!(is_word, "{name:?} names a disk");
        }
        let _ = uuid_to_make(&facts);
    }
    let below = sysfs.writable_through(disk).unwrap();
    assert_eq!(below, [disk, partition].into());
}

/// The mark of a volume in the state directory. After a first byte that is odd, the text gets its first line and a right
/// checksum, which no fuzzer finds.
pub fn mark(bytes: &[u8]) {
    let _ = marked(bytes);
}

/// What is found after these bytes were written.
pub fn marked(bytes: &[u8]) -> Option<MarkFact> {
    STATE.with(|state| mark_in(state.path(), bytes))
}

fn mark_in(dir: &Path, bytes: &[u8]) -> Option<MarkFact> {
    let (kind, rest) = bytes.split_first()?;
    let is_signed = kind % 2 == 1;
    let text = if is_signed { signed(rest) } else { rest.to_vec() };
    fs::write(dir.join("volume.mark"), text).unwrap();
    let state = StateDir::open(dir, false, &MountTable::default()).unwrap();
    let marks = state.read_all().unwrap();
    let identity = Identity { text: "v1:fs=ext4,root=/,uuid=1".to_owned(), weak: false };
    let volume = MarkedVolume::new(None, &identity, "fast", Path::new("/mnt/fast/a"));
    let found = marks.find(&volume).unwrap();
    match &found.on_disk {
        MarkOnDisk::Valid(mark) => {
            assert!(is_signed || rest.starts_with(b"version=1\n"), "{mark:?}");
            // A mark that is read and written again says the same.
            let written = serde_json::to_string(mark).unwrap();
            assert_eq!(serde_json::from_str(&written).ok().as_ref(), Some(mark), "{written}");
        }
        MarkOnDisk::Unreadable { digest } => assert!(!digest.is_empty()),
        MarkOnDisk::Absent => {}
    }
    let _ = (found.digest(), found.has_past(), found.is_free());
    Some(found)
}

fn signed(body: &[u8]) -> Vec<u8> {
    let text = [b"version=1\n", body].concat();
    let digest = digest(&SHA256, &text);
    let mut line = String::from("checksum=");
    for byte in digest.as_ref() {
        write!(line, "{byte:02x}").unwrap();
    }
    [&*text, line.as_bytes(), b"\n"].concat()
}
