//! What a node costs on which nothing happens, in an empty cluster and in a large one.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use control_plane::requests::Verb;

use super::Effort;
use super::process::{Memory, cpu_time, memory};
use super::table::{Figure, Target};
use super::world::{foreign_pvs, on_stage, own_pvs, until, volumes};

/// PVs of other nodes in a large cluster.
const FOREIGN: usize = 10_000;
/// How long after start the program is left alone: its first pass by the timer is over then.
pub const SETTLING: Duration = Duration::from_secs(12);

/// What one idle minute showed.
struct Idle {
    memory: Memory,
    /// CPU time in seconds.
    cpu: f64,
    /// Requests other than watches.
    requests: f64,
}

/// Memory, CPU time and API requests of a node with twenty volumes.
pub fn figures(effort: &Effort) -> Result<Vec<Figure>> {
    let rounds = effort.rounds(3);
    eprintln!("measuring {rounds} idle time(s) of {:?} ...", SETTLING + effort.idle());
    let (mut empty, mut large) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        // Side by side: idle processes do not disturb each other.
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(|| idle(effort, 20, FOREIGN));
            (idle(effort, 20, 0), other.join())
        });
        empty.push(one?);
        large.push(other.map_err(|_| anyhow!("the measurement panicked"))??);
    }
    let all = |idles: &[Idle], value: fn(&Idle) -> f64| idles.iter().map(value).collect::<Vec<_>>();
    let both = |names: [&'static str; 2], unit, target, value| {
        let [in_empty, in_large] = names;
        [(in_empty, &empty), (in_large, &large)].map(|(what, idles)| Figure {
            what,
            measured: all(idles, value),
            unit,
            target,
        })
    };
    let more = empty.iter().zip(&large);
    let more = more.map(|(empty, large)| large.memory.resident - empty.memory.resident).collect();
    let mut figures = Vec::new();
    figures.extend(both(
        ["RSS, 20 volumes, empty cluster", "RSS, 20 volumes, 10,000 foreign PVs"],
        "MiB",
        Target::Median(11.0),
        |idle| idle.memory.resident,
    ));
    figures.push(Figure {
        what: "RSS that 10,000 foreign PVs add",
        measured: more,
        unit: "MiB",
        target: Target::Median(0.5),
    });
    figures.extend(both(
        ["of RSS anonymous, empty cluster", "of RSS anonymous, 10,000 foreign PVs"],
        "MiB",
        Target::None,
        |idle| idle.memory.anonymous,
    ));
    figures.extend(both(
        [
            "API requests of an idle minute, empty cluster",
            "API requests of an idle minute, 10,000 foreign PVs",
        ],
        "",
        Target::Median(0.0),
        |idle| idle.requests,
    ));
    figures.extend(both(
        ["CPU of an idle minute, empty cluster", "CPU of an idle minute, 10,000 foreign PVs"],
        "s",
        Target::Median(0.01),
        |idle| idle.cpu,
    ));
    for (count, what) in [
        (200, "CPU of an idle minute, 200 volumes"),
        (1000, "CPU of an idle minute, 1,000 volumes"),
    ] {
        figures.push(Figure {
            what,
            measured: vec![idle(effort, count, 0)?.cpu],
            unit: "s",
            target: Target::None,
        });
    }
    Ok(figures)
}

#[allow(clippy::cast_precision_loss, reason = "a count of requests")]
fn idle(effort: &Effort, count: usize, foreign: usize) -> Result<Idle> {
    let disk = tempfile::tempdir()?;
    on_stage(effort, |stage| {
        foreign_pvs(stage, foreign)?;
        volumes(stage, disk.path(), count)?;
        let provisioner = stage.provisioner();
        until("all PVs are made", || own_pvs(stage) == count)?;
        thread::sleep(SETTLING);
        let memory = memory(&provisioner)?;
        let log = stage.requests();
        let (mark, before) = (log.mark(), cpu_time(&provisioner)?);
        thread::sleep(effort.idle());
        let cpu = cpu_time(&provisioner)?.saturating_sub(before);
        let requests = log.since(mark).iter().filter(|it| it.verb != Verb::Watch).count();
        let share = effort.idle().as_secs_f64() / 60.0;
        Ok(Idle { memory, cpu: cpu.as_secs_f64() / share, requests: requests as f64 / share })
    })
}
