//! The disks that the rule of a class matches, and the facts that tell whether they are blank and unused.
//!
//! A survey opens only block devices that a link below `/dev/disk` leads to, for reading. It reads a disk without a user
//! again after some time, since a program that prepares a disk leaves no event. Each disk is read on a thread of its own,
//! which a survey does not wait for: a rotating disk takes seconds. A disk with a mark may have a tenant, and is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::Instant;
use walkdir::WalkDir;

use crate::config::{Class, Devices};
use crate::errors::chain;
use crate::host::Machine;
use crate::host::access::Access;
use crate::host::device::Device;
use crate::host::identity;
use crate::host::identity::Identity;
use crate::host::mark::MarkOnDisk;
use crate::host::mounts::DeviceNumber;
use crate::host::sysfs::Sysfs;
use crate::types::{FsType, MountPath};
use crate::wipe::device::Disk;
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;
use crate::wipe::superblock;

use super::{Candidate, Contents, Opened};

/// Where stable names of disks are.
pub(super) const DIR: &str = "/dev/disk";
/// How long a disk has to be there, and unchanged: a script of the boot or of an installer may be about to prepare it.
const SETTLED: Duration = Duration::from_mins(1);
/// How long its contents count as known: less until it has settled. It is read once more when it is taken in.
const MAX_AGE: Duration = Duration::from_secs(30);
const MAX_AGE_SETTLED: Duration = Duration::from_mins(10);
/// How long the survey that begins to read a disk waits for it. The next one has the result.
const READING_TIME: Duration = Duration::from_secs(1);

/// A block device that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDisk {
    /// The links below `/dev/disk` that lead to it, sorted. Never empty.
    pub links: Vec<String>,
    /// Its kernel name, such as `nvme0n1`.
    pub name: String,
    /// The device.
    pub number: DeviceNumber,
    /// The model, with `_` for blanks.
    pub model: Option<String>,
    /// What it is, if no rule means it unless it names it, such as a partition.
    pub special: Option<&'static str>,
    /// The kernel names of other disks with the same bytes: further paths to it.
    pub other_paths: Vec<String>,
    /// The kernel names of its partitions.
    pub partitions: Vec<String>,
    /// What it is, or why that cannot be read.
    pub candidate: Result<Candidate, String>,
    /// What is on it, or why that cannot be read.
    pub contents: Result<DiskContents, String>,
    /// Whether it has been there for a while, unchanged.
    pub is_settled: bool,
}

/// Why a disk is not of the kind that a rule wants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each has its text")]
pub enum Misfit {
    #[error("exclude matches {0}")]
    Excluded(String),
    #[error("it is smaller than minSize, or has no size")]
    TooSmall,
    #[error("it is larger than maxSize")]
    TooLarge,
    #[error("it rotates, and rotational is false")]
    Rotates,
    #[error("it does not rotate, and rotational is true")]
    DoesNotRotate,
    #[error("its model {0} does not match")]
    Model(String),
}

impl BlockDisk {
    fn identity(&self) -> Result<&Identity, &String> {
        self.candidate.as_ref().map(|it| &it.identity)
    }

    /// Whether it is of the kind that a rule wants.
    ///
    /// # Errors
    /// Why it is not.
    pub fn fits(&self, rule: &Devices) -> Result<(), Misfit> {
        let candidate = self.candidate.as_ref().ok();
        let size = candidate.map_or(0, |it| it.capacity);
        let rotates = candidate.is_some_and(|it| !it.rotational.is_empty());
        let model = self.model.as_deref().unwrap_or_default();
        if let Some(link) = self.links.iter().find(|link| rule.excludes(link)) {
            return Err(Misfit::Excluded(link.clone()));
        }
        match rule.rotational {
            _ if size == 0 || rule.min_size.is_some_and(|it| size < it.0) => Err(Misfit::TooSmall),
            _ if rule.max_size.is_some_and(|it| size > it.0) => Err(Misfit::TooLarge),
            Some(true) if !rotates => Err(Misfit::DoesNotRotate),
            Some(false) if rotates => Err(Misfit::Rotates),
            _ if !rule.model.matches(model) => Err(Misfit::Model(model.to_owned())),
            _ => Ok(()),
        }
    }

    /// Whether only its contents are still to decide.
    fn is_worth_reading(&self, rule: &Devices) -> bool {
        let is_named = || self.links.iter().any(|link| rule.names(link));
        let has_mark = |it: &Candidate| it.mark.on_disk != MarkOnDisk::Absent;
        let is_usable = |it: &Candidate| {
            it.in_use.is_none()
                && (!has_mark(it) || rule.filesystem.is_some())
                && !it.read_only
                && !it.identity.weak
        };
        let is_marked = self.candidate.as_ref().is_ok_and(has_mark);
        self.candidate.as_ref().is_ok_and(is_usable)
            && (is_marked || self.fits(rule).is_ok())
            && self.partitions.is_empty()
            && (self.special.is_none() || is_named())
    }
}

/// What is on a disk, as far as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskContents {
    /// No known signature; both ends, and places between them, are zero.
    Blank,
    /// A signature; its name and place.
    Signature(String),
    /// No known signature, but other data.
    Data,
    /// The complete filesystem that the provisioner makes on this disk.
    Made,
    /// Not read, or not yet. It is not read if it has a user or a mark.
    NotRead,
}

/// The disks of the last survey.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<DeviceNumber, Visit>);

#[derive(Debug)]
struct Visit {
    /// As it was last found.
    disk: BlockDisk,
    /// Since when it is unchanged.
    since: Instant,
    reading: Option<Reading>,
}

/// The last reading of a disk.
#[derive(Debug)]
struct Reading {
    begun: Instant,
    /// `None`: the result is with the disk.
    result: Option<Receiver<Result<DiskContents, String>>>,
}

/// Finds the disks that the rule of a class matches. Blocks.
///
/// # Errors
/// When the links cannot be listed.
pub(super) fn survey(
    class: &Class,
    machine: &Machine,
    seen: &mut Seen,
) -> io::Result<Vec<BlockDisk>> {
    let Some(rule) = &class.devices else {
        return Ok(Vec::new());
    };
    let now = Instant::now();
    let mut found = Vec::new();
    for (number, links) in links()? {
        if !links.iter().any(|link| rule.matches(link)) {
            continue;
        }
        let mut last = seen.0.remove(&number);
        match disk(number, links, rule, class, machine, last.as_mut()) {
            Ok((disk, reading)) => found.push((disk, reading, last)),
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let visits = found.into_iter().map(|(mut disk, mut reading, last)| {
        if let Some(result) = reading.as_mut().and_then(Reading::result) {
            disk.contents = result;
        }
        let is_same = |it: &Visit| {
            (&it.disk.links, &it.disk.contents) == (&disk.links, &disk.contents)
                && it.disk.identity() == disk.identity()
        };
        let since = last.filter(is_same).map_or(now, |it| it.since);
        disk.is_settled = now - since >= SETTLED;
        let visit = Visit { disk, since, reading };
        (visit.disk.number, visit)
    });
    seen.0 = visits.collect();
    Ok(seen.0.values().map(|it| it.disk.clone()).collect())
}

impl Reading {
    fn begin(opened: Opened, sysfs: Sysfs) -> Self {
        let (send, result) = mpsc::channel();
        spawn_blocking(move || send.send(contents(&opened, &sysfs)));
        Self { begun: Instant::now(), result: Some(result) }
    }

    /// Its result, if it ends in time and was not returned before.
    fn result(&mut self) -> Option<Result<DiskContents, String>> {
        let left = READING_TIME.saturating_sub(self.begun.elapsed());
        let received = self.result.as_ref()?.recv_timeout(left);
        if received == Err(RecvTimeoutError::Timeout) {
            return None;
        }
        self.result = None;
        Some(received.unwrap_or_else(|_| Err("reading it panicked (bug)".into())))
    }

    /// Whether it is under way, or its result counts.
    fn is_current(&self, is_settled: bool) -> bool {
        let max_age = if is_settled { MAX_AGE_SETTLED } else { MAX_AGE };
        self.result.is_some() || self.begun.elapsed() < max_age
    }
}

/// The links to each block device, sorted.
fn links() -> io::Result<BTreeMap<DeviceNumber, Vec<String>>> {
    let mut links = BTreeMap::<_, Vec<_>>::new();
    let dir = WalkDir::new(DIR).min_depth(2).max_depth(2);
    for entry in dir.sort_by_file_name() {
        let entry = match entry {
            // Without udev, or without disks.
            Err(error) if error.depth() == 0 && is_not_found(&error) => break,
            entry => entry?,
        };
        // A dangling link, or one whose name no configuration can have.
        let (Ok(found), Some(path)) = (fs::metadata(entry.path()), entry.path().to_str()) else {
            continue;
        };
        if entry.path_is_symlink() && found.file_type().is_block_device() {
            let number = DeviceNumber::from_rdev(found.rdev());
            links.entry(number).or_default().push(path.to_owned());
        }
    }
    Ok(links)
}

fn is_not_found(error: &walkdir::Error) -> bool {
    let error = error.io_error().map(io::Error::kind);
    error == Some(io::ErrorKind::NotFound)
}

/// One disk. What cannot be read of it does not concern other disks.
///
/// # Errors
/// When it is not there any more.
fn disk(
    number: DeviceNumber,
    links: Vec<String>,
    rule: &Devices,
    class: &Class,
    machine: &Machine,
    last: Option<&mut Visit>,
) -> io::Result<(BlockDisk, Option<Reading>)> {
    let facts = machine.sysfs.device(number)?;
    let is_multipath = |uuid: &str| uuid.starts_with("mpath-");
    let special = match &*facts {
        facts if facts.disk != number => Some("a partition"),
        facts if facts.loop_backing.is_some() || facts.loop_over.is_some() => Some("a loop device"),
        facts if facts.md_uuid.is_some() || facts.name.starts_with("md") => Some("an array"),
        facts if facts.dm_uuid.as_deref().is_some_and(|it| !is_multipath(it)) => {
            Some("a logical volume or a mapping of another program")
        }
        facts => facts.removable.then_some("removable"),
    };
    let names = |numbers: io::Result<BTreeSet<DeviceNumber>>| -> io::Result<Vec<String>> {
        let others = numbers?.into_iter().filter(|it| *it != number && *it != facts.disk);
        others.map(|it| Ok(machine.sysfs.device(it)?.name.clone())).collect()
    };
    let opened = open(&links[0], number, class, machine);
    let looked = opened.and_then(|(opened, candidate)| {
        let partitions = names(machine.sysfs.writable_through(number));
        let twins = machine.sysfs.twins(candidate.footprint.devices());
        let twins = twins.map(|it| it.iter().map(|twin| twin.name.clone()).collect());
        let failed = |error: io::Error| error.to_string();
        let facts = (partitions.map_err(failed)?, twins.map_err(failed)?);
        Ok((opened, candidate, facts))
    });
    let (opened, candidate, (partitions, other_paths)) = match looked {
        Ok((opened, candidate, facts)) => (Some(opened), Ok(candidate), facts),
        Err(why) => (None, Err(why), Default::default()),
    };
    let mut disk = BlockDisk {
        links,
        name: facts.name.clone(),
        number,
        model: facts.model.clone(),
        special,
        other_paths,
        partitions,
        contents: Ok(DiskContents::NotRead),
        candidate,
        is_settled: false,
    };
    let mut reading = None;
    if let Some(opened) = opened.filter(|_| disk.is_worth_reading(rule)) {
        let mut is_settled = false;
        if let Some(last) = last.filter(|it| it.disk.identity() == disk.identity()) {
            reading = last.reading.take();
            disk.contents.clone_from(&last.disk.contents);
            is_settled = last.disk.is_settled;
        }
        if !reading.as_ref().is_some_and(|it| it.is_current(is_settled)) {
            reading = Some(Reading::begin(opened, machine.sysfs.clone()));
        }
    }
    Ok((disk, reading))
}

fn open(
    link: &str,
    number: DeviceNumber,
    class: &Class,
    machine: &Machine,
) -> Result<(Opened, Candidate), String> {
    let path: MountPath = link.parse().map_err(|error| format!("{link}: {error}"))?;
    let device = Device::open(path.as_path(), Access::Probe).map_err(|error| error.to_string())?;
    if device.number() != number {
        return Err(format!("{link} leads to another disk than a moment before"));
    }
    let opened = Opened::Device(device);
    let candidate = opened.candidate(&path, &class.name, machine);
    let candidate = candidate.map_err(|error| format!("{link}: {error}"))?;
    Ok((opened, candidate))
}

/// Reads what is on a disk.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn contents(opened: &Opened, sysfs: &Sysfs) -> Result<DiskContents, String> {
    let found = opened.contents().map_err(|error| error.to_string())?;
    let Opened::Device(device) = opened else {
        return Ok(DiskContents::Data);
    };
    if let Contents::Holds(what) = found {
        let made = made_on(device, sysfs)?;
        return Ok(made.map_or(DiskContents::Signature(what), |_| DiskContents::Made));
    }
    let progress = Progress::default();
    match Disk::new(device.file(), device.size(), &progress).check_zeroed() {
        Ok(()) => Ok(DiskContents::Blank),
        Err(WipeError::NotZero { .. }) => Ok(DiskContents::Data),
        Err(error) => Err(chain(&error)),
    }
}

/// The type of the complete filesystem that the provisioner made on a device.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn made_on(device: &Device, sysfs: &Sysfs) -> Result<Option<FsType>, String> {
    let progress = Progress::default();
    let found = superblock::find(Disk::new(device.file(), device.size(), &progress))
        .map_err(|error| chain(&error))?;
    let facts = sysfs.device(device.number()).map_err(|error| error.to_string())?;
    let made = found.filter(|(_, uuid)| identity::has_made(&facts, uuid));
    Ok(made.map(|(fs_type, _)| fs_type))
}
