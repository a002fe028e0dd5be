//! The disks of a node, judged by the rule of one class.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::config::{Class, Devices};
use crate::host::boot::BootTime;
use crate::host::footprint::{Footprint, overlap};
use crate::host::mark::MarkOnDisk;
use crate::host::sha256;
use crate::inventory::{BlockDisk, Candidate, DiskContents, Finding, Observation, Skip, Volume};
use crate::types::HostPath;

use super::left_alone::LeftAlone;
use super::{DiskReport, Intake};

/// The digits of a hash that an operator copies.
const HASH_LENGTH: usize = 16;

/// The disks of a node, as the rule of a class sees them.
pub(super) struct Survey<'a> {
    pub(super) class: &'a Class,
    pub(super) rule: &'a Devices,
    pub(super) observation: &'a Observation,
    /// The volumes of all classes.
    pub(super) volumes: Vec<&'a Volume>,
    /// The rules of other classes.
    pub(super) others: Vec<(&'a str, &'a Devices)>,
    /// How many more volumes the Node can have that are bound to their disks.
    pub(super) room: usize,
    /// The present moment.
    pub(super) boot_time: Option<&'a BootTime>,
    /// Why no volume of the class can be offered.
    pub(super) fault: Option<Skip>,
    /// The entries whose PVs are Terminating, so that their data is to be lost, and whether they are being cleaned.
    pub(super) terminating: BTreeMap<&'a HostPath, bool>,
}

/// A disk that a rule takes in.
pub(super) struct Taken<'a> {
    pub(super) disk: &'a BlockDisk,
    pub(super) candidate: &'a Candidate,
    pub(super) how: Intake,
}

impl Taken<'_> {
    pub(super) fn is_new(&self) -> bool {
        self.how.is_new(self.candidate)
    }
}

/// What a rule makes of the disks that it matches.
#[derive(Default)]
pub(super) struct Selection<'a> {
    /// The disks to take in, by the names of their entries.
    pub(super) taken: BTreeMap<&'a str, Taken<'a>>,
    /// The disks that are left alone, with the reasons.
    pub(super) left: Vec<(&'a BlockDisk, LeftAlone)>,
}

impl<'a> Survey<'a> {
    pub(super) fn select(&self) -> Selection<'a> {
        let mut intake = Selection::default();
        for disk in self.observation.disks.iter() {
            match self.judge(disk) {
                Ok(_) if intake.taken.len() >= self.room => {
                    intake.left.push((disk, LeftAlone::TooMany));
                }
                Ok(taken) => match intake.taken.entry(self.entry(disk)) {
                    Entry::Vacant(entry) => drop(entry.insert(taken)),
                    Entry::Occupied(other) => {
                        let other = self.link(other.get().disk).to_owned();
                        intake.left.push((disk, LeftAlone::SameName(other)));
                    }
                },
                Err(why) => intake.left.push((disk, why)),
            }
        }
        intake
    }

    /// What an operator approves: the disks of the class once all are taken in. So it stays the same while some of them are,
    /// and changes with the name, the identity and the size of each.
    pub(super) fn hash(&self, intake: &Selection<'a>) -> String {
        let is_made = |why: &_| matches!(why, LeftAlone::Cleaning | LeftAlone::Unmounted(..));
        let own = intake.left.iter().filter(|(_, why)| self.is_own(why) || is_made(why));
        let own =
            own.filter_map(|(disk, _)| Some((self.entry(disk), disk.candidate.as_ref().ok()?)));
        let mut disks: Vec<_> = own.collect();
        disks.extend(intake.taken.iter().map(|(name, it)| (*name, it.candidate)));
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
    pub(super) fn link(&self, disk: &'a BlockDisk) -> &'a str {
        let mut globs = self.rule.links.iter();
        let link = globs.find_map(|glob| disk.links.iter().find(|link| glob.matches(link)));
        link.map_or(&disk.name, String::as_str)
    }

    /// The name of a disk's entry.
    pub(super) fn entry(&self, disk: &'a BlockDisk) -> &'a str {
        let link = self.link(disk);
        link.rsplit('/').next().unwrap_or(link)
    }

    /// Whether a disk is left alone because it is a volume of the class.
    pub(super) fn is_own(&self, why: &LeftAlone) -> bool {
        matches!(why, LeftAlone::Volume(path) if path.child_of(&self.class.host_dir).is_some())
    }

    /// How a disk is taken in, or why it is not.
    fn judge(&self, disk: &'a BlockDisk) -> Result<Taken<'a>, LeftAlone> {
        let unreadable = |why: &String| LeftAlone::Unreadable(why.clone());
        let candidate = disk.candidate.as_ref().map_err(unreadable)?;
        self.is_no_volume(disk, candidate)?;
        let selected = |how| Taken { disk, candidate, how };
        if self.rule.filesystem.is_some()
            && let Some(how) = self.resume(disk, candidate)?
        {
            return Ok(selected(how));
        }
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
            DiskContents::Made => {
                let what = "the filesystem of a volume".to_owned();
                Err(LeftAlone::Signature(what))
            }
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
                None => Ok(selected(match self.rule.filesystem {
                    Some(_) => Intake::Make,
                    None => Intake::Link,
                })),
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
            Footprint::Device { number, .. } | Footprint::Filesystem { fs: number, .. }
                if number == disk.number =>
            {
                LeftAlone::Volume(path)
            }
            _ => LeftAlone::Overlaps(path),
        })
    }

    pub(super) fn report(&self, disk: &'a BlockDisk, left_alone: Option<String>) -> DiskReport {
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
pub(super) fn is_alone(
    disk: &BlockDisk,
    candidate: &Candidate,
    disks: &[BlockDisk],
) -> Result<(), LeftAlone> {
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
