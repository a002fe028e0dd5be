//! Opens the directory of links at the start, before anything else is done.

use std::path::Path;

use crate::config::{Binding, Config};
use crate::host::link::LinkDir;
use crate::host::mounts::MountTable;
use crate::types::HostPath;

/// Opens the directory of links, and removes each link to a volume of these classes: it was verified by another process. The
/// error is why no link can be made, for an operator.
pub(super) fn open(path: &Path, config: &Config, in_pod: bool) -> Result<LinkDir, String> {
    let classes = || config.classes.values();
    if !path.exists() && classes().all(|class| class.binding == Binding::Path) {
        return Err("no class had binding: disk at the start; restart the provisioner".to_owned());
    }
    let mounts = MountTable::read().map_err(|error| error.to_string())?;
    if in_pod && mounts.iter().all(|mount| mount.point != path) {
        let path = path.display();
        return Err(format!(
            "{path} of the host is not mounted in the container; upgrade the installation with the class in its values"
        ));
    }
    let opened = LinkDir::open(path).and_then(|links| {
        for (token, target) in links.read()? {
            let target = HostPath::from_api(&target).ok();
            let is_of = |dir: &HostPath| target.as_ref().is_some_and(|it| it.is_within(dir));
            if classes().any(|class| is_of(&class.host_dir)) {
                links.remove(&token)?;
            }
        }
        Ok(links)
    });
    opened.map_err(|error| format!("no link can be made: {error}"))
}

#[cfg(test)]
mod tests;
