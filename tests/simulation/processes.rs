//! The processes of a world, and their configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use control_plane::InProcess;
use local_volume_provisioner::config::{Loaded, from_files};

use crate::process::{Log, Process};
use crate::run::Size;
use crate::spares::RULES;
use crate::world::{CLASSES, NODES, World, pause};

/// The processes of a world, some of them twice for a while, as in a rolling update.
pub struct Processes<'a> {
    pub api: &'a InProcess,
    pub world: &'a Arc<World>,
    pub log: Log,
    pub loaded: Loaded,
    pub size: Size,
    pub running: Vec<Process>,
    /// The machine that has failed.
    pub off: Option<usize>,
}

impl Processes<'_> {
    pub fn start(&mut self, node: usize) {
        let (service, world) = (self.api.service(), self.world);
        let process = Process::start(service, node, world, &self.loaded, &self.log);
        self.running.push(process);
    }

    /// Ends a process, and starts another one on its node if it was the last one there.
    async fn restart(&mut self, at: usize) {
        let process = self.running.swap_remove(at);
        let node = process.node;
        if process.is_alive() && fastrand::u8(..3) == 0 {
            process.stop().await;
        } else {
            process.kill().await;
        }
        if self.running.iter().all(|it| it.node != node) {
            pause(10_000).await;
            self.start(node);
        }
    }

    pub async fn restart_crashed(&mut self) {
        while let Some(at) = self.running.iter().position(|it| !it.is_alive()) {
            self.restart(at).await;
        }
    }

    /// Of two processes of a node, the older one ends.
    pub async fn end_updates(&mut self) {
        for node in 0..NODES.len() {
            let of_node = |process: &Process| process.node == node;
            while self.running.iter().filter(|it| of_node(it)).count() > 1 {
                let at = self.running.iter().position(of_node).unwrap();
                self.restart(at).await;
            }
        }
    }

    pub fn reload(&mut self, loaded: Loaded) {
        self.loaded = loaded;
        for process in &self.running {
            process.reload(&self.loaded);
        }
    }

    /// A step of the processes, if one is due.
    pub async fn step(&mut self) -> Option<&'static str> {
        let at = fastrand::usize(..self.running.len());
        match fastrand::u8(..48) {
            0..=2 => {
                self.restart(at).await;
                Some("a process is restarted")
            }
            3 => {
                self.end_updates().await;
                self.start(self.running[0].node);
                Some("a process is updated")
            }
            4 | 5 => {
                self.reload(configuration(
                    fastrand::u8(..4) == 0,
                    self.size,
                    self.world.lock().spares.approve,
                ));
                Some("the configuration is changed")
            }
            _ => None,
        }
    }
}

/// A valid configuration; `is_broken`: one that lacks a class, and has no rules.
pub fn configuration(is_broken: bool, size: Size, approve: Option<&str>) -> Loaded {
    let binding = match size.binding {
        "path" => String::new(),
        other => format!(", binding: {other}"),
    };
    let class = |(at, name): (usize, &str)| {
        let mode = ["Filesystem", "Block"][at];
        // Without its rule, a class would offer a disk that is exchanged under the link of an entry.
        let policy = ["Any", "EmptyOnly"][fastrand::usize(..2)];
        let policy = approve.filter(|_| is_broken).map_or(policy, |_| "EmptyOnly");
        let rule = approve.filter(|_| !is_broken).map_or_else(String::new, |approve| {
            let filesystem = match name {
                "c0" if size.makes_filesystems => ", filesystem: xfs",
                _ => "",
            };
            format!(", devices: {{match: [{}*], approve: {approve}{filesystem}}}", RULES[at])
        });
        format!(
            "{name}: {{hostDir: /mnt/{name}, mountDir: /mnt/{name}, volumeMode: {mode}, discoveryPolicy: {policy}, cleanMethod: quick{binding}{rule}}}\n"
        )
    };
    let first = if is_broken { fastrand::usize(..2) } else { 0 };
    let count = if is_broken { 1 } else { 2 };
    let classes = CLASSES.into_iter().enumerate().skip(first).take(count);
    let classes: String = classes.map(class).collect();
    let files = BTreeMap::from([
        ("storageClassMap".to_owned(), classes),
        ("maxConcurrentCleanups".to_owned(), fastrand::u8(1..4).to_string()),
        ("protectReleasedData".to_owned(), fastrand::bool().to_string()),
        ("setPVOwnerRef".to_owned(), fastrand::bool().to_string()),
        ("useJobForCleaning".to_owned(), fastrand::bool().to_string()),
    ]);
    let loaded = from_files(&files).unwrap();
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    loaded
}
