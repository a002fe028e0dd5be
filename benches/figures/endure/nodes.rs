//! The provisioners of many nodes, started at once.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use control_plane::requests::{Request, Verb};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use support::{Program, Stage};

use super::super::Effort;
use super::super::idle::SETTLING;
use super::super::process::memory;
use super::super::table::{Figure, Target};
use super::super::world::{foreign_pvs, on_stage, until_within};
use super::count;

const NODES: usize = 100;
/// Of each node.
const VOLUMES: usize = 24;
/// PVs of nodes that have no provisioner here.
const FOREIGN: usize = 10_000;

/// How soon all nodes are served, and what that costs them and the API server.
pub fn figures(effort: &Effort) -> Result<Vec<Figure>> {
    let nodes = effort.rounds(NODES);
    eprintln!("starting {nodes} provisioners at once ...");
    on_stage(effort, |stage| {
        foreign_pvs(stage, FOREIGN)?;
        measure(effort, stage, nodes)
    })
}

fn measure(effort: &Effort, stage: &Stage, nodes: usize) -> Result<Vec<Figure>> {
    let class = stage.class("fast", &json!({}));
    let volumes: Vec<_> = (0..VOLUMES).map(|disk| class.join(disk.to_string())).collect();
    volumes.iter().try_for_each(fs::create_dir)?;
    let commands: Vec<_> =
        (0..nodes).map(|number| commands(stage, number)).collect::<Result<_>>()?;
    let [start, restart, end] = [(); 3].map(|()| Barrier::new(nodes + 1));
    // On a thread of its own, which lends the processes its mounts.
    let run = |commands: [(Command, PathBuf); 2]| {
        let mounted = unshare(CloneFlags::CLONE_NEWNS).and_then(|()| {
            let mount =
                |at| mount(Some("disk"), at, Some("tmpfs"), MsFlags::empty(), Some("size=1m"));
            volumes.iter().try_for_each(mount)
        });
        let [first, second] = commands;
        start.wait();
        let first = Program::start(first.0, first.1);
        restart.wait();
        drop(first);
        let second = Program::start(second.0, second.1);
        end.wait();
        mounted.context("mounting the volumes of a node")?;
        Ok(memory(&second?)?.resident)
    };
    let run = &run;
    thread::scope(|scope| {
        let running: Vec<_> = commands.into_iter().map(|it| scope.spawn(move || run(it))).collect();
        start.wait();
        let started = phase(effort, stage, || offers(stage) >= nodes * VOLUMES);
        let mark = stage.requests().mark();
        restart.wait();
        let restarted =
            phase(effort, stage, || watches(&stage.requests().since(mark)) >= nodes * 3);
        end.wait();
        let running =
            running.into_iter().map(|it| it.join().map_err(|_| anyhow!("a node panicked"))?);
        let resident: Vec<f64> = running.collect::<Result<_>>()?;
        let (started, restarted) = (started?, restarted?);
        let mut figures = vec![
            count("nodes", nodes, Target::None),
            count("PVs of other nodes", FOREIGN, Target::None),
            count("volumes of each node", VOLUMES, Target::None),
        ];
        figures.extend(started.figures(
            nodes,
            [
                ("from the start to all PVs", 60.0),
                ("watches of each node", 3.0),
                ("reads of each node", 60.0),
                ("writes of each node", 24.0),
                ("received by each node", 128.0),
                ("requests a second of all, at rest", 0.0),
            ],
        ));
        figures.extend(restarted.figures(
            nodes,
            [
                ("from the restart to all watches", 60.0),
                ("watches of each node, restart", 3.0),
                ("reads of each node, restart", 20.0),
                ("writes of each node, restart", 0.0),
                ("received by each node, restart", 64.0),
                ("requests a second of all, at rest again", 0.0),
            ],
        ));
        let target = Target::MedianAndWorst(12.5, 14.0);
        figures.push(Figure { what: "RSS of each", measured: resident, unit: "MiB", target });
        Ok(figures)
    })
}

/// A start of all nodes, and the rest after it.
struct Phase {
    time: Duration,
    requests: Vec<Arc<Request>>,
    /// A second.
    at_rest: f64,
}

/// Waits until all nodes have done what is to be done, and are at rest.
#[allow(clippy::cast_precision_loss, reason = "a count of requests")]
fn phase(effort: &Effort, stage: &Stage, is_done: impl FnMut() -> bool) -> Result<Phase> {
    let (begun, requests) = (Instant::now(), stage.requests());
    let first = requests.mark();
    until_within(Duration::from_mins(5), "all nodes are served", is_done)?;
    let time = begun.elapsed();
    thread::sleep(SETTLING);
    let asked = requests.since(first);
    let mark = requests.mark();
    thread::sleep(effort.idle());
    let at_rest = requests.since(mark).len() as f64 / effort.idle().as_secs_f64();
    Ok(Phase { time, requests: asked, at_rest })
}

impl Phase {
    #[allow(clippy::cast_precision_loss, reason = "counts of requests and bytes")]
    fn figures(&self, nodes: usize, targets: [(&'static str, f64); 6]) -> [Figure; 6] {
        let each = |count: usize| count as f64 / nodes as f64;
        let watches = watches(&self.requests);
        let writes = self.requests.iter().filter(|it| it.writes()).count();
        let reads = self.requests.len() - watches - writes;
        let bytes = self.requests.iter().map(|it| it.bytes()).sum::<u64>();
        let received = bytes as f64 / 1024.0 / nodes as f64;
        let units = ["s", "", "", "", "KiB", ""];
        let time = self.time.as_secs_f64();
        let values = [time, each(watches), each(reads), each(writes), received, self.at_rest];
        std::array::from_fn(|it| Figure {
            what: targets[it].0,
            measured: vec![values[it]],
            unit: units[it],
            target: Target::Median(targets[it].1),
        })
    }
}

/// How many PVs have been created.
fn offers(stage: &Stage) -> usize {
    stage.requests().count(|it| {
        it.verb == Verb::Create && it.resource == "persistentvolumes" && it.status() == 201
    })
}

fn watches(requests: &[Arc<Request>]) -> usize {
    requests.iter().filter(|it| it.verb == Verb::Watch).count()
}

/// The commands that start and restart the provisioner of a node, and where their logs are written.
fn commands(stage: &Stage, number: usize) -> Result<[(Command, PathBuf); 2]> {
    let node = format!("{}-{number}", stage.node());
    stage.register_node(&node, Some(&node));
    let directory = stage.sandbox.dir(&format!("state-{number}"))?;
    let directory = directory.to_str().context("a directory of the sandbox")?;
    let environment = [("MY_NODE_NAME", &*node), ("STATE_DIRECTORY", directory)];
    let command = |log| {
        let log = stage.sandbox.path().join(format!("{node}-{log}"));
        (stage.provisioner_command(&environment), log)
    };
    Ok(["first.log", "second.log"].map(command))
}
