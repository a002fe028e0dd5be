//! How soon a volume is offered again once its claim is gone.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use support::stage::{name, on_real_cluster, phase, uid};

use super::Effort;
use super::table::{Figure, Target};
use super::world::{on_stage, until};

/// From the deletion of a claim to a fresh Available PV for its path: one empty volume.
pub fn figures(effort: &Effort) -> Result<Vec<Figure>> {
    eprintln!("measuring how soon a released volume is offered again ...");
    let measured = on_stage(effort, |stage| {
        stage.class("fast", &json!({}));
        let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m")?;
        let _provisioner = stage.provisioner();
        let mut seconds = Vec::new();
        for round in 0..effort.rounds(20) {
            let claim = format!("claim-{round}");
            let bound = stage.bind(&claim, &volume);
            let begun = Instant::now();
            stage.delete_claim(&claim);
            until("a fresh PV is available", || {
                let pv = stage.pv(&name(&bound));
                pv.is_some_and(|pv| phase(&pv) == "Available" && uid(&pv) != uid(&bound))
            })?;
            seconds.push(begun.elapsed().as_secs_f64());
        }
        Ok(seconds)
    })?;
    Ok(vec![Figure {
        what: "claim deleted to fresh Available PV",
        measured,
        unit: "s",
        target: if on_real_cluster() {
            Target::Median(0.5)
        } else {
            Target::MedianAndWorst(0.15, 1.0)
        },
    }])
}
