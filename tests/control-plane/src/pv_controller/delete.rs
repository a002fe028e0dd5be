//! Policy Delete: an external provisioner deletes its volumes itself. Of the in-tree plug-ins only
//! `hostPath` has a deleter, and that one deletes directories for tests alone.

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

use super::{MIGRATED_TO, PROVISIONED_BY, origin, provision::IN_TREE, reclaim::fail};
use crate::{
    clock,
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
    /// An external provisioner.
    External,
}

/// The wait after the first failure.
const FIRST_BACK_OFF: Duration = Duration::from_millis(500);
/// The longest wait, kube-controller-manager's.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(122);

/// Failed deletions by the UID of the volume: the wait before the next attempt, and its end. No
/// attempt starts by itself: the next sync of the volume starts it.
#[derive(Debug, Default)]
pub(crate) struct Failures(HashMap<String, (Duration, Instant)>);

impl Failures {
    fn must_wait(&self, uid: &str, now: Instant) -> bool {
        self.0.get(uid).is_some_and(|(_, end)| now < *end)
    }

    fn note(&mut self, uid: &str, now: Instant) {
        let double = |(wait, _): &(Duration, Instant)| (*wait * 2).min(LONGEST_BACK_OFF);
        let wait = self.0.get(uid).map_or(FIRST_BACK_OFF, double);
        self.0.insert(uid.to_owned(), (wait, now + wait));
    }

    /// Forgets a volume that is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Ends every wait.
    #[cfg(test)]
    pub(crate) fn hurry(&mut self) {
        let now = clock::instant();
        self.0.values_mut().for_each(|(_, end)| *end = now);
    }
}

/// Deletes the directory, and without its storage the volume goes too.
pub(super) fn start(cx: &mut Context, volume: Volume) -> Result<(), SyncError> {
    match deleter(&volume) {
        Err(why) => return fail(cx, volume, FAILED, &why),
        Ok(Deleter::External) => return Ok(()),
        Ok(Deleter::HostPath) => {}
    }
    if cx.reclaims.failures.must_wait(volume.uid(), clock::instant()) {
        return Ok(());
    }
    if let Err(why) = delete(cx.reclaims.host_paths.as_ref(), &volume) {
        cx.reclaims.failures.note(volume.uid(), clock::instant());
        return fail(cx, volume, FAILED, &why);
    }
    origin::let_go(cx, &volume)?;
    cx.delete(&PERSISTENT_VOLUMES, &volume, DeleteOptions::default())
}

/// Looks for the plug-in that provisioned the volume, else for one that knows its kind.
fn deleter(volume: &Volume) -> Result<Deleter, String> {
    // Of the annotation only the key counts.
    let is_of_driver =
        volume.annotation(MIGRATED_TO).is_some() || volume["spec"]["csi"].is_object();
    match volume.annotation(PROVISIONED_BY) {
        None | Some("") if is_of_driver => Ok(Deleter::External),
        None | Some("") if volume["spec"]["hostPath"].is_object() => Ok(Deleter::HostPath),
        None | Some("") => {
            // The plug-in for NFS only recycles.
            let is_nfs = volume["spec"]["nfs"].is_object();
            let deletable = if is_nfs { "deletable " } else { "" };
            let name = volume.name();
            Err(format!(
                "error getting deleter volume plugin for volume {name:?}: no {deletable}volume \
                 plugin matched"
            ))
        }
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

#[test]
fn the_wait_doubles_with_each_failed_deletion() {
    let (mut failures, mut now) = (Failures::default(), Instant::now());
    for seconds in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0] {
        assert!(!failures.must_wait("a", now));
        failures.note("a", now);
        let wait = Duration::from_secs_f64(seconds);
        assert!(failures.must_wait("a", now + wait.mul_f64(0.999)));
        now += wait;
    }
    failures.forget("a");
    failures.note("a", now);
    assert!(!failures.must_wait("a", now + FIRST_BACK_OFF));
}
