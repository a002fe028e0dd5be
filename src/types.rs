//! Types that several modules share: volume mode, host and mount paths, skip reasons.

use std::fmt;
use std::path::{Component, Path, PathBuf};

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
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}

impl fmt::Display for VolumeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A directory or device as the *host* names it: what `spec.local.path` holds.
///
/// Absolute, without `.`, `..` or doubled slashes. The same file may have another path in our own
/// mount namespace, a [`MountPath`]. Confusing the two would clean the wrong directory, so neither
/// converts into the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct HostPath(String);

/// Orders by components, so that the paths below a directory follow it directly.
impl Ord for HostPath {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        Path::new(&self.0).cmp(Path::new(&other.0))
    }
}

impl PartialOrd for HostPath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl HostPath {
    /// Normalises a path from the configuration: removes doubled slashes, trailing slashes and `.`.
    ///
    /// # Errors
    /// [`PathFault`] when it is relative or has a `..`.
    pub fn normalise(text: &str) -> Result<Self, PathFault> {
        Ok(Self(normal_components(text, false)?))
    }

    /// Parses a path from an API object. A `.` component is refused: the API server accepts
    /// `/mnt/disks/.`, which would be the discovery directory itself.
    ///
    /// # Errors
    /// [`PathFault`] when it is relative or has a `.` or `..`.
    pub fn from_api(text: &str) -> Result<Self, PathFault> {
        Ok(Self(normal_components(text, true)?))
    }

    /// The entry `name` of this directory. `name` is one component: it came from reading a directory.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        debug_assert!(!name.contains('/'));
        Self(if self.0 == "/" {
            format!("/{name}")
        } else {
            format!("{}/{name}", self.0)
        })
    }

    /// The entry name, if this path is a direct child of `dir`.
    #[must_use]
    pub fn child_of(&self, dir: &Self) -> Option<&str> {
        let (parent, name) = self.0.rsplit_once('/')?;
        let parent = if parent.is_empty() { "/" } else { parent };
        (parent == dir.0 && !name.is_empty()).then_some(name)
    }

    /// Whether this path is `dir` or lies below it, by whole components.
    #[must_use]
    pub fn is_within(&self, dir: &Self) -> bool {
        Path::new(&self.0).starts_with(&dir.0)
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A directory or device as *we* reach it, in our own mount namespace (below a class's `mountDir`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountPath(PathBuf);

impl MountPath {
    /// Normalises a path from the configuration; see [`HostPath::normalise`].
    ///
    /// # Errors
    /// [`PathFault`] when it is relative or has a `..`.
    pub fn normalise(text: &str) -> Result<Self, PathFault> {
        Ok(Self(normal_components(text, false)?.into()))
    }

    /// The entry `name` of this directory.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        Self(self.0.join(name))
    }

    /// The path for a system call.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// Why a text is not a usable path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// Does not begin with `/`.
    #[error("it is not absolute")]
    Relative,
    /// Has a `..` component.
    #[error("it has a \"..\" component")]
    Parent,
    /// Has a `.` component.
    #[error("it has a \".\" component")]
    Dot,
    /// Has a NUL byte, which no path can hold.
    #[error("it has a NUL byte")]
    Nul,
}

fn normal_components(text: &str, strict: bool) -> Result<String, PathFault> {
    if !text.starts_with('/') {
        return Err(PathFault::Relative);
    }
    if text.contains('\0') {
        return Err(PathFault::Nul);
    }
    // `Path::components` drops each "." except a leading one, so the strict check reads the text.
    if strict && text.split('/').any(|part| part == ".") {
        return Err(PathFault::Dot);
    }
    let mut normal = String::with_capacity(text.len());
    for component in Path::new(text).components() {
        match component {
            Component::ParentDir => return Err(PathFault::Parent),
            Component::Normal(part) => {
                normal.push('/');
                normal.push_str(&part.to_string_lossy());
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(if normal.is_empty() {
        "/".into()
    } else {
        normal
    })
}

/// Why an entry of a discovery directory gets no PV. `discover`, the `reason` label of the metrics,
/// `/status` and the docs use the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[allow(
    missing_docs,
    reason = "each is explained, with its remedy, in docs/why-no-pv.md"
)]
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
    Unreadable,
    TimedOut,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_paths_are_normalised_or_refused() {
        for (text, normal, from_api) in [
            ("/mnt/disks", Ok("/mnt/disks"), Ok("/mnt/disks")),
            ("/mnt//disks/", Ok("/mnt/disks"), Ok("/mnt/disks")),
            ("/", Ok("/"), Ok("/")),
            ("/mnt/./disks", Ok("/mnt/disks"), Err(PathFault::Dot)),
            ("/mnt/disks/.", Ok("/mnt/disks"), Err(PathFault::Dot)),
            ("/mnt/..", Err(PathFault::Parent), Err(PathFault::Parent)),
            ("mnt", Err(PathFault::Relative), Err(PathFault::Relative)),
            ("", Err(PathFault::Relative), Err(PathFault::Relative)),
            ("/a\0b", Err(PathFault::Nul), Err(PathFault::Nul)),
        ] {
            let text_of = |path: Result<HostPath, PathFault>| path.map(|path| path.0);
            assert_eq!(
                text_of(HostPath::normalise(text)),
                normal.map(String::from),
                "{text:?}"
            );
            assert_eq!(
                text_of(HostPath::from_api(text)),
                from_api.map(String::from),
                "{text:?}"
            );
        }
    }

    #[test]
    fn fault_4_a_child_is_a_child_by_whole_components() {
        let path = |text| HostPath::from_api(text).unwrap();
        let dir = path("/mnt/disks");
        assert_eq!(path("/mnt/disks/a").child_of(&dir), Some("a"));
        for other in [
            "/mnt/disks",
            "/mnt/disks-ssd/a",
            "/mnt/disks/a/b",
            "/mnt",
            "/",
        ] {
            assert_eq!(path(other).child_of(&dir), None, "{other}");
        }
        assert_eq!(path("/a").child_of(&path("/")), Some("a"));
        assert!(!path("/mnt/disks-ssd").is_within(&dir));
        assert!(path("/mnt/disks/a/b").is_within(&dir));
    }
}
