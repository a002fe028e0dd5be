//! What the API server and the network may do, and what is reported of it.

mod events;
mod other_clusters;
mod outages;
mod permissions;
mod refused_releases;
mod stale_cache;
mod writes_under_way;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_plane::faults::{Answer, Fault, FaultBuilder};
use control_plane::requests::Verb;
use serde_json::json;
use support::stage::{name, uid};
use support::{Program, Stage};

use super::stage;
use crate::kit::{fast_volumes, metric};

const PVS: &str = "persistentvolumes";
const CLAIMS: &str = "persistentvolumeclaims";
/// A failed cleanup pauses for ten seconds.
const A_RETRY_LATER: Duration = Duration::from_secs(40);

/// A stage on which our finalizer is put on by the commit, so that every step has a request.
fn bare_stage() -> Option<Stage> {
    let mut stage = stage()?;
    stage.configure("protectReleasedData", "false");
    stage.add_arg("--discovery-period=1s");
    Some(stage)
}

/// Such a stage with one volume.
fn bare_volume() -> Option<(Stage, PathBuf)> {
    let stage = bare_stage()?;
    let [volume] = fast_volumes(&stage, ["vol"]);
    Some((stage, volume))
}

/// How often the volume was wiped, as the log says it.
fn wipes(provisioner: &Program, path: &Path) -> usize {
    let path = format!("path={}}}: ", path.display());
    let log = provisioner.log();
    let wipes = log.lines().filter(|line| line.contains("cleaning the volume"));
    wipes
        // The last field of the span.
        .filter(|line| line.contains(&path))
        .count()
}

fn entries(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

type Trouble = (&'static str, fn(FaultBuilder) -> Fault);
