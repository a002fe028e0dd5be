//! The steps of disks that a rule may take in, of the programs that prepare such disks, and of operators who approve.

use std::sync::Arc;
use std::time::Duration;

use control_plane::resource;
use local_volume_provisioner::host::identity::GlobalIdentity;
use local_volume_provisioner::names::APPROVE_PREFIX;
use local_volume_provisioner::types::VolumeMode;
use serde_json::json;
use tokio::time::sleep;

use crate::process::Process;
use crate::processes::Processes;
use crate::script::any;
use crate::spares::{FOREIGN, List, Mishap, RULES, Spare};
use crate::world::{CLASSES, Disk, NODES, Slot, State, World};

/// How many disks with links there are, at most.
const LIMIT: usize = 12;

/// The links of a new disk. Two rules match some disks.
fn links(number: usize, classes: &[usize]) -> Vec<String> {
    let link = |class: &usize| format!("{}{number}", RULES[*class]);
    classes.iter().map(link).collect()
}

impl State {
    fn add(&mut self, node: usize, links: Vec<String>) -> usize {
        let at = self.disks.len();
        let global = GlobalIdentity {
            hash: format!("{at:032}"),
            is_unique: fastrand::bool(),
            is_shared: false,
        };
        self.disks.push(Disk::new(VolumeMode::Block, 1 + at as u64, global));
        let spare = Spare { links, loose_on: Some(node), gone_from: None, mishap: None };
        self.spares.disks.insert(at, spare);
        at
    }

    /// The disks of which a class makes filesystems first.
    pub fn add_blank(&mut self, nodes: usize) {
        for node in 0..nodes {
            for _ in 0..fastrand::usize(1..4) {
                self.add(node, links(self.disks.len(), &[0]));
            }
        }
    }

    /// Another disk is in the place of one, under its links.
    pub fn exchange(&mut self, at: usize) {
        let slot = self.slots.iter().position(|slot| slot.disk == Some(at));
        let Some(node) = self.loose_on(at).or(slot.map(|slot| self.slots[slot].node)) else {
            return;
        };
        let links = self.spares.disks[&at].links.clone();
        let other = self.add(node, links);
        self.disks[other].data = fastrand::bool().then(|| FOREIGN.to_owned());
        self.disks[at].plugged += 1;
        let spare = self.spares.disks.get_mut(&at).unwrap();
        (spare.loose_on, spare.gone_from) = (None, None);
        if let Some(slot) = slot.filter(|slot| self.is_entry_of_made(*slot)) {
            self.plug(slot, None);
        } else if let Some(slot) = slot {
            self.plug(slot, Some(other));
            self.spares.disks.get_mut(&other).unwrap().loose_on = None;
        }
    }

    pub fn vanish(&mut self, at: usize) {
        let slot = self.slots.iter().position(|slot| slot.disk == Some(at));
        let node = self.loose_on(at).or(slot.map(|slot| self.slots[slot].node));
        if let Some(slot) = slot {
            self.plug(slot, None);
        }
        self.disks[at].plugged += 1;
        let spare = self.spares.disks.get_mut(&at).unwrap();
        (spare.loose_on, spare.gone_from) = (None, node);
    }

    /// The disks that have vanished come back, under other names.
    fn come_back(&mut self) {
        let is_nowhere = |at: usize| self.slots.iter().all(|slot| slot.disk != Some(at));
        let nowhere: Vec<_> = (0..self.disks.len()).filter(|at| is_nowhere(*at)).collect();
        for at in nowhere {
            if let Some(spare) = self.spares.disks.get_mut(&at)
                && let Some(node) = spare.gone_from.take()
            {
                spare.loose_on = Some(node);
                for link in &mut spare.links {
                    *link = format!("{link}x{at}");
                }
            }
        }
    }
}

impl Process {
    /// The lists that wait for an approval.
    fn lists(&self) -> Vec<List> {
        let (pass, state) = (self.pass.borrow(), self.world.lock());
        let mut lists = Vec::new();
        for (number, name) in CLASSES.iter().enumerate() {
            let Some(class) = pass.classes.iter().find(|it| it.name == *name) else {
                continue;
            };
            let Some(hash) = &class.to_approve else {
                continue;
            };
            let of_class = |it: &&Slot| (it.node, it.class) == (self.node, number);
            let volumes = state.slots.iter().filter(of_class);
            let waiting = class.disks.iter().filter(|it| it.left_alone.is_none());
            let waiting = waiting.map(|it| it.name.trim_start_matches("sd").parse().unwrap());
            let disks = volumes.filter_map(|it| it.disk).chain(waiting);
            lists.push((self.node, number, disks.collect(), hash.clone()));
        }
        lists
    }
}

impl World {
    /// An operator approves a list, which may be another one by now.
    fn approve(&self, list: List) {
        let key = format!("{APPROVE_PREFIX}{}", CLASSES[list.1]);
        self.annotate(&resource::NODES, "", NODES[list.0], &key, json!(list.3));
        self.lock().spares.approved.push(list);
    }
}

impl Processes<'_> {
    /// A step of the disks that rules may take in, if one is due.
    pub fn step_of_disks(&self, is_calm: bool) -> Option<&'static str> {
        self.world.lock().spares.approve?;
        match fastrand::u8(..32) {
            0..=3 => self.plug_in(),
            4..=6 => {
                let lists = self.running.iter().flat_map(Process::lists);
                let list = any(&lists.collect::<Vec<_>>()).cloned()?;
                self.world.lock().spares.read = Some(list);
                Some("an operator reads a list of disks")
            }
            7..=9 => {
                let list = self.world.lock().spares.read.take()?;
                self.world.approve(list);
                Some("an operator approves a list of disks")
            }
            step @ 10..=13 => self.world.change(|state| {
                let all: Vec<_> = state.spares.disks.keys().copied().collect();
                let at = *any(&all)?;
                Some(match step {
                    10 => {
                        state.prepare(at);
                        "another program prepares a disk"
                    }
                    // Of a volume, no other program knows afterwards whether the former disk was used.
                    11 if !is_calm || state.loose_on(at).is_some() => {
                        state.exchange(at);
                        "a disk is exchanged under its links"
                    }
                    11 | 12 => {
                        state.vanish(at);
                        "a disk vanishes"
                    }
                    _ => {
                        state.come_back();
                        state.disks[at].hangs = false;
                        "disks come back under other links"
                    }
                })
            }),
            _ => None,
        }
    }

    /// A blank disk appears. Another program may be about to prepare it.
    fn plug_in(&self) -> Option<&'static str> {
        let node = any(&self.running)?.node;
        let classes = *any(&[&[0][..], &[1], &[0, 1]])?;
        let at = self.world.change(|state| {
            let at = state.disks.len();
            (state.spares.disks.len() < LIMIT).then(|| state.add(node, links(at, classes)))
        })?;
        let all = [
            Mishap::Prepared,
            Mishap::Exchanged,
            Mishap::Vanishes,
            Mishap::Fails,
            Mishap::Hangs,
            Mishap::Crash,
        ];
        match fastrand::u8(..8) {
            0..=2 => {
                let world = Arc::clone(self.world);
                let after = Duration::from_secs(fastrand::u64(..90));
                tokio::spawn(async move {
                    sleep(after).await;
                    world.change(|state| state.prepare(at));
                });
            }
            3..=5 => {
                let mut state = self.world.lock();
                state.spares.disks.get_mut(&at)?.mishap = any(&all).copied();
            }
            _ => {}
        }
        Some("a blank disk appears")
    }

    /// Why disks are left alone, by the processes.
    pub fn left_alone(&self) -> Vec<String> {
        let passes = self.running.iter().map(|it| it.pass.borrow().clone());
        let classes = passes.flat_map(|pass| pass.classes.clone());
        let disks = classes.flat_map(|class| class.disks);
        disks.map(|it| format!("{}: {:?}", it.link, it.left_alone)).collect()
    }

    /// An operator approves all that waits.
    pub fn approve_all(&self) {
        for list in self.running.iter().flat_map(Process::lists) {
            self.world.approve(list);
        }
    }
}
