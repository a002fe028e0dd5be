//! Which disks become volumes of a class by its rule `devices`, and why no other does.
//!
//! Only a blank disk without a user is taken. A disk that another program is about to prepare looks blank, too, so it has
//! to be there for a while. What is not certain is left alone, with the reason.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde::Serialize;

use crate::config::{Approve, Binding, Class, Devices};
use crate::host::footprint::{Footprint, overlap};
use crate::host::mark::{Mark, MarkOnDisk, MarkState};
use crate::host::sha256;
use crate::inventory::{
    BlockDisk, Candidate, DiskContents, Finding, Misfit, Observation, Skip, Volume,
};
use crate::types::HostPath;

use super::link::MAX_DISKS;
use super::{About, Action, Planner, reasons};

/// The digits of a hash that an operator copies.
const HASH_LENGTH: usize = 16;

/// The disks of a node, as the rule of a class sees them.
struct Survey<'a> {
    class: &'a Class,
    rule: &'a Devices,
    observation: &'a Observation,
    /// The volumes of all classes.
    volumes: Vec<&'a Volume>,
    /// The rules of other classes.
    others: Vec<(&'a str, &'a Devices)>,
    /// How many more volumes the Node can have that are bound to their disks.
    room: usize,
    /// Why no volume of the class can be offered.
    fault: Option<Skip>,
}

/// What a rule makes of the disks that it matches.
#[derive(Default)]
struct Intake<'a> {
    /// The disks to take in, by the names of their entries.
    taken: BTreeMap<&'a str, (&'a BlockDisk, &'a Candidate)>,
    /// The disks that are left alone, with the reasons.
    left: Vec<(&'a BlockDisk, LeftAlone)>,
}

/// A disk that becomes a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskOrder {
    /// The volume that it becomes, with the disk as it was found.
    pub volume: Arc<Volume>,
    /// The link below `/dev/disk` that its entry leads to. The entry has the same name.
    pub link: String,
    /// The mark that it gets first.
    pub mark: Mark,
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

/// Why a disk is left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each has its text")]
pub enum LeftAlone {
    #[error("it is the volume {0}")]
    Volume(HostPath),
    #[error("it shares storage with the volume {0}")]
    Overlaps(HostPath),
    #[error(transparent)]
    Misfit(#[from] Misfit),
    #[error("namePattern does not match its entry {0}")]
    OtherName(String),
    #[error("the rule of class {0} matches it, too; exclude it in one of both")]
    TwoClasses(String),
    #[error("{0} is another path to it, or lies on it")]
    OtherPath(String),
    #[error("it is {0}; name it without a wildcard to take it")]
    Special(&'static str),
    #[error("it is in use: {0}")]
    InUse(String),
    #[error("it has the partitions {0}")]
    Partitioned(String),
    #[error("it is read-only")]
    ReadOnly,
    #[error("it has no serial number or other name that outlasts a reboot")]
    Nameless,
    #[error(
        "it has a mark, so it was a volume before; to offer it again, make its entry: ln -s {0} {1}"
    )]
    Marked(String, HostPath),
    #[error("the entry {0} is there and not a volume: {1}")]
    Entry(HostPath, String),
    #[error("it has {0}; if that is not needed: wipefs --all, then blkdiscard")]
    Signature(String),
    #[error("it is not zero; if its data is not needed: blkdiscard, or dd if=/dev/zero")]
    NotZero,
    #[error("{0}")]
    Unreadable(String),
    #[error("{0} has the same name; exclude one of both")]
    SameName(String),
    #[error("{0}")]
    NotOffered(String),
    #[error("the Node has {MAX_DISKS} volumes that are bound to their disks, which is the limit")]
    TooMany,
    #[error("it has been there, unchanged, for less than a minute")]
    New,
}

impl<'a> Survey<'a> {
    fn select(&self) -> Intake<'a> {
        let mut intake = Intake::default();
        for disk in self.observation.disks.iter() {
            match self.judge(disk) {
                Ok(_) if intake.taken.len() >= self.room => {
                    intake.left.push((disk, LeftAlone::TooMany));
                }
                Ok(candidate) => match intake.taken.entry(self.entry(disk)) {
                    Entry::Vacant(entry) => drop(entry.insert((disk, candidate))),
                    Entry::Occupied(other) => {
                        let other = self.link(other.get().0).to_owned();
                        intake.left.push((disk, LeftAlone::SameName(other)));
                    }
                },
                Err(why) => intake.left.push((disk, why)),
            }
        }
        intake
    }

    /// What an operator approves: the volumes and the disks of the class once all are taken in. So it stays the same while
    /// some of them are, and changes with the name, the identity and the size of each.
    fn hash(&self, intake: &Intake<'_>) -> String {
        let of_class = self
            .volumes
            .iter()
            .filter(|it| it.class.name == self.class.name);
        let mut disks: Vec<_> = of_class.map(|it| (&*it.entry, &it.candidate)).collect();
        disks.extend(intake.taken.iter().map(|(name, (_, disk))| (*name, *disk)));
        disks.sort_unstable_by_key(|(name, _)| *name);
        let lines = disks.into_iter().map(|(name, disk)| {
            // An approval does not outlive the state directory, whose marks tell which disks were taken out of service.
            let directory = disk.mark.directory.as_deref().unwrap_or_default();
            format!("\n{name} {} {} {directory}", disk.identity, disk.capacity)
        });
        let mut hash = sha256((self.class.name.clone() + &lines.collect::<String>()).as_bytes());
        hash.truncate(HASH_LENGTH);
        hash
    }

    /// The first link that the rule matches, in the order of its globs.
    fn link(&self, disk: &'a BlockDisk) -> &'a str {
        let mut globs = self.rule.links.iter();
        let link = globs.find_map(|glob| disk.links.iter().find(|link| glob.matches(link)));
        link.map_or(&disk.name, String::as_str)
    }

    /// The name of a disk's entry.
    fn entry(&self, disk: &'a BlockDisk) -> &'a str {
        let link = self.link(disk);
        link.rsplit('/').next().unwrap_or(link)
    }

    /// A disk that is taken in, or why it is not.
    fn judge(&self, disk: &'a BlockDisk) -> Result<&'a Candidate, LeftAlone> {
        let unreadable = |why: &String| LeftAlone::Unreadable(why.clone());
        let candidate = disk.candidate.as_ref().map_err(unreadable)?;
        self.is_no_volume(disk, candidate)?;
        disk.fits(self.rule)?;
        if !self.class.name_pattern.matches(self.entry(disk)) {
            return Err(LeftAlone::OtherName(self.entry(disk).to_owned()));
        }
        // Two rules for one disk are a mistake in one of both, even if today only one takes it.
        let takes = |it: &&(&str, &Devices)| {
            disk.links.iter().any(|link| it.1.matches(link)) && disk.fits(it.1).is_ok()
        };
        if let Some((class, _)) = self.others.iter().find(takes) {
            return Err(LeftAlone::TwoClasses((*class).to_owned()));
        }
        is_alone(disk, candidate, &self.observation.disks)?;
        let is_named = disk.links.iter().any(|link| self.rule.names(link));
        let entry = self.class.host_dir.join(self.entry(disk));
        if let Some(user) = &candidate.in_use {
            return Err(LeftAlone::InUse(user.clone()));
        }
        if let Some(other) = disk.other_paths.first() {
            return Err(LeftAlone::OtherPath(other.clone()));
        }
        match disk.contents.as_ref().map_err(unreadable)? {
            _ if !disk.partitions.is_empty() => {
                Err(LeftAlone::Partitioned(disk.partitions.join(", ")))
            }
            _ if !is_named && disk.special.is_some() => {
                Err(LeftAlone::Special(disk.special.unwrap_or_default()))
            }
            _ if candidate.read_only => Err(LeftAlone::ReadOnly),
            _ if candidate.identity.weak => Err(LeftAlone::Nameless),
            _ if candidate.mark.on_disk != MarkOnDisk::Absent => {
                Err(LeftAlone::Marked(self.link(disk).to_owned(), entry))
            }
            DiskContents::Signature(what) => Err(LeftAlone::Signature(what.clone())),
            DiskContents::Data => Err(LeftAlone::NotZero),
            DiskContents::NotRead => Err(LeftAlone::Unreadable("it is being read".into())),
            DiskContents::Blank if let Some(fault) = &self.fault => {
                Err(LeftAlone::NotOffered(fault.detail.clone()))
            }
            DiskContents::Blank if !disk.is_settled => Err(LeftAlone::New),
            DiskContents::Blank => match self.observation.entries.get(self.entry(disk)) {
                Some(Finding::Skipped(skip)) => Err(LeftAlone::Entry(entry, skip.detail.clone())),
                Some(Finding::Volume(_)) => {
                    Err(LeftAlone::Entry(entry, "it is another disk".into()))
                }
                None => Ok(candidate),
            },
        }
    }

    /// Fails if a disk is a volume already, or shares storage with one.
    fn is_no_volume(&self, disk: &BlockDisk, candidate: &Candidate) -> Result<(), LeftAlone> {
        let footprint = &candidate.footprint;
        let mut volumes = self.volumes.iter();
        let Some(volume) = volumes.find(|it| overlap(&it.candidate.footprint, footprint).is_some())
        else {
            return Ok(());
        };
        let path = volume.path.clone();
        Err(match volume.candidate.footprint {
            Footprint::Device { number, .. } if number == disk.number => LeftAlone::Volume(path),
            _ => LeftAlone::Overlaps(path),
        })
    }

    fn report(&self, disk: &'a BlockDisk, left_alone: Option<String>) -> DiskReport {
        DiskReport {
            link: self.link(disk).to_owned(),
            name: disk.name.clone(),
            model: disk.model.clone(),
            capacity: disk.candidate.as_ref().ok().map(|it| it.capacity),
            left_alone,
        }
    }
}

/// Fails if another disk is the same storage: multipath may be about to be set up.
fn is_alone(disk: &BlockDisk, candidate: &Candidate, disks: &[BlockDisk]) -> Result<(), LeftAlone> {
    let is_same = |it: &&BlockDisk| {
        let footprint = it.candidate.as_ref().map(|it| &it.footprint);
        it.number != disk.number
            && footprint.is_ok_and(|it| overlap(it, &candidate.footprint).is_some())
    };
    match disks.iter().find(is_same) {
        // A disk with partitions has the better reason.
        Some(other) if disk.partitions.is_empty() => Err(LeftAlone::OtherPath(other.name.clone())),
        _ => Ok(()),
    }
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
        let survey = Survey {
            room: MAX_DISKS.saturating_sub(in_use),
            fault,
            class,
            rule,
            observation,
            volumes,
            others: others.collect(),
        };
        let intake = survey.select();
        let taken = intake.taken.values();
        let taken = taken.map(|(disk, _)| survey.report(disk, None));
        // The volumes of the class have reports of their own.
        let is_own = |why: &LeftAlone| matches!(why, LeftAlone::Volume(path) if path.child_of(&class.host_dir).is_some());
        let left = intake.left.iter().filter(|(_, why)| !is_own(why));
        let left = left.map(|(disk, why)| survey.report(disk, Some(why.to_string())));
        let reports = taken.chain(left).collect();
        if let Some(report) = self.plan.classes.last_mut() {
            report.disks = reports;
            report.disks_fault.clone_from(&observation.disks_fault);
        }
        if intake.taken.is_empty() {
            return;
        }
        let hash = survey.hash(&intake);
        let is_approved = self.node.approvals.get(&class.name) == Some(&hash);
        if rule.approve == Approve::Plan && !is_approved {
            return self.ask_for_approval(class, &intake, hash);
        }
        // A directory that was not read may have an entry for one of the disks.
        if self.has_read_all() {
            for (disk, candidate) in intake.taken.values() {
                let link = survey.link(disk);
                let volume = Volume::new(class, survey.entry(disk), (*candidate).clone());
                self.take_in(link, volume);
            }
        }
    }

    fn take_in(&mut self, link: &str, volume: Volume) {
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
            ..Mark::default()
        };
        self.plan.actions.push(Action::TakeIn(Box::new(DiskOrder {
            volume: Arc::new(volume),
            link: link.to_owned(),
            mark,
        })));
    }

    /// Whether the directories of all classes were read. The rule of a faulty class is not known.
    fn has_read_all(&self) -> bool {
        let mut classes = self.settings.config.classes.keys();
        let observed = &self.snapshot.observed;
        self.settings.faulty.is_empty()
            && classes.all(|class| observed.get(class).is_some_and(|it| it.complete))
    }

    fn ask_for_approval(&mut self, class: &Class, intake: &Intake<'_>, hash: String) {
        let (name, node) = (&class.name, &self.node.name);
        let entries: Vec<_> = intake.taken.keys().collect();
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
