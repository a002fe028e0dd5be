//! What a node costs where much goes on: claims that come and go, and mounts that concern no volume.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use support::Stage;
use support::stage::phase;

use super::Effort;
use super::idle::SETTLING;
use super::process::{cpu_time, memory};
use super::table::{Figure, Target};
use super::world::{on_stage, own_pvs, until, until_within, volumes};

/// Volumes that are recycled together.
pub const RECYCLED: usize = 20;
/// How long all volumes of a node may take.
const RECYCLING: Duration = Duration::from_mins(10);
/// The pause between a mount and its end, and between two mounts: twenty of them a second.
const MOUNT_PAUSE: Duration = Duration::from_millis(25);

/// Memory after many recycled volumes, and CPU time beside mounts of others.
pub fn figures(effort: &Effort) -> Result<Vec<Figure>> {
    eprintln!("measuring a node on which much goes on ...");
    let recycles = RECYCLED * effort.rounds(200);
    let mut figures = vec![Figure {
        what: if effort.quick {
            "RSS after 1,000 recycled volumes"
        } else {
            "RSS after 4,000 recycled volumes"
        },
        measured: vec![on_stage(effort, |stage| recycled(stage, recycles))?],
        unit: "MiB",
        target: Target::Median(16.0),
    }];
    for (count, what) in [
        (20, "CPU of a minute with 20 mounts a second, 20 volumes"),
        (500, "CPU of a minute with 20 mounts a second, 500 volumes"),
    ] {
        let measured = on_stage(effort, |stage| beside_mounts(effort, stage, count))?;
        figures.push(Figure {
            what,
            measured: vec![measured],
            unit: "s",
            target: Target::Median(0.2),
        });
    }
    Ok(figures)
}

/// The memory in MiB of a node that has recycled volumes.
fn recycled(stage: &Stage, recycles: usize) -> Result<f64> {
    let disk = tempfile::tempdir()?;
    volumes(stage, disk.path(), RECYCLED)?;
    let provisioner = stage.provisioner();
    recycle(stage, RECYCLED, recycles / RECYCLED)?;
    thread::sleep(SETTLING);
    Ok(memory(&provisioner)?.resident)
}

/// Binds and releases all `count` volumes of the node at once, `rounds` times.
pub fn recycle(stage: &Stage, count: usize, rounds: usize) -> Result<()> {
    let in_phase = |wanted| stage.pvs().iter().filter(|pv| phase(pv) == wanted).count();
    for round in 0..rounds {
        until_within(RECYCLING, "all PVs are available", || in_phase("Available") == count)?;
        let claims: Vec<_> = (0..count).map(|it| format!("claim-{round}-{it}")).collect();
        for claim in &claims {
            stage.claim(claim, "fast", None);
        }
        until("all PVs are bound", || in_phase("Bound") == count)?;
        for claim in &claims {
            stage.delete_claim(claim);
        }
    }
    until_within(RECYCLING, "all PVs are available", || in_phase("Available") == count)
}

/// The CPU seconds of a minute in which another filesystem is mounted and unmounted twenty times a second.
fn beside_mounts(effort: &Effort, stage: &Stage, count: usize) -> Result<f64> {
    let disk = tempfile::tempdir()?;
    volumes(stage, disk.path(), count)?;
    let point = stage.sandbox.dir("elsewhere")?;
    let provisioner = stage.provisioner();
    until("all PVs are made", || own_pvs(stage) == count)?;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        // A thread of this one, so that it has the same mounts.
        let mounting = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let (source, options) = (Some("elsewhere"), Some("size=1m"));
                mount(source, &point, Some("tmpfs"), MsFlags::empty(), options)?;
                thread::sleep(MOUNT_PAUSE);
                umount2(&point, MntFlags::MNT_DETACH)?;
                thread::sleep(MOUNT_PAUSE);
            }
            Ok::<_, nix::Error>(())
        });
        let measured = (|| {
            thread::sleep(SETTLING);
            let before = cpu_time(&provisioner)?;
            thread::sleep(effort.idle());
            anyhow::Ok(cpu_time(&provisioner)?.saturating_sub(before))
        })();
        ends.store(true, Ordering::Relaxed);
        let mounted = mounting.join().map_err(|_| anyhow!("the mounts panicked"))?;
        mounted.context("mounting elsewhere")?;
        Ok(measured?.as_secs_f64() * 60.0 / effort.idle().as_secs_f64())
    })
}
