//! The mount table: `/proc/<thread>/mountinfo`, parsed from bytes.
//!
//! The `procfs` crate's parser splits lines at Unicode white space and requires UTF-8. One no-break space or one
//! invalid byte in a mount path, which any pod can cause, makes the whole table unreadable there. The kernel
//! separates fields by a single blank, and escapes blanks within a field in octal.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};

/// A device's number, as in `8:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver; 0 for filesystems without a device of their own.
    pub major: u32,
    /// The device among the driver's.
    pub minor: u32,
}

impl DeviceNumber {
    /// From `st_rdev`: the device that a device node stands for.
    #[must_use]
    pub fn from_rdev(st_rdev: u64) -> Self {
        // The kernel's numbers have 12 and 20 bits.
        let part = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            major: part(major(st_rdev)),
            minor: part(minor(st_rdev)),
        }
    }

    /// From `st_dev`: the device that a file lies on.
    #[must_use]
    pub fn from_st_dev(st_dev: u64) -> Self {
        Self::from_rdev(st_dev)
    }

    /// Reads `8:1`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim_ascii_end().split_once(':')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
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
}

impl Mount {
    /// The path within the filesystem of a file whose path leads through this mount.
    #[must_use]
    pub fn path_in_fs(&self, path: &Path) -> Option<PathBuf> {
        let rest = path.strip_prefix(&self.point).ok()?;
        Some(self.root.join(rest))
    }
}

/// All mounts of a mount namespace, as they were when the table was read.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    mounts: Vec<Mount>,
    unparsed: Vec<String>,
    ids: HashSet<u64>,
    by_point: HashMap<PathBuf, Vec<usize>>,
    by_device: HashMap<DeviceNumber, usize>,
}

impl MountTable {
    /// Reads the table of the calling thread's mount namespace (in the provisioner all threads
    /// share one).
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn read() -> io::Result<Self> {
        std::fs::read("/proc/thread-self/mountinfo").map(|bytes| Self::parse(&bytes))
    }

    /// Parses a `mountinfo` file. A line that does not parse is kept in [`Self::unparsed`]: it must not hide the
    /// other mounts.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut table = Self::default();
        for line in bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            match parse_line(line) {
                Some(mount) => table.push(mount),
                None => table.unparsed.push(line.escape_ascii().to_string()),
            }
        }
        table
    }

    fn push(&mut self, mount: Mount) {
        self.ids.insert(mount.id);
        self.by_device
            .entry(mount.device)
            .or_insert(self.mounts.len());
        self.by_point
            .entry(mount.point.clone())
            .or_default()
            .push(self.mounts.len());
        self.mounts.push(mount);
    }

    /// The mount that a path lookup of `point` ends in, if `point` is exactly its mount point: the
    /// topmost where several are stacked, and none where a mount higher up hides it.
    ///
    /// `point` is taken as it is; symbolic links in it are not followed.
    #[must_use]
    pub fn at(&self, point: &Path) -> Option<&Mount> {
        self.holding(point).filter(|mount| mount.point == point)
    }

    /// All mounts inside a directory of a filesystem, by any path: also where the directory is mounted a second
    /// time, and those that other mounts hide.
    pub fn inside(&self, fs: DeviceNumber, dir: &Path) -> impl Iterator<Item = &Mount> {
        let by_id: HashMap<u64, &Mount> = self.mounts.iter().map(|it| (it.id, it)).collect();
        self.mounts.iter().filter(move |mount| {
            by_id
                .get(&mount.parent)
                .filter(|parent| parent.device == fs)
                .and_then(|parent| parent.path_in_fs(&mount.point))
                .is_some_and(|path| path != dir && path.starts_with(dir))
        })
    }

    /// The mounts of a directory or subvolume within a volume.
    pub fn of_parts(&self, volume: &Mount) -> impl Iterator<Item = &Mount> {
        self.mounts.iter().filter(|mount| {
            mount.device == volume.device
                && mount.root != volume.root
                && mount.root.starts_with(&volume.root)
        })
    }

    /// The first mount of a filesystem.
    #[must_use]
    pub fn of_device(&self, number: DeviceNumber) -> Option<&Mount> {
        self.by_device.get(&number).map(|at| &self.mounts[*at])
    }

    /// All mounts, hidden ones too, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter()
    }

    /// The lines that did not parse, printable.
    #[must_use]
    pub fn unparsed(&self) -> &[String] {
        &self.unparsed
    }

    /// Whether the table shows all mounts: every line parsed, and `/` is in it, which a `chroot` to a
    /// plain directory does not have.
    ///
    /// # Errors
    /// What is missing.
    pub fn complete(&self) -> Result<(), String> {
        if let Some(line) = self.unparsed.first() {
            return Err(format!(
                "this line of the mount table does not parse: {line}"
            ));
        }
        match self.at(Path::new("/")) {
            Some(_) => Ok(()),
            None => Err("the mount table has no /; run this outside of the chroot".to_owned()),
        }
    }

    /// The mount in which a lookup of `path` ends: descends from the root and crosses mount points, as the kernel
    /// does. Symbolic links are not followed.
    #[must_use]
    pub fn holding(&self, path: &Path) -> Option<&Mount> {
        let mut prefixes: Vec<&Path> = path.ancestors().collect();
        prefixes.reverse();
        let mut current: Option<&Mount> = None;
        for prefix in prefixes {
            let Some(here) = self.by_point.get(prefix) else {
                continue;
            };
            // Bounded, so that a cycle in the table ends.
            for _ in here {
                let mounts = here.iter().map(|at| &self.mounts[*at]);
                match mounts
                    .into_iter()
                    .find(|mount| self.is_mounted_on(mount, current))
                {
                    Some(next) => current = Some(next),
                    None => break,
                }
            }
        }
        current
    }

    fn is_mounted_on(&self, mount: &Mount, parent: Option<&Mount>) -> bool {
        match parent {
            Some(parent) => mount.parent == parent.id && mount.id != parent.id,
            // The root mount's parent is not visible, or is the mount itself.
            None => mount.parent == mount.id || !self.ids.contains(&mount.parent),
        }
    }
}

/// The mount that a descriptor was opened through, in the text of its `fdinfo` file.
pub(super) fn mount_id_in_fdinfo(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut text = || {
        fields
            .next()
            .and_then(|field| std::str::from_utf8(field).ok())
    };
    let id = text()?.parse().ok()?;
    let parent = text()?.parse().ok()?;
    let device = DeviceNumber::parse(text()?)?;
    let root = unescape(fields.next()?).into();
    let point = unescape(fields.next()?).into();
    let options = fields.next()?;
    // Any number of optional fields, ended by a single hyphen.
    fields.find(|field| *field == b"-")?;
    let fs_type = unescape(fields.next()?).to_string_lossy().into_owned();
    let source = unescape(fields.next()?);
    let super_options = fields.next()?;
    // `emergency_ro` is ext4's: after an error made it read-only, its flags still say writable.
    let read_only = [options, super_options].iter().any(|options| {
        options
            .split(|byte| *byte == b',')
            .any(|option| option == b"ro" || option == b"emergency_ro")
    });
    Some(Mount {
        id,
        parent,
        device,
        root,
        point,
        fs_type,
        source,
        read_only,
    })
}

/// Decodes the kernel's `\ooo` escapes; any other backslash is literal.
pub(crate) fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte == b'\\'
            && let [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] = tail
        {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = after;
        } else {
            bytes.push(*byte);
        }
    }
    OsString::from_vec(bytes)
}

/// Removes the one newline that `/sys` and `/proc` append to a value.
pub(super) fn without_newline(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes.strip_suffix(b"\n").unwrap_or(bytes))
}

#[cfg(test)]
mod tests;
