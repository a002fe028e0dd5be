//! Disks that a rule may take in: what `/dev/disk` of a node shows of them, and how they become entries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use local_volume_provisioner::cleanup::Obstacle;
use local_volume_provisioner::config::Class;
use local_volume_provisioner::host::mark::MarkOnDisk;
use local_volume_provisioner::host::mounts::DeviceNumber;
use local_volume_provisioner::inventory::{BlockDisk, DiskContents};
use local_volume_provisioner::plan::DiskOrder;
use local_volume_provisioner::types::VolumeMode;

use crate::host::SimHost;
use crate::made::{Format, entry_of_made};
use crate::process::elapsed;
use crate::world::{CLASSES, Slot, State, pause};

/// What the rule of each class matches.
pub const RULES: [&str; CLASSES.len()] = ["/dev/disk/by-id/c0-", "/dev/disk/by-id/c1-"];
/// What another program writes.
pub const FOREIGN: &str = "another program";
/// The same as those of the survey of a machine.
const SETTLED: Duration = Duration::from_mins(1);
const MAX_AGE: Duration = Duration::from_secs(30);
/// How old what a plan knows of the volumes of a class may be.
const STALE: Duration = Duration::from_secs(15);

/// What happens to a disk while it is taken in.
#[derive(Clone, Copy, Debug)]
pub enum Mishap {
    Prepared,
    Exchanged,
    Vanishes,
    Fails,
    Hangs,
    /// The process crashes between the entry and the next scan.
    Crash,
}

/// A disk with links.
#[derive(Debug)]
pub struct Spare {
    /// The links, sorted.
    pub links: Vec<String>,
    /// The node where it is without an entry.
    pub loose_on: Option<usize>,
    /// The node where it was when it vanished.
    pub gone_from: Option<usize>,
    pub mishap: Option<Mishap>,
}

/// A list of disks: the node, the class, the disks that are volumes then, and the hash.
pub type List = (usize, usize, BTreeSet<usize>, String);

#[derive(Debug, Default)]
pub struct Spares {
    /// By disk.
    pub disks: BTreeMap<usize, Spare>,
    /// Who approves; `None`: no class has a rule.
    pub approve: Option<&'static str>,
    /// The list that an operator has read.
    pub read: Option<List>,
    pub approved: Vec<List>,
    pub entries: u64,
    /// Whether the first class makes filesystems.
    pub makes: bool,
    /// Whether the script has ended, and with it all faults.
    pub is_quiet: bool,
    /// The marks of filesystems in the state directories of nodes, each with the attribute that it replaces.
    pub kept: BTreeMap<(usize, usize), (MarkOnDisk, MarkOnDisk)>,
    /// How often nodes have booted.
    pub boots: BTreeMap<usize, u64>,
}

/// What a scanner remembers: the links and contents of each disk, since when they are the same, and when it was read.
pub type Seen = BTreeMap<usize, (Vec<String>, DiskContents, Duration, Duration)>;

impl State {
    /// The node on which a disk has no entry.
    pub fn loose_on(&self, at: usize) -> Option<usize> {
        let mut slots = self.slots.iter();
        let loose_on = self.spares.disks.get(&at)?.loose_on;
        loose_on.filter(|_| slots.all(|slot| slot.disk != Some(at)))
    }

    fn is_on(&self, node: usize, at: usize) -> bool {
        self.loose_on(at) == Some(node) || self.slot_of(node, at).is_some()
    }

    /// Another program writes to a disk that has no entry, and was no volume.
    pub fn prepare(&mut self, at: usize) {
        let is_unmarked = |node| self.mark(node, at) == MarkOnDisk::Absent;
        let was_made = self.disks[at].made.identity.is_some();
        if !was_made && self.loose_on(at).is_some_and(is_unmarked) {
            self.disks[at].data = Some(FOREIGN.to_owned());
        }
    }

    /// What is to happen to a disk that is taken in, and has begun: the disk hangs, or the process crashes after a number of
    /// effects.
    pub fn begin_mishap(&mut self, at: usize, effects: impl Fn() -> u64) -> Option<Mishap> {
        let mishap = self.spares.disks.get_mut(&at)?.mishap.take();
        self.disks[at].hangs |= matches!(mishap, Some(Mishap::Hangs));
        if matches!(mishap, Some(Mishap::Crash)) {
            self.crash_after = Some(self.effects + effects());
        }
        mishap
    }

    /// The rest of it.
    pub fn end_mishap(&mut self, at: usize, mishap: Option<Mishap>) {
        match mishap {
            Some(Mishap::Prepared) => self.prepare(at),
            Some(Mishap::Exchanged) if self.loose_on(at).is_some() => self.exchange(at),
            Some(Mishap::Vanishes) => self.vanish(at),
            _ => {}
        }
    }

    pub fn contents(&self, at: usize) -> DiskContents {
        let disk = &self.disks[at];
        match (disk.made.format, &disk.data) {
            (Format::Complete, _) => DiskContents::Made,
            (Format::None, None) => DiskContents::Blank,
            _ if at.is_multiple_of(2) => DiskContents::Data,
            (_, data) => DiskContents::Signature(data.clone().unwrap_or_default()),
        }
    }

    /// Finds the disks that the rule of a class matches.
    pub fn survey(
        &self,
        node: usize,
        class: &Class,
        seen: &mut Seen,
    ) -> Result<Vec<BlockDisk>, String> {
        let (before, now) = (std::mem::take(seen), elapsed());
        let Some(rule) = &class.devices else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for (&at, spare) in &self.spares.disks {
            let (disk, links) = (&self.disks[at], &spare.links);
            if !self.is_on(node, at) || !links.iter().any(|link| rule.matches(link)) {
                continue;
            }
            if disk.hangs {
                seen.clear();
                return Err("a disk did not answer".into());
            }
            let last = before.get(&at);
            let known = last.filter(|it| now < it.3 + MAX_AGE);
            let contents = known.map_or_else(|| self.contents(at), |it| it.1.clone());
            let same = last.filter(|it| (&it.0, &it.1) == (links, &contents));
            let since = same.map_or(now, |it| it.2);
            let read = same.and(known).map_or(now, |it| it.3);
            seen.insert(at, (links.clone(), contents.clone(), since, read));
            found.push(BlockDisk {
                other_paths: Vec::new(),
                links: links.clone(),
                name: format!("sd{at}"),
                number: DeviceNumber { major: 8, minor: 16 * (u32::try_from(at).unwrap() + 1) },
                model: None,
                special: None,
                partitions: Vec::new(),
                candidate: Ok(self.candidate_as(VolumeMode::Block, node, at, false)),
                contents: Ok(contents),
                is_settled: now >= since + SETTLED,
            });
        }
        Ok(found)
    }

    /// The disk to which a link leads. That of a disk with an entry has the name of the entry.
    pub fn linked(&self, node: usize, link: &str) -> Option<usize> {
        let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
        let is_there = |(at, spare): &(&usize, &Spare)| match self.slot_of(node, **at) {
            Some(slot) => name(&slot.path) == name(link),
            None => self.loose_on(**at) == Some(node) && spare.links.iter().any(|it| it == link),
        };
        self.spares.disks.iter().find(is_there).map(|it| *it.0)
    }

    /// Checks that a disk may become a volume. Returns its class.
    pub fn check_intake(
        &mut self,
        node: usize,
        at: usize,
        order: &DiskOrder,
        begun: Duration,
    ) -> usize {
        let path = &order.volume.path;
        let mut classes = CLASSES.iter();
        let class = classes.position(|it| *it == order.volume.class.name).unwrap();
        let links = &self.spares.disks[&at].links;
        let is_of_rule = |rule: &&&str| links.iter().any(|it| it.starts_with(**rule));
        let of_class =
            |it: &&Slot| it.node == node && it.class == class && it.changed_at + STALE < begun;
        let volumes = self.slots.iter().filter(of_class);
        // A list has the disks that the rule matches.
        let mut volumes: BTreeSet<_> = volumes.filter_map(|it| it.disk).chain([at]).collect();
        volumes.retain(|at| self.spares.disks.contains_key(at));
        let mut approved = self.spares.approved.iter();
        let is_approved = self.spares.approve == Some("Auto")
            || approved.any(|it| (it.0, it.1) == (node, class) && volumes.is_subset(&it.2));
        let faults = [
            (self.contents(at) != DiskContents::Blank, "it is not blank"),
            (RULES.iter().filter(is_of_rule).count() != 1, "two rules match it"),
            (self.slots.iter().any(|it| it.disk == Some(at)), "it has an entry"),
            (!is_approved, "no operator has approved it"),
        ];
        for (_, fault) in faults.iter().filter(|it| it.0) {
            self.violation(&format!("disk {at} becomes {path}, but {fault}"));
        }
        self.spares.entries += 1;
        class
    }

    /// Makes an entry, and checks that it may be there.
    fn enter(&mut self, node: usize, at: usize, order: &DiskOrder, begun: Duration) {
        let path = order.volume.path.to_string();
        if self.slot(node, &path).is_some() {
            return;
        }
        let class = self.check_intake(node, at, order, begun);
        for slot in &mut self.slots {
            slot.home = slot.home.filter(|home| *home != at);
        }
        self.slots.push(Slot {
            node,
            class,
            path,
            disk: None,
            home: Some(at),
            changed_at: elapsed(),
        });
        self.plug(self.slots.len() - 1, Some(at));
        self.spares.disks.get_mut(&at).unwrap().loose_on = None;
    }

    /// Whether the directory of a filesystem on a disk is there.
    fn has_directory(&self, at: usize, link: &str) -> bool {
        let path = entry_of_made(link);
        let node = self.loose_on(at);
        self.spares.makes && node.is_some_and(|node| self.slot(node, &path).is_some())
    }

    /// Why a blank disk that one rule matches waits without a reason.
    pub fn untaken(&self) -> Option<String> {
        self.spares.approve?;
        let mut spares = self.spares.disks.iter();
        let waits = |(at, spare): &(&usize, &Spare)| {
            let is_unmarked = |node| self.mark(node, **at) == MarkOnDisk::Absent;
            self.loose_on(**at).is_some_and(is_unmarked)
                && self.disks[**at].data.is_none()
                && spare.links.len() == 1
                // Its entry may be that of another disk.
                && spare.links.iter().all(|link| !self.has_directory(**at, link))
        };
        if let Some(why) = self.unmounted() {
            return Some(why);
        }
        let (at, spare) = spares.find(waits)?;
        Some(format!("disk {at}, {:?}, is not taken in", spare.links))
    }
}

impl SimHost {
    /// Makes the entry of a disk, unless it is not the one of the order any more. It does not end with its task.
    pub async fn take_disk_in(self, order: DiskOrder) -> Result<(), Obstacle> {
        let unknown = |why: &str| Err(Obstacle::Unknown(why.into()));
        let (node, begun) = (self.node, elapsed());
        let Some(at) = self.world.lock().linked(node, &order.link) else {
            return unknown("it is gone");
        };
        let mishap = self.world.change(|state| state.begin_mishap(at, || 1));
        if matches!(mishap, Some(Mishap::Fails)) {
            return unknown("an I/O error");
        }
        self.world.answers(at).await;
        self.goes_on().await;
        let plugged = self.world.lock().disks[at].plugged;
        // Another program is faster than the provisioner.
        self.world.change(|state| state.end_mishap(at, mishap));
        pause(20).await;
        self.goes_on().await;
        self.world.change(|state| {
            let found = state.candidate(node, at, false);
            let planned = &order.volume.candidate;
            let is_same = (&found.identity, found.capacity, &found.mark)
                == (&planned.identity, planned.capacity, &planned.mark);
            if state.linked(node, &order.link) != Some(at) || state.disks[at].plugged != plugged {
                return unknown("it is gone");
            }
            if !is_same || state.contents(at) != DiskContents::Blank {
                return unknown("it has been exchanged, marked or written to");
            }
            state.set_mark(node, at, MarkOnDisk::Valid(order.mark.clone()));
            state.enter(node, at, &order, begun);
            Ok(())
        })?;
        self.effect().await;
        Ok(())
    }
}
