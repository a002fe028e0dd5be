//! Which disks become volumes of a class by its rule `devices`, and why no other does.
//!
//! Only a blank disk without a user is taken. A disk that another program is about to prepare looks blank, too, so it has
//! to be there for a while. What is not certain is left alone, with the reason. A filesystem that was made on a disk is
//! mounted again after a boot, also if the rule does not match the disk any more.

mod left_alone;
mod resume;
mod survey;

use std::sync::Arc;

use serde::Serialize;

use crate::config::{Approve, Binding, Class};
use crate::host::mark::{Mark, MarkOnDisk, MarkState};
use crate::inventory::{Candidate, Observation, Skip, Volume};
use crate::view::Ownership;

use super::link::MAX_DISKS;
use super::{About, Action, Planner, reasons};

use survey::{Selection, Survey, Taken};

/// How a disk becomes a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// It is blank, and a link to it becomes the entry.
    Link,
    /// It is blank: a filesystem is made on it and mounted.
    Make,
    /// The filesystem was being made again, to clean the volume, when the provisioner was interrupted.
    Remake,
    /// It has its filesystem, which is mounted.
    Mount,
}

impl Intake {
    /// Whether a disk is new to the class: it has no PV, and an operator approves it.
    pub fn is_new(self, disk: &Candidate) -> bool {
        matches!(self, Self::Link | Self::Make) && disk.mark.on_disk == MarkOnDisk::Absent
    }
}

/// A disk that becomes a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskOrder {
    /// The volume that it becomes, with the disk as it was found.
    pub volume: Arc<Volume>,
    /// The link below `/dev/disk` that its entry leads to. The entry has the same name.
    pub link: String,
    /// The mark that it has in the end, and a link first.
    pub mark: Mark,
    /// How.
    pub how: Intake,
}

/// The disks that a rule matches, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskReport {
    /// Its link below `/dev/disk`.
    pub link: String,
    /// Its kernel name.
    pub name: String,
    /// The model.
    pub model: Option<String>,
    /// Bytes.
    pub capacity: Option<u64>,
    /// Why it is left alone; none if it is taken in.
    pub left_alone: Option<String>,
}

impl<'a> Planner<'a> {
    /// Takes in the disks that the rule of a class selects, once they are approved, and reports all that it matches with the
    /// class that was reported last.
    pub(super) fn take_disks_in(
        &mut self,
        class: &'a Arc<Class>,
        observation: &'a Observation,
        fault: Option<Skip>,
    ) {
        let Some(rule) = &class.devices else {
            return;
        };
        let classes = self.settings.config.classes.values();
        let others = classes.filter(|it| it.name != class.name);
        let others = others.filter_map(|it| Some((&*it.name, it.devices.as_ref()?)));
        let volumes: Vec<_> = self.volumes().map(|it| &**it).collect();
        let is_bound = |it: &&&Volume| it.class.binding == Binding::Disk;
        let is_taken = |it: &&Action| matches!(it, Action::TakeIn(_));
        let in_use = volumes.iter().filter(is_bound).count()
            + self.plan.actions.iter().filter(is_taken).count();
        let terminating = self.pvs.iter().filter(|pv| {
            let is_committed = pv.deleting && pv.has_finalizer() && !self.must_not_clean(pv);
            is_committed && self.ownership(pv) == Ownership::Ours
        });
        let is_running = |pv| self.cleanup(pv).is_some_and(|it| it.running);
        let terminating = terminating.filter_map(|pv| Some((pv.path()?, is_running(pv))));
        let survey = Survey {
            terminating: terminating.collect(),
            room: MAX_DISKS.saturating_sub(in_use),
            boot_time: self.snapshot.boot_time.as_ref(),
            fault,
            class,
            rule,
            observation,
            volumes,
            others: others.collect(),
        };
        let intake = survey.select();
        let hash = survey.hash(&intake);
        let is_approved =
            rule.approve == Approve::Auto || self.node.approvals.get(&class.name) == Some(&hash);
        let untaken = &self.snapshot.ledger.untaken;
        let taken = intake.taken.iter().map(|(name, it)| {
            let failure = untaken.get(&class.host_dir.join(name));
            // A disk that waits for an approval is in the list, also if an earlier attempt failed.
            let failure = failure.filter(|_| is_approved || !it.is_new());
            survey.report(it.disk, failure.cloned())
        });
        let taken: Vec<_> = taken.collect();
        for why in taken.iter().filter_map(|it| it.left_alone.clone()) {
            self.notice(About::Node(self.node.name.clone()), reasons::DEVICE_FAILED, why);
        }
        // The volumes of the class have reports of their own.
        let left = intake.left.iter().filter(|(_, why)| !survey.is_own(why));
        let left = left.map(|(disk, why)| survey.report(disk, Some(why.to_string())));
        let reports = taken.into_iter().chain(left).collect();
        if let Some(report) = self.plan.classes.last_mut() {
            report.disks = reports;
            report.disks_fault.clone_from(&observation.disks_fault);
        }
        if !is_approved && intake.taken.values().any(Taken::is_new) {
            self.ask_for_approval(class, &intake, hash);
        }
        // A directory that was not read may have an entry for one of the disks.
        let may_be_new = is_approved && self.has_read_all();
        for taken in intake.taken.values() {
            if may_be_new || !taken.is_new() {
                let link = survey.link(taken.disk);
                let volume = Volume::new(class, survey.entry(taken.disk), taken.candidate.clone());
                self.take_in(link, volume, taken.how);
            }
        }
    }

    fn take_in(&mut self, link: &str, volume: Volume, how: Intake) {
        // Its entry is made, and waits for the scan that finds it: to open the disk again would delay its offer.
        let ledger = &self.snapshot.ledger;
        let is_made = ledger.writing.contains(link) || ledger.creating.contains_key(&volume.path);
        let Some(cluster) = self.settings.judges(&volume.candidate).filter(|_| !is_made) else {
            return;
        };
        let mark = Mark {
            cluster: cluster.to_owned(),
            state: MarkState::Free,
            identity_hash: volume.candidate.identity.hash(),
            class: volume.class.name.clone(),
            data_left: Some(false),
            written_at: self.snapshot.date,
            boot_time: self.snapshot.boot_time.clone().filter(|_| how != Intake::Link),
            ..Mark::default()
        };
        self.plan.actions.push(Action::TakeIn(Box::new(DiskOrder {
            volume: Arc::new(volume),
            link: link.to_owned(),
            mark,
            how,
        })));
    }

    /// Whether the directories of all classes were read. The rule of a faulty class is not known.
    fn has_read_all(&self) -> bool {
        let mut classes = self.settings.config.classes.keys();
        let observed = &self.snapshot.observed;
        self.settings.faulty.is_empty()
            && classes.all(|class| observed.get(class).is_some_and(|it| it.complete))
    }

    fn ask_for_approval(&mut self, class: &Class, intake: &Selection<'_>, hash: String) {
        let (name, node) = (&class.name, &self.node.name);
        let new = intake.taken.iter().filter(|(_, it)| it.is_new());
        let entries: Vec<_> = new.map(|(name, _)| name).collect();
        let disks = super::some_of(&entries);
        let message = format!(
            "class {name:?} would take in these blank disks: {disks}; to approve: kubectl local-volume approve {node} --class {name} --plan {hash}"
        );
        self.notice(About::Node(node.clone()), reasons::DEVICES_FOUND, message);
        if let Some(report) = self.plan.classes.last_mut() {
            report.to_approve = Some(hash);
        }
    }
}
