//! How a directory looks from outside.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Differs whenever a file that is read has changed. (A file that is written twice within one tick of
/// the clock may keep its looks; so nothing is read before it has been left alone for longer.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Where the link `..data` leads, which the kubelet switches to a new version of a ConfigMap.
    version: Option<PathBuf>,
    /// Each file by its name, through its link.
    files: Result<BTreeMap<OsString, Looks>, io::ErrorKind>,
}

/// Device and inode, size, and time of the last change; or why that cannot be seen.
type Looks = Result<(u64, u64, u64, (i64, i64)), io::ErrorKind>;

impl Stamp {
    pub(super) fn of(dir: &Path) -> Self {
        Self {
            version: fs::read_link(dir.join("..data")).ok(),
            files: look(dir).map_err(|error| error.kind()),
        }
    }
}

fn look(dir: &Path) -> io::Result<BTreeMap<OsString, Looks>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b"..") {
            continue;
        }
        let looks = |file: Metadata| {
            let changed = (file.ctime(), file.ctime_nsec());
            (file.dev(), file.ino(), file.size(), changed)
        };
        let found = fs::metadata(entry.path());
        files.insert(name, found.map(looks).map_err(|error| error.kind()));
    }
    Ok(files)
}
