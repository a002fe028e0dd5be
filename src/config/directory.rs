//! Reads the directory: one file for each key.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use super::parse::known_keys;

/// The texts of the configuration, by file name.
pub type Files = BTreeMap<String, String>;

/// Reads the directory. Its entries are the keys, and links are followed. Names that begin with `..`,
/// where the kubelet keeps the versions of a ConfigMap, are skipped, and so are directories that are not named as a key.
///
/// While the kubelet replaces a ConfigMap, old and new files may be mixed. [`watch`](super::watch) then reports the
/// new files a moment later.
///
/// # Errors
/// When it or a file in it cannot be read or is not UTF-8, and when a key is not a file.
pub fn read_dir(dir: &Path) -> Result<Files, String> {
    let unreadable = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| {
            if error.kind() == io::ErrorKind::InvalidData {
                return format!("{path} is not UTF-8; write its value as a text in UTF-8");
            }
            format!(
                "the configuration at {path} cannot be read ({error}): mount the provisioner's ConfigMap there, or name another directory with --config"
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
            if text.is_none() && known_keys().find(&name).is_some() {
                let path = path.display();
                return Err(format!(
                    "{path} is not a file; write one that has the key's value"
                ));
            }
            files.extend(text.map(|text| (name, text)));
        }
    }
    Ok(files)
}

/// The text of a regular file. A FIFO is not opened: that would block until there is a writer.
fn read_file(path: &Path) -> io::Result<Option<String>> {
    let is_file = fs::metadata(path)?.is_file();
    is_file.then(|| fs::read_to_string(path)).transpose()
}
