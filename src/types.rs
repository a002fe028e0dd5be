//! Types that several modules share: volume mode, host and mount paths, skip reasons.

use std::cmp::Ordering;
use std::env;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a volume is handed to a pod (`spec.volumeMode`), or what an entry on disk really is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum VolumeMode {
    /// A directory; on disk, a mount point.
    #[default]
    Filesystem,
    /// A raw device.
    Block,
}

impl VolumeMode {
    /// The spelling of the API and of the metrics' `mode` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}

/// A directory or device as the *host* names it: what `spec.local.path` holds.
///
/// Absolute, without `.`, `..` or doubled slashes. The same file may have another path in our own
/// mount namespace, a [`MountPath`]. Confusing the two would clean the wrong directory, so neither
/// converts into the other.
///
/// The order is by components, so that the paths below a directory follow it directly.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct HostPath(PathBuf);

impl Ord for HostPath {
    /// As that of `Path`, which takes five times as long.
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        let (one, other) = (self.0.as_os_str(), other.0.as_os_str());
        let other = other.as_bytes().iter();
        one.as_bytes().iter().map(key).cmp(other.map(key))
    }
}

impl PartialOrd for HostPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl HostPath {
    /// Parses a path from an API object. A `.` component is refused: the API server accepts
    /// `/mnt/disks/.`, which would be the discovery directory itself.
    ///
    /// # Errors
    /// The reason, when it is relative or has a `.` or `..`.
    pub fn from_api(text: &str) -> Result<Self, &'static str> {
        // `Path::components` drops each "." except a leading one, so the text is checked.
        if text.split('/').any(|part| part == ".") {
            return Err("it has a \".\" component");
        }
        Ok(Self(normalised(text)?))
    }

    /// The entry `name` of this directory. `name` is one component: it came from reading a directory.
    pub fn join(&self, name: &str) -> Self {
        debug_assert!(!name.contains('/'));
        Self(self.0.join(name))
    }

    /// The entry name, if this path is a direct child of `dir`.
    pub fn child_of(&self, dir: &Self) -> Option<&str> {
        let is_child = self.0.parent() == Some(&dir.0);
        self.0.file_name().filter(|_| is_child)?.to_str()
    }

    /// Whether this path is `dir` or lies below it, by whole components.
    pub fn is_within(&self, dir: &Self) -> bool {
        self.0.starts_with(&dir.0)
    }

    /// The path as text, from which it was made.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// Normalises a path from the configuration.
impl FromStr for HostPath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        normalised(text).map(Self)
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A directory or device as *we* reach it, in our own mount namespace (below a class's `mountDir`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountPath(PathBuf);

impl MountPath {
    /// The entry `name` of this directory.
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        Self(self.0.join(name))
    }

    /// The path for a system call.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

/// Normalises a path from the configuration.
impl FromStr for MountPath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        normalised(text).map(Self)
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// The path without doubled slashes, trailing slashes and `.`, or why it is unusable.
fn normalised(text: &str) -> Result<PathBuf, &'static str> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err("it is not absolute");
    }
    if text.contains('\0') {
        return Err("it has a NUL byte");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("it has a \"..\" component");
    }
    Ok(path.components().collect())
}

/// Why an entry of a discovery directory gets no PV. `discover`, the `reason` label of the metrics,
/// `/status` and the docs use the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[allow(missing_docs, reason = "each is explained, with its remedy, in docs/why-no-pv.md")]
pub enum SkipReason {
    NotMounted,
    NotADirectoryOrBlockDevice,
    ModeMismatch,
    NoCapacity,
    NameNotUtf8,
    DuplicateDevice,
    NestedVolume,
    DeviceInUse,
    VolumeInUse,
    SystemStorage,
    NotLocal,
    NamePatternMismatch,
    ClassMissing,
    ClassInvalid,
    CleanupRunning,
    PathClaimedByOtherPV,
    IdentityOnOtherPV,
    NotEmpty,
    Dirty,
    NotBindable,
    Unreadable,
    TimedOut,
}

/// A filesystem that the provisioner can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsType {
    /// By `mkfs.ext4`.
    Ext4,
    /// By `mkfs.xfs`.
    Xfs,
}

impl FsType {
    /// The name that mount(2) uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The type of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Ext4, Self::Xfs].into_iter().find(|it| it.as_str() == name)
    }

    /// The program that makes it.
    pub fn mkfs(self) -> &'static str {
        match self {
            Self::Ext4 => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
        }
    }

    /// Finds that program in `PATH`.
    ///
    /// # Errors
    /// The image does not have it.
    pub fn find_program(self) -> io::Result<()> {
        let name = self.mkfs();
        let path = env::var_os("PATH").unwrap_or_default();
        if env::split_paths(&path).any(|dir| dir.join(name).is_file()) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{name} is not in this image; use the image whose tag ends in -tools"
        )))
    }

    /// The command that makes it on a disk. What the disk can discard was discarded before.
    pub fn mkfs_words(self, uuid: &str, node: &Path) -> Vec<String> {
        // Without the blocks that ext4 reserves for root.
        let options = match self {
            Self::Ext4 => "-q -F -m 0 -E nodiscard,lazy_itable_init=1 -U ",
            Self::Xfs => "-q -f -K -m uuid=",
        };
        let words = format!("{} {options}{uuid}", self.mkfs());
        let words = words.split(' ').map(str::to_owned);
        words.chain([node.display().to_string()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_normalised_or_refused() {
        const DOT: Result<&str, &str> = Err("it has a \".\" component");
        const PARENT: Result<&str, &str> = Err("it has a \"..\" component");
        const RELATIVE: Result<&str, &str> = Err("it is not absolute");
        const NUL: Result<&str, &str> = Err("it has a NUL byte");
        for (text, normal, from_api) in [
            ("/mnt/disks", Ok("/mnt/disks"), Ok("/mnt/disks")),
            ("/mnt//disks/", Ok("/mnt/disks"), Ok("/mnt/disks")),
            ("/", Ok("/"), Ok("/")),
            ("/mnt/./disks", Ok("/mnt/disks"), DOT),
            ("/mnt/disks/.", Ok("/mnt/disks"), DOT),
            ("/mnt/..", PARENT, PARENT),
            ("mnt", RELATIVE, RELATIVE),
            ("", RELATIVE, RELATIVE),
            ("/a\0b", NUL, NUL),
        ] {
            let read = normalised(text).map(HostPath);
            assert_eq!(read.as_ref().map(HostPath::as_str), normal.as_ref().copied(), "{text:?}");
            let read = HostPath::from_api(text);
            assert_eq!(read.as_ref().map(HostPath::as_str), from_api.as_ref().copied(), "{text:?}");
        }
    }

    #[test]
    fn host_paths_have_the_order_of_paths() {
        let texts = ["/", "/a", "/a/b", "/a/b/c", "/a-b", "/a b", "/a.b/c", "/ab", "/b", "/é/a"];
        for (a, b) in texts.iter().flat_map(|a| texts.map(|b| (a, b))) {
            let path = |text| HostPath::from_api(text).unwrap();
            let expected = Path::new(a).cmp(Path::new(b));
            assert_eq!(path(a).cmp(&path(b)), expected, "{a} {b}");
        }
    }

    #[test]
    fn fault_4_a_child_is_a_child_by_whole_components() {
        let path = |text| HostPath::from_api(text).unwrap();
        let dir = path("/mnt/disks");
        assert_eq!(path("/mnt/disks/a").child_of(&dir), Some("a"));
        for other in ["/mnt/disks", "/mnt/disks-ssd/a", "/mnt/disks/a/b", "/mnt", "/"] {
            assert_eq!(path(other).child_of(&dir), None, "{other}");
        }
        assert_eq!(path("/a").child_of(&path("/")), Some("a"));
        assert!(!path("/mnt/disks-ssd").is_within(&dir));
        assert!(path("/mnt/disks/a/b").is_within(&dir));
    }
}
