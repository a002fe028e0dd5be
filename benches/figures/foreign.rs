//! What a node hears of the PVs of other nodes.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use support::Stage;

use super::Effort;
use super::table::{Figure, Target};
use super::world::{foreign_pvs, on_stage_with, own_pvs, until, volumes};

/// PVs made for other nodes while we watch.
const FOREIGN: u16 = 1000;
/// How long to wait before bytes are counted: an answer may be on its way.
const SETTLING: Duration = Duration::from_secs(2);

/// Bytes that the API server sent us for each PV made for another node.
pub fn figures(effort: &Effort) -> Result<Vec<Figure>> {
    eprintln!("measuring what is heard of other nodes' PVs ...");
    let bytes = |_| {
        let disk = tempfile::tempdir()?;
        // No bookmarks: the API server sends them at intervals, whether or not a PV has changed.
        on_stage_with(
            effort,
            |options| options.bookmarks = Duration::from_hours(1),
            |stage| {
                volumes(stage, disk.path(), 20)?;
                let _provisioner = stage.provisioner();
                until("all PVs are made", || own_pvs(stage) == 20)?;
                thread::sleep(SETTLING);
                let before = received(stage);
                foreign_pvs(stage, FOREIGN.into())?;
                thread::sleep(SETTLING);
                Ok((received(stage) - before) / f64::from(FOREIGN))
            },
        )
    };
    let measured = (0..effort.rounds(3)).map(bytes).collect::<Result<_>>()?;
    Ok(vec![Figure {
        what: "bytes received per PV of another node",
        measured,
        unit: "B",
        target: Target::Median(0.0),
    }])
}

/// Bytes of the bodies of all answers so far, those of watches as far as they have come.
#[allow(clippy::cast_precision_loss, reason = "a count of bytes")]
fn received(stage: &Stage) -> f64 {
    stage.requests().all().iter().map(|request| request.bytes()).sum::<u64>() as f64
}
