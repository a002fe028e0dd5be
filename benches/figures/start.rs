//! How soon a node with many volumes is served.

use std::time::Instant;

use anyhow::Result;
use control_plane::requests::Verb;
use serde_json::json;
use support::stage::on_real_cluster;

use super::Effort;
use super::table::{Figure, Target};
use super::world::{Kind, mount_volumes, on_stage, own_pvs, until};

const VOLUMES: usize = 1000;

/// From the start of the process to the PV of the last of 1,000 mounted volumes.
pub fn figures(effort: &Effort) -> Result<Vec<Figure>> {
    let kinds =
        [(Kind::Tmpfs, "1,000 tmpfs to 1,000 PVs"), (Kind::Bind, "1,000 bind mounts to 1,000 PVs")];
    kinds.map(|(kind, what)| figure(effort, kind, what)).into_iter().collect()
}

fn figure(effort: &Effort, kind: Kind, what: &'static str) -> Result<Figure> {
    eprintln!("measuring {what} ...");
    let seconds = |_| {
        let disk = tempfile::tempdir()?;
        on_stage(effort, |stage| {
            stage.class("fast", &json!({}));
            mount_volumes(stage, disk.path(), kind, VOLUMES)?;
            let requests = stage.requests();
            let begun = Instant::now();
            let _provisioner = stage.provisioner();
            until("all PVs are made", || {
                requests.count(|it| it.verb == Verb::Create && it.status() == 201) >= VOLUMES
                    && own_pvs(stage) == VOLUMES
            })?;
            Ok(begun.elapsed().as_secs_f64())
        })
    };
    let measured = (0..effort.rounds(5)).map(seconds).collect::<Result<_>>()?;
    Ok(Figure {
        what,
        measured,
        unit: "s",
        target: Target::Median(if on_real_cluster() { 5.0 } else { 2.0 }),
    })
}
