//! Where a PV's volume is on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Class;
use crate::inventory::{Candidate, Finding, Observation, Skip};
use crate::view::PvView;

use super::Settings;

/// What is at a PV's path.
#[derive(Clone, Debug)]
pub enum PvLocation<'a> {
    /// A volume that discovery would offer, of this class, under this entry name.
    Volume(&'a Arc<Class>, &'a str, &'a Candidate),
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
    /// The PV's path is not a direct child of its class's directory, with the cause.
    Outside(String),
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
        let path = match &pv.local_path {
            Ok(path) => path,
            Err(why) => return Self::Outside(why.clone()),
        };
        let Some(entry) = path.child_of(&class.host_dir) else {
            return Self::Outside(format!(
                "its path {path} is not an entry of {}, the hostDir of its class {:?}",
                class.host_dir, pv.class
            ));
        };
        let Some(observation) = observed.get(&pv.class) else {
            return Self::Unknown;
        };
        match observation.entries.get(entry) {
            _ if !observation.complete => Self::Unknown,
            Some(Finding::Volume(candidate)) => Self::Volume(class, entry, candidate),
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
            Self::Volume(_, _, candidate) => Some(candidate),
            _ => None,
        }
    }
}
