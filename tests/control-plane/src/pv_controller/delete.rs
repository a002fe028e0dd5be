//! Policy Delete: whoever provisioned a volume from outside deletes it too. Of the plug-ins within,
//! only `hostPath` has a deleter, and that one deletes directories for tests alone.

use std::path::Path;

use super::{
    MIGRATED_TO, PROVISIONED_BY,
    operations::Name,
    origin,
    provision::IN_TREE,
    reclaim::{Started, fail},
};
use crate::{
    controllers::{
        Context, SyncError,
        object::{Volume, text},
    },
    host_paths::{HostPaths, Refused},
    resource::PERSISTENT_VOLUMES,
    store::DeleteOptions,
};

const FAILED: &str = "VolumeFailedDelete";

/// The name of the plug-in for `hostPath` volumes.
const HOST_PATH: &str = "kubernetes.io/host-path";

/// Who deletes the storage of a volume.
#[derive(Debug, PartialEq, Eq)]
enum Deleter {
    HostPath,
    /// Somebody outside of this controller.
    External,
}

/// Deletes the directory, and without its storage the volume goes too.
pub(super) fn start(cx: &mut Context, volume: Volume, _: &Name) -> Result<Started, SyncError> {
    match deleter(&volume) {
        Err(why) => return fail(cx, volume, FAILED, &why).map(|()| Started::IsOver),
        Ok(Deleter::External) => return Ok(Started::IsOver),
        Ok(Deleter::HostPath) => {}
    }
    if let Err(why) = delete(cx.reclaims.host_paths.as_ref(), &volume) {
        return fail(cx, volume, FAILED, &why).map(|()| Started::HasFailed);
    }
    origin::let_go(cx, &volume)?;
    let options = DeleteOptions::default();
    cx.delete(&PERSISTENT_VOLUMES, &volume, options)
        .map(|()| Started::IsOver)
}

/// Looks for the plug-in that provisioned the volume, else for one that knows its kind.
fn deleter(volume: &Volume) -> Result<Deleter, String> {
    match volume.annotation(PROVISIONED_BY) {
        // Even an empty one says that no plug-in within is asked.
        None | Some("") if volume.annotation(MIGRATED_TO).is_some() => Ok(Deleter::External),
        None | Some("") if volume["spec"]["hostPath"].is_object() => Ok(Deleter::HostPath),
        None | Some("") => Err(format!(
            "error getting deleter volume plugin for volume {:?}: no volume plugin matched",
            volume.name()
        )),
        Some(HOST_PATH) => Ok(Deleter::HostPath),
        Some(plugin) if plugin.starts_with(IN_TREE) => {
            Err(format!("no volume plugin matched name: {plugin}"))
        }
        Some(_) => Ok(Deleter::External),
    }
}

/// Deletes the directory of a volume, if it may be deleted: by the real controller's rule, and here
/// only below the test root besides.
fn delete(host_paths: Option<&HostPaths>, volume: &Volume) -> Result<(), String> {
    let source = &volume["spec"]["hostPath"];
    if !source.is_object() {
        return Err(format!(
            "failed to create deleter for volume {:?}: spec.PersistentVolumeSource.HostPath is nil",
            volume.name()
        ));
    }
    let path = text(&source["path"]);
    if !is_below_tmp(path) {
        return Err(format!(
            "host_path deleter only supports /tmp/.+ but received provided {path}"
        ));
    }
    let host_paths = host_paths.ok_or_else(|| Refused::NoRoot.to_string())?;
    let deleted = host_paths.delete(Path::new(path));
    deleted.map_err(|why| why.to_string())
}

/// Whether the path has `/tmp/` and something behind it, anywhere: the real controller's pattern is
/// not anchored either.
fn is_below_tmp(path: &str) -> bool {
    path.match_indices("/tmp/")
        .any(|(at, tmp)| path[at + tmp.len()..].starts_with(|next| next != '\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_of_the_deleter() {
        for (path, matches) in [
            ("/tmp/a", true),
            ("/tmp/a/b", true),
            ("/data/tmp/a", true),
            ("/tmp//", true),
            ("/tmp/tmp/", true),
            ("/tmp", false),
            ("/tmp/", false),
            ("/tmp/\n", false),
            ("/temp/a", false),
            ("tmp/a", false),
            ("/x/tmpa/b", false),
            ("", false),
        ] {
            assert_eq!(is_below_tmp(path), matches, "{path:?}");
        }
    }
}
