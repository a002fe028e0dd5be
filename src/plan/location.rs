//! Where a PV's volume is on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Class;
use crate::inventory::{Candidate, Finding, Observation, Skip};
use crate::types::{HostPath, MountPath};
use crate::view::PvView;

use super::verdict::Refusal;
use super::{Settings, reasons};

/// A volume that a scan found.
#[derive(Clone, Copy, Debug)]
pub struct FoundVolume<'a> {
    /// Its class.
    pub class: &'a Arc<Class>,
    /// Its entry in the directory of the class.
    pub entry: &'a str,
    /// What it is.
    pub candidate: &'a Candidate,
}

impl<'a> FoundVolume<'a> {
    /// The volume of an entry.
    pub fn new(class: &'a Arc<Class>, entry: &'a str, candidate: &'a Candidate) -> Self {
        Self {
            class,
            entry,
            candidate,
        }
    }

    /// Its path on the host, which PVs name.
    pub fn path(&self) -> HostPath {
        self.class.host_dir.join(self.entry)
    }

    /// The same file in our mount namespace.
    pub fn mount_path(&self) -> MountPath {
        self.class.mount_dir.join(self.entry)
    }
}

/// What is at a PV's path.
#[derive(Clone, Debug)]
pub enum PvLocation<'a> {
    /// A volume that discovery would offer.
    Volume(FoundVolume<'a>),
    /// An entry that discovery does not offer.
    Skipped(&'a Skip),
    /// Nothing: the directory was read and has no such entry.
    Missing,
    /// Not known: the directory could not be read, or not all of it.
    Unknown,
    /// The PV's class is switched off because of a fault in the configuration.
    ClassInvalid,
    /// The PV's class is not in the configuration.
    ClassGone,
    /// The PV is not on this node, or its path is not a direct child of its class's directory.
    Outside(Refusal),
}

impl<'a> PvLocation<'a> {
    /// Looks up a PV's path in the observations.
    pub(super) fn of(
        pv: &'a PvView,
        settings: &'a Settings,
        observed: &'a BTreeMap<String, Observation>,
    ) -> Self {
        let Some(class) = settings.config.classes.get(&pv.class) else {
            return match settings.faulty.get(&pv.class) {
                Some(_) => Self::ClassInvalid,
                None => Self::ClassGone,
            };
        };
        let outside = |why: &str| {
            let message = format!("{why}; it is not cleaned");
            Self::Outside(Refusal::new(reasons::VOLUME_FAILED_DELETE, message))
        };
        let path = match &pv.local_path {
            Ok(path) => path,
            Err(why) => return outside(why),
        };
        let Some(entry) = path.child_of(&class.host_dir) else {
            return outside(&format!(
                "its path {path} is not an entry of {}, the hostDir of its class {:?}",
                class.host_dir, pv.class
            ));
        };
        let Some(observation) = observed.get(&pv.class) else {
            return Self::Unknown;
        };
        match observation.entries.get(entry) {
            _ if !observation.complete => Self::Unknown,
            Some(Finding::Volume(candidate)) => {
                Self::Volume(FoundVolume::new(class, entry, candidate))
            }
            Some(Finding::Skipped(skip)) => Self::Skipped(skip),
            None => Self::Missing,
        }
    }

    /// Whether the volume is certainly missing.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Missing => true,
            Self::Skipped(skip) => skip.gone,
            _ => false,
        }
    }

    /// The volume, if there is one.
    pub fn candidate(&self) -> Option<&'a Candidate> {
        match self {
            Self::Volume(volume) => Some(volume.candidate),
            _ => None,
        }
    }
}
