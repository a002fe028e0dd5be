//! A node that recycles very many volumes, a few or all of them at once.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Effort;
use super::super::busy::{RECYCLED, recycle};
use super::super::table::{Figure, Target};
use super::super::world::{on_stage, own_pvs, until, volumes};
use super::{Held, RSS_GROWTH, WARM_UP, count, resident};

/// Volumes of a large node.
const MANY: usize = 1000;

/// What the process holds after 5 % of the recycled volumes, and after all of them.
pub fn recycled_one_by_one(effort: &Effort) -> Result<Vec<Figure>> {
    let rounds = effort.rounds(2_500);
    let first = rounds / 20;
    eprintln!("recycling {} volumes ...", rounds * RECYCLED);
    on_stage(effort, |stage| {
        let disk = tempfile::tempdir()?;
        volumes(stage, disk.path(), RECYCLED)?;
        let provisioner = stage.provisioner();
        recycle(stage, RECYCLED, first)?;
        let early = Held::by(&provisioner)?;
        recycle(stage, RECYCLED, rounds / 2 - first)?;
        let middle = Held::by(&provisioner)?;
        recycle(stage, RECYCLED, rounds - rounds / 2)?;
        let late = Held::by(&provisioner)?;
        let mut figures = vec![count("recycled volumes", rounds * RECYCLED, Target::None)];
        figures.extend(early.changes(&late, WARM_UP));
        figures.push(middle.growth("growth of RSS, second half", &late, RSS_GROWTH));
        Ok(figures)
    })
}

/// From the start to PVs for 1,000 volumes, and from 1,000 claims to as many new PVs.
pub fn recycled_at_once(effort: &Effort) -> Result<Vec<Figure>> {
    let many = effort.rounds(MANY);
    eprintln!("offering and recycling {many} volumes at once ...");
    on_stage(effort, |stage| {
        let disk = tempfile::tempdir()?;
        volumes(stage, disk.path(), many)?;
        let requests = stage.requests();
        let begun = Instant::now();
        let provisioner = stage.provisioner();
        until("all PVs are made", || own_pvs(stage) == many)?;
        let offered = begun.elapsed();
        let idle = Held::by(&provisioner)?;
        let asked = requests.all().len();
        let mark = requests.mark();
        let begun = Instant::now();
        recycle(stage, many, 1)?;
        let recycled = begun.elapsed();
        let late = Held::by(&provisioner)?;
        let seconds = |what, time: Duration, limit| Figure {
            what,
            measured: vec![time.as_secs_f64()],
            unit: "s",
            target: Target::Median(limit),
        };
        Ok(vec![
            count("volumes", many, Target::None),
            seconds("from the start to all PVs", offered, 10.0),
            count("requests until then", asked, Target::None),
            resident("RSS then", idle.resident, Target::Median(64.0)),
            seconds("from the claims to new PVs of all", recycled, 600.0),
            count("requests for that", requests.since(mark).len(), Target::None),
            resident("RSS after that", late.resident, Target::Median(64.0)),
            count("threads", late.threads, Target::None),
        ])
    })
}
