//! The embedded control plane, for as long as a run takes.

use std::{fs, path::Path, time::Duration};

use control_plane::{ControlPlane, HostPaths, Options};
use kube::config::Kubeconfig;

use crate::{
    outcome::Record,
    run::{Pace, Runner},
    scenario::Scenario,
};

const RESYNC: Duration = Duration::from_secs(1);

/// It reacts at once, and looks at everything again every second.
const PACE: Pace = Pace {
    quiet: Duration::from_millis(150),
    resync: Duration::from_millis(1050),
    patience: Duration::from_secs(10),
    parallel: 32,
};

/// Where scenarios may have directories deleted; they name none that exists.
const HOST_PATHS: &str = "/tmp/conformance";

/// Where the scenarios are.
#[must_use]
pub fn directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Starts one, runs the scenarios on it, and ends it.
///
/// # Errors
/// It does not start. What a scenario runs into is part of its outcome.
pub async fn run(scenarios: &[Scenario]) -> anyhow::Result<Record> {
    fs::create_dir_all(HOST_PATHS)?;
    let control_plane = ControlPlane::start(Options {
        resync: RESYNC,
        host_paths: Some(HostPaths::below(HOST_PATHS)?),
        ..Options::default()
    })?;
    let kubeconfig = Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
    let record = Runner::start(kubeconfig, PACE).await?.run(scenarios).await;
    // Others may use it, too.
    let _ = fs::remove_dir(HOST_PATHS);
    record
}
