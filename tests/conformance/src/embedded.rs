//! Embedded control planes, for as long as a run takes.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use control_plane::{ControlPlane, HostPaths, Options};
use futures::future::try_join_all;
use kube::config::Kubeconfig;

use crate::{
    outcome::Record,
    run::{Pace, Runner},
    scenario::Scenario,
};

const RESYNC: Duration = Duration::from_secs(1);

/// It reacts at once, and resyncs every second.
const PACE: Pace =
    Pace { quiet: Duration::from_millis(150), timeout: Duration::from_mins(1), parallel: 100 };

/// Where scenarios may have directories deleted; they name none that exists.
const HOST_PATHS: &str = "/tmp/conformance";

pub fn directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn record() -> PathBuf {
    directory().join("real")
}

/// Starts one, runs the scenarios on it, and ends it. Scenarios that need a cluster for themselves
/// get one.
pub async fn run(scenarios: &[Scenario]) -> anyhow::Result<Record> {
    let (alone, together): (Vec<_>, Vec<_>) = scenarios.iter().cloned().partition(|s| s.alone);
    let mut crowds: Vec<_> = alone.into_iter().map(|scenario| vec![scenario]).collect();
    crowds.push(together);
    fs::create_dir_all(HOST_PATHS)?;
    let records = try_join_all(crowds.iter().map(|crowd| on_one(crowd))).await;
    // Others may use it, too.
    let _ = fs::remove_dir(HOST_PATHS);
    let mut all = Record::default();
    for record in records? {
        all.server = record.server;
        all.scenarios.extend(record.scenarios);
    }
    Ok(all)
}

async fn on_one(scenarios: &[Scenario]) -> anyhow::Result<Record> {
    let control_plane = ControlPlane::start(Options {
        resync: RESYNC,
        host_paths: Some(HostPaths::below(HOST_PATHS)?),
        ..Options::default()
    })?;
    let kubeconfig = Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
    Runner::start(kubeconfig, PACE).await?.run(scenarios).await
}
