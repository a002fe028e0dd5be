//! Everything that a plan is made from, at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, Loaded};
use crate::scan::{Observation, Skip};
use crate::types::HostPath;
use crate::view::{Jobs, NodeView, PvView, StorageClassView, Tenancy};

/// The configuration and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The valid part.
    pub config: Arc<Config>,
    /// Classes that are switched off, with all their faults.
    pub faulty: BTreeMap<String, Vec<String>>,
    /// Faults outside of the classes; what they concern has a safe value.
    pub faults: Vec<String>,
    /// Counts configurations; a new one resets the back-off of failed cleanups.
    pub generation: u64,
}

impl Settings {
    /// What was loaded.
    #[must_use]
    pub fn of(loaded: &Loaded, generation: u64) -> Self {
        let mut of_classes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut others = Vec::new();
        for fault in &loaded.faults {
            match &fault.class {
                Some(class) => of_classes
                    .entry(class.clone())
                    .or_default()
                    .push(fault.to_string()),
                None => others.push(fault.to_string()),
            }
        }
        let config = Arc::new(loaded.config.clone());
        Self {
            config,
            faulty: of_classes,
            faults: others,
            generation,
        }
    }
}

/// The StorageClasses, as far as they are known.
#[derive(Clone, Debug)]
pub enum StorageClasses {
    /// Those of the cluster: `None` is one that does not exist, and one that is not in here could not
    /// be read so far.
    Known(BTreeMap<String, Option<StorageClassView>>),
    /// No cluster was asked (`discover`): every class is taken to exist, with Kubernetes' defaults.
    Assumed(StorageClassView),
}

impl StorageClasses {
    /// The StorageClass of that name.
    ///
    /// # Errors
    /// Why its volumes are not offered, in words.
    pub fn get(&self, name: &str) -> Result<&StorageClassView, String> {
        let known = match self {
            Self::Known(classes) => classes.get(name).map(Option::as_ref),
            Self::Assumed(class) => Some(Some(class)),
        };
        match known {
            Some(Some(class)) => Ok(class),
            Some(None) => Err(format!(
                "there is no StorageClass {name:?}; create it and its volumes will be offered"
            )),
            None => Err(format!(
                "the StorageClass {name:?} could not be read so far, the log says why; its volumes are offered when it is"
            )),
        }
    }
}

/// How far a cleanup is, see [`crate::clean::table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanupView {
    /// The volume that is being cleaned.
    pub path: HostPath,
    /// How far it is.
    pub state: CleanupState,
    /// Why the PV of the clean volume could not be released so far.
    pub release_error: Option<String>,
}

/// The state of one cleanup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanupState {
    /// For a permit, or until whoever uses the volume lets go.
    Waiting,
    /// Data is being deleted, or the clean volume's PV is being released.
    Running,
    /// The PV was released; its object is about to go.
    Succeeded,
    /// It failed, or gave up waiting.
    Failed {
        /// When to try again, in [`Snapshot::now`]'s time.
        retry_at: Duration,
        /// What the decision was made on; with other facts it is tried again at once.
        basis: u64,
    },
}

impl CleanupState {
    /// Whether a task is at work on the volume, or about to be.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }
}

/// Why a device is not offered, by an exclusive open of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The identity of what was opened.
    pub identity: String,
    /// The reason.
    pub skip: Skip,
}

/// The world at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Our Node; absent while it is not registered.
    pub node: Option<NodeView>,
    /// The StorageClasses.
    pub storage_classes: StorageClasses,
    /// What each class's directory holds, by class name.
    pub observed: BTreeMap<String, Observation>,
    /// Our PVs, and everybody's below our directories; `None` until they were listed.
    pub pvs: Option<Vec<PvView>>,
    /// Cleanups, by tenancy.
    pub cleanups: BTreeMap<Tenancy, CleanupView>,
    /// The cleaning Jobs on this node, by name.
    pub jobs: Jobs,
    /// Whether there is an image to run cleaning Jobs with.
    pub has_job_image: bool,
    /// Names of PVs and Jobs that a write is under way for: what is decided next must wait for its result.
    pub writing: BTreeSet<String>,
    /// Paths that PVs are being made for that may not be among [`Snapshot::pvs`] yet, and the identities
    /// that are recorded on these. An earlier configuration may have wanted them, under other names.
    pub making: BTreeMap<HostPath, String>,
    /// The devices that could not be opened exclusively.
    pub refusals: BTreeMap<HostPath, Refusal>,
    /// Time since the process started. The plan has no clock of its own.
    pub now: Duration,
    /// Since when ([`Snapshot::now`]) which PVs, by UID, have been without their volumes: what the last
    /// plan said in [`super::Plan::missing_since`].
    pub missing_since: BTreeMap<String, Duration>,
    /// For how long that must last before `missingVolumePolicy: Delete` takes effect.
    pub missing_limit: Duration,
}
