//! The directory of links at the start of a process.

use std::io;
use std::path::Path;

use crate::config::Config;
use crate::host::link::LinkDir;

/// Removes all links, which another process has verified, and returns the directory, if there is one.
///
/// # Errors
/// When a link may be left: then nothing guards its volume.
pub(super) fn remove_all(path: &Path) -> io::Result<Option<LinkDir>> {
    if !path.try_exists()? {
        return Ok(None);
    }
    let links = LinkDir::open(path)?;
    for token in links.read()?.keys() {
        links.remove(token)?;
    }
    Ok(Some(links))
}

/// Creates the directory, unless it was `found`, if a class requires it.
///
/// # Errors
/// Why no link can be made, for an operator.
pub(super) fn open(
    path: &Path,
    found: Option<LinkDir>,
    config: &Config,
    in_pod: bool,
) -> Result<LinkDir, String> {
    match found {
        Some(links) => Ok(links),
        None if in_pod => Err(format!(
            "{} of the host is not mounted in the container; upgrade the chart",
            path.display()
        )),
        None if !config.binds_to_disks() => {
            Err("no class had binding: disk at the start; restart the provisioner".to_owned())
        }
        None => LinkDir::open(path).map_err(|error| format!("no link can be made: {error}")),
    }
}

#[cfg(test)]
mod tests;
