//! Reads the directory: one file for each key.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// The texts of the configuration, by file name.
pub type Files = BTreeMap<String, String>;

/// Reads the directory. Its entries are the keys, and links are followed. Names that begin with `..`, where the kubelet
/// keeps the versions of a ConfigMap, are skipped.
///
/// While the kubelet replaces a ConfigMap, old and new files may be mixed. [`watch`](super::watch) then reports the
/// new files a moment later.
///
/// # Errors
/// When it or a file in it cannot be read, or is not UTF-8.
pub fn read_dir(dir: &Path) -> Result<Files, String> {
    let unreadable = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| {
            format!(
                "the configuration at {path} cannot be read ({error}): mount the provisioner's ConfigMap there, as texts in UTF-8, or name another directory with --config"
            )
        }
    };
    let mut files = Files::new();
    for entry in fs::read_dir(dir).map_err(unreadable(dir))? {
        let entry = entry.map_err(unreadable(dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") {
            let path = entry.path();
            let text = read_file(&path).map_err(unreadable(&path))?;
            files.insert(name, text);
        }
    }
    Ok(files)
}

/// The text of a regular file. A FIFO is not opened: that would block until there is a writer.
fn read_file(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        // No key has such a value, so a known key has a fault, and another one a warning.
        return Ok("not a file".to_owned());
    }
    fs::read_to_string(path)
}
