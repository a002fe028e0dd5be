//! Where a PV's volume is on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::inventory::{Candidate, Finding, Observation, Skip, Volume};
use crate::view::PvView;

use super::verdict::Refusal;
use super::{Settings, reasons};

/// What is at a PV's path.
#[derive(Clone, Debug)]
pub enum PvLocation<'a> {
    /// A volume that discovery would offer.
    Volume(&'a Arc<Volume>),
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
            Some(Finding::Volume(volume)) => Self::Volume(volume),
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
            Self::Volume(volume) => Some(&volume.candidate),
            _ => None,
        }
    }
}
