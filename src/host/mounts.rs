//! The mount table: `/proc/<thread>/mountinfo`, parsed from bytes.
//!
//! The `procfs` crate requires UTF-8: there, one invalid byte in a mount path, which any pod can cause, makes the
//! whole table unreadable. The kernel separates fields by a single blank, and escapes blanks within a field in octal.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::escape::tenants;

/// The space for a table of some hundred mounts.
const TYPICAL_BYTES: usize = 64 << 10;

/// How much of two tables is compared at once.
const COMPARED_BYTES: usize = 512;

/// A device's number, as in `8:1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver; 0 for filesystems without a device of their own.
    pub major: u32,
    /// The device among the driver's.
    pub minor: u32,
}

impl DeviceNumber {
    /// From `st_rdev`, the device that a device node stands for, or `st_dev`, the one that a file lies on.
    pub fn from_rdev(number: u64) -> Self {
        Self { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
    }

    /// Reads `8:1`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim_ascii_end().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's id of this mount; reused after an unmount.
    pub id: u64,
    /// The id of the mount that this one is mounted on.
    pub parent: u64,
    /// The filesystem's number, the same for all its mounts (and all subvolumes of btrfs).
    pub device: DeviceNumber,
    /// The directory of the filesystem that is mounted; one that was removed ends in `//deleted`.
    pub root: PathBuf,
    /// Where it is mounted, as our process sees it.
    pub point: PathBuf,
    /// The kind of filesystem, such as `ext4`.
    pub fs_type: String,
    /// The source argument of mount(2), which proves nothing.
    pub source: OsString,
    /// Whether this mount or the whole filesystem is read-only.
    pub read_only: bool,
    /// Whether what is mounted below it in another mount namespace, such as the host's, appears here.
    pub propagates: bool,
    /// Whether what is mounted below it here appears in other mount namespaces, such as the host's.
    pub is_shared: bool,
    /// Of an overlay: its directories, by the paths that its mount named.
    pub layers: Vec<PathBuf>,
}

impl Mount {
    /// Whether it shows the directory of another mount, or a directory in that.
    pub fn is_within(&self, other: &Self) -> bool {
        self.device == other.device && self.root.starts_with(&other.root)
    }

    /// The path within the filesystem of a file whose path leads through this mount.
    pub fn path_in_fs(&self, path: &Path) -> Option<PathBuf> {
        let rest = path.strip_prefix(&self.point).ok()?;
        Some(self.root.join(rest))
    }
}

/// All mounts of a mount namespace, as they were when the table was read.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    by_id: BTreeMap<u64, Mount>,
    /// The mounts on each mount, by mount point. The root's parent is not visible, or is the root itself: `None`.
    by_parent: HashMap<Option<u64>, HashMap<PathBuf, u64>>,
    unparsed: Vec<String>,
}

impl MountTable {
    /// Reads the table of the calling thread's mount namespace (in the provisioner all threads
    /// share one).
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn read() -> io::Result<Self> {
        read().map(|bytes| Self::parse(&bytes))
    }

    /// Parses a `mountinfo` file. A line that does not parse must not hide the other mounts: it makes the table
    /// incomplete, see [`Self::complete`].
    pub fn parse(bytes: &[u8]) -> Self {
        let mut table = Self::default();
        let lines = bytes.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            match parse_line(line) {
                Some(mount) => {
                    table.by_id.insert(mount.id, mount);
                }
                None => table.unparsed.push(tenants(line)),
            }
        }
        for mount in table.by_id.values() {
            let parent = Some(mount.parent)
                .filter(|parent| *parent != mount.id && table.by_id.contains_key(parent));
            let mounts = table.by_parent.entry(parent).or_default();
            mounts.entry(mount.point.clone()).or_insert(mount.id);
        }
        table
    }

    /// The mount with an id.
    pub fn get(&self, id: u64) -> Option<&Mount> {
        self.by_id.get(&id)
    }

    /// The mount that a path lookup of `point` ends in, if `point` is exactly its mount point: the
    /// topmost where several are stacked, and none where a mount higher up hides it.
    ///
    /// `point` is taken as it is; symbolic links in it are not followed.
    pub fn at(&self, point: &Path) -> Option<&Mount> {
        self.holding(point).filter(|mount| mount.point == point)
    }

    /// All mounts inside a directory of a filesystem, by any path: also where the directory is mounted a second
    /// time, and those that other mounts hide.
    pub fn inside(&self, fs: DeviceNumber, dir: &Path) -> impl Iterator<Item = &Mount> {
        self.iter().filter(move |mount| {
            self.get(mount.parent)
                .filter(|parent| parent.device == fs)
                .and_then(|parent| parent.path_in_fs(&mount.point))
                .is_some_and(|path| path != dir && path.starts_with(dir))
        })
    }

    /// The mounts of a directory or subvolume within a volume.
    pub fn of_parts(&self, volume: &Mount) -> impl Iterator<Item = &Mount> {
        let others = self.iter().filter(|mount| mount.root != volume.root);
        others.filter(|mount| mount.is_within(volume))
    }

    /// A mount of a filesystem.
    pub fn of_device(&self, number: DeviceNumber) -> Option<&Mount> {
        self.iter().find(|mount| mount.device == number)
    }

    /// All mounts, hidden ones too.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.by_id.values()
    }

    /// Whether the table shows all mounts: every line parsed, and `/` is in it, which a `chroot` to a
    /// plain directory does not have.
    ///
    /// # Errors
    /// What is missing.
    pub fn complete(&self) -> Result<(), String> {
        if let Some(line) = self.unparsed.first() {
            return Err(format!("this line of the mount table does not parse: {line}"));
        }
        let root = self.at(Path::new("/"));
        root.map(drop)
            .ok_or_else(|| "the mount table has no /; run this outside of the chroot".to_owned())
    }

    /// The mount in which a lookup of `path` ends: descends from the root and crosses mount points, as the kernel
    /// does. Symbolic links are not followed.
    pub fn holding(&self, path: &Path) -> Option<&Mount> {
        // A mount nearer to the root hides the others.
        let mut points: Vec<_> = path.ancestors().collect();
        points.reverse();
        let crossed = |parent| {
            let mounts = self.by_parent.get(&parent)?;
            self.get(*points.iter().find_map(|point| mounts.get(*point))?)
        };
        let mut found = crossed(None)?;
        // Bounded, so that a cycle in the table ends.
        for _ in 1..self.by_id.len() {
            match crossed(Some(found.id)) {
                Some(next) => found = next,
                None => break,
            }
        }
        Some(found)
    }
}

/// Reads the table of the calling thread's mount namespace.
///
/// # Errors
/// When `/proc` is not there.
pub fn read() -> io::Result<Vec<u8>> {
    // It has no size that could be asked for.
    let mut bytes = Vec::with_capacity(TYPICAL_BYTES);
    File::open("/proc/thread-self/mountinfo")?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The mounts in one of two readings that the other lacks.
pub fn changes(before: &[u8], now: &[u8]) -> Vec<Mount> {
    // A busy node has hundreds of mounts, and the newest are the last lines.
    let chunks = before.chunks(COMPARED_BYTES).zip(now.chunks(COMPARED_BYTES));
    let same = chunks.take_while(|(before, now)| before == now).count() * COMPARED_BYTES;
    let same = before.get(..same).unwrap_or(before);
    let start = same.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = |bytes| <[u8]>::split(bytes, |byte| *byte == b'\n').collect::<HashSet<_>>();
    let (before, now) = (lines(&before[start..]), lines(&now[start..]));
    let changed = before.symmetric_difference(&now);
    changed.filter_map(|line| parse_line(line)).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    fn text(field: &[u8]) -> Option<&str> {
        std::str::from_utf8(field).ok()
    }
    let mut fields = line.split(|byte| *byte == b' ');
    // Any number of optional fields, ended by a single hyphen.
    let optional = fields.clone().skip(6).take_while(|it| *it != b"-");
    let has = |tag: &[u8]| optional.clone().any(|it| it.starts_with(tag));
    let is_shared = has(b"shared:");
    let mut mount = Mount {
        propagates: is_shared || has(b"master:"),
        is_shared,
        id: text(fields.next()?)?.parse().ok()?,
        parent: text(fields.next()?)?.parse().ok()?,
        device: DeviceNumber::parse(text(fields.next()?)?)?,
        root: unescape(fields.next()?).into(),
        point: unescape(fields.next()?).into(),
        read_only: is_read_only(fields.next()?),
        fs_type: String::from_utf8_lossy(fields.by_ref().skip_while(|it| *it != b"-").nth(1)?)
            .into(),
        source: unescape(fields.next()?),
        layers: Vec::new(),
    };
    let options = fields.next()?;
    mount.read_only |= is_read_only(options);
    if mount.fs_type == "overlay" {
        mount.layers = options.split(|it| *it == b',').flat_map(layers).collect();
    }
    Some(mount).filter(|it| it.point.is_absolute())
}

/// The directories that an option of an overlay names.
fn layers(option: &[u8]) -> Vec<PathBuf> {
    let option = unescape(option).into_vec();
    let equals = option.iter().position(|byte| *byte == b'=');
    let Some((key, value)) = equals.map(|at| (&option[..at], &option[at + 1..])) else {
        return Vec::new();
    };
    let values = match key {
        b"upperdir" | b"workdir" | b"lowerdir+" | b"datadir+" => vec![value],
        b"lowerdir" => value.split(|byte| *byte == b':').collect(),
        _ => Vec::new(),
    };
    let mut paths: Vec<Vec<u8>> = Vec::new();
    for value in values {
        match paths.last_mut().filter(|path| path.ends_with(b"\\")) {
            // This colon is a part of the name.
            Some(path) => {
                path.pop();
                path.extend([b":", value].concat());
            }
            None => paths.push(value.to_vec()),
        }
    }
    paths.retain(|path| path.starts_with(b"/"));
    let paths = paths.into_iter().map(OsString::from_vec);
    paths.map(PathBuf::from).collect()
}

/// Whether the options of a mount or of its filesystem make it read-only. `emergency_ro` is ext4's: after an error
/// made it read-only, its flags still say writable.
fn is_read_only(options: &[u8]) -> bool {
    let mut options = options.split(|byte| *byte == b',');
    options.any(|option| option == b"ro" || option == b"emergency_ro")
}

/// Decodes the kernel's `\ooo` escapes; any other backslash is literal.
pub(crate) fn unescape(field: &[u8]) -> OsString {
    let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
    let mut parts = field.split(|byte| *byte == b'\\');
    let mut bytes = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        if let Some(byte) = part.get(..3).and_then(octal) {
            bytes.push(byte);
            bytes.extend(&part[3..]);
        } else {
            bytes.push(b'\\');
            bytes.extend(part);
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests;
