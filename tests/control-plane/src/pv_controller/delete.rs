//! Policy Delete: whoever provisioned a volume from outside deletes it too. Of the plug-ins within,
//! only `hostPath` has a deleter, and that one deletes directories for tests alone.

use std::{path::PathBuf, sync::Arc, thread, time::Instant};

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
        object::{Key, Volume, text},
    },
    host_paths::{HostPaths, Refused},
    resource::PERSISTENT_VOLUMES,
    store::DeleteOptions,
};

const FAILED: &str = "VolumeFailedDelete";

/// The name of the plug-in for `hostPath` volumes.
const HOST_PATH: &str = "kubernetes.io/host-path";

/// A deletion that has ended.
#[derive(Debug)]
pub(crate) struct Deleted {
    operation: Name,
    /// As it was at the start.
    volume: Volume,
    result: Result<(), String>,
}

/// Who deletes the storage of a volume.
#[derive(Debug, PartialEq, Eq)]
enum Deleter {
    HostPath,
    /// Somebody outside of this controller.
    External,
}

/// Deletes the directory.
pub(super) fn start(
    cx: &mut Context,
    volume: Volume,
    operation: &Name,
) -> Result<Started, SyncError> {
    match deleter(&volume) {
        Err(why) => return fail(cx, volume, FAILED, &why).map(|()| Started::IsOver),
        Ok(Deleter::External) => return Ok(Started::IsOver),
        Ok(Deleter::HostPath) => {}
    }
    let (host_paths, path) = match permitted(cx.reclaims.host_paths.as_ref(), &volume) {
        Ok(permitted) => permitted,
        Err(why) => return fail(cx, volume, FAILED, &why).map(|()| Started::HasFailed),
    };
    let (operation, ended) = (operation.clone(), cx.reclaims.deleted.clone());
    let stopped = Arc::clone(&cx.reclaims.stopped);
    // A deep directory takes its time, and a disk may hang.
    let thread = thread::Builder::new().name("host-path-deleter".into());
    let spawned = thread.spawn(move || {
        let result = host_paths.delete(&path, &stopped);
        let result = result.map_err(|why| why.to_string());
        // Nobody listens any more if this is the end of the control plane.
        let _ = ended.send(Deleted {
            operation,
            volume,
            result,
        });
    });
    match spawned {
        Ok(_) => Ok(Started::GoesOn),
        Err(error) => {
            tracing::warn!(%error, "no thread to delete a directory with");
            Ok(Started::IsOver)
        }
    }
}

/// Ends a deletion: without its storage the volume goes too.
pub(crate) fn finish(cx: &mut Context, deleted: Deleted) {
    let Deleted {
        operation,
        volume,
        result,
    } = deleted;
    let result = result.and_then(|()| {
        let released = origin::let_go(cx, &volume);
        released.map_err(|error| {
            format!("persistent volume controller can't update finalizer: {error}")
        })
    });
    cx.reclaims.end(&operation, result.is_ok());
    let known = cx.cache.volumes.get(volume.name());
    if known.is_none_or(|known| known.uid() != volume.uid()) {
        cx.reclaims.forget(&volume);
    }
    let written = match result {
        Ok(()) => cx.delete(&PERSISTENT_VOLUMES, &volume, DeleteOptions::default()),
        Err(why) => fail(cx, volume.clone(), FAILED, &why),
    };
    if let Err(error) = written {
        tracing::debug!(%error, %operation, "the next look at the volume tries again");
        // Whatever came in between was heard while this still ran, and asks for no other look.
        let due = cx.reclaims.operations.due(&operation);
        let due = due.unwrap_or_else(Instant::now);
        cx.queues.volumes.add_at(Key::cluster(volume.name()), due);
    }
}

/// Looks for the plug-in that provisioned the volume, else for one that knows its kind.
fn deleter(volume: &Volume) -> Result<Deleter, String> {
    match volume.annotation(PROVISIONED_BY) {
        // Even an empty one says that no plug-in within is asked.
        None | Some("") if volume.annotation(MIGRATED_TO).is_some() => Ok(Deleter::External),
        None | Some("") if volume["spec"]["csi"].is_object() => Ok(Deleter::External),
        None | Some("") if volume["spec"]["hostPath"].is_object() => Ok(Deleter::HostPath),
        None | Some("") => Err(format!(
            "error getting deleter volume plugin for volume {:?}: {}",
            volume.name(),
            if volume["spec"]["nfs"].is_object() {
                "no deletable volume plugin matched"
            } else {
                "no volume plugin matched"
            }
        )),
        Some(HOST_PATH) => Ok(Deleter::HostPath),
        Some("kubernetes.io/nfs") => Err("no deletable volume plugin matched".to_owned()),
        Some(plugin) if plugin.starts_with(IN_TREE) => {
            Err(format!("no volume plugin matched name: {plugin}"))
        }
        Some(_) => Ok(Deleter::External),
    }
}

/// The directory of a volume, if it may be deleted: by the real controller's rule, and here only
/// below the test root besides.
fn permitted(
    host_paths: Option<&HostPaths>,
    volume: &Volume,
) -> Result<(HostPaths, PathBuf), String> {
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
    Ok((host_paths.clone(), path.into()))
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
