//! The configuration: a directory with one file per key, each holding a YAML value, as a mounted
//! ConfigMap shows it.
//!
//! [`load`] reads it into a plain value. Reading it never stops at the first mistake: a class with
//! faults is left out, and [`Loaded`] has all faults and warnings beside the rest. Only a
//! configuration that cannot be read at all is an error.
//!
//! [`watch`] reads it again whenever it changes, and [`diff`] says what has changed.

mod class;
mod cleaner;
mod diff;
pub mod duration;
mod fault;
mod label;
mod load;
pub mod pattern;
mod raw;
mod rows;
mod scheduling;
mod section;
mod shown;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;

pub use self::class::{AccessMode, Class, DiscoveryPolicy, MissingVolumePolicy, WeakIdentity};
pub use self::cleaner::{CleanMethod, Cleaner, DEFAULT_CLEANER};
pub use self::diff::diff;
pub use self::fault::{Fault, LoadError, Problem, Warning};
pub use self::load::{Files, from_files, load, read_dir};
pub use self::pattern::NamePattern;
pub use self::rows::Row;
pub use self::shown::{NotShown, Shown};
pub use self::watch::{Reading, watch};

/// Where the chart mounts the ConfigMap.
pub const DEFAULT_DIR: &str = "/etc/provisioner/config/";
/// The taint that the Go program's chart puts on new nodes.
pub const DEFAULT_TAINT_KEY: &str = "sig-storage-local-static-provisioner/agent-not-ready";

/// A configuration in which every value can be used. Each field's key, default and meaning are
/// those of the ConfigMap; keys are matched without regard to case.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the ConfigMap of its own"
)]
pub struct Config {
    /// `storageClassMap` (default empty): the classes by name; those with faults are left out.
    pub classes: BTreeMap<String, Arc<Class>>,
    /// `nodeLabelsForPV` (default empty): the node's labels that each PV gets too.
    pub node_labels_for_pv: Vec<String>,
    /// `labelsForPV` (default empty): labels that each PV gets. Never has the hostname label.
    pub labels_for_pv: BTreeMap<String, String>,
    /// `useJobForCleaning` (default false): devices are cleaned by a Job, not in this process.
    pub use_job_for_cleaning: bool,
    /// `jobTolerations` (default empty): the tolerations of such Jobs.
    pub job_tolerations: Vec<Toleration>,
    /// `minResyncPeriod` (default 5m0s): accepted for the sake of existing ConfigMaps; a cache that
    /// is kept by watches needs no resync.
    pub min_resync_period: Duration,
    /// `useNodeNameOnly` (default false): the provisioner's name has no node UID, so that a node
    /// that was registered again still owns its PVs.
    pub use_node_name_only: bool,
    /// `setPVOwnerRef` (default false): each PV is owned by its Node, and goes with it.
    pub set_pv_owner_ref: bool,
    /// `removeNodeNotReadyTaint` (default false): take the taint below off the node when ready.
    pub remove_node_not_ready_taint: bool,
    /// `provisionerNotReadyNodeTaintKey` (default [`DEFAULT_TAINT_KEY`]): the key of that taint.
    pub provisioner_not_ready_node_taint_key: String,
    /// `pauseCleaning` (default false): nothing new is cleaned. True also when the value cannot be
    /// read: somebody wanted something about cleaning.
    pub pause_cleaning: bool,
    /// `protectReleasedData` (default false): a finalizer keeps every PV with policy Delete until
    /// its volume is clean, whoever deletes it. True also when the value cannot be read.
    pub protect_released_data: bool,
    /// `maxConcurrentCleanups` (default 4, at most 65535): volumes cleaned at the same time.
    pub max_concurrent_cleanups: NonZero<u16>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            classes: BTreeMap::new(),
            node_labels_for_pv: Vec::new(),
            labels_for_pv: BTreeMap::new(),
            use_job_for_cleaning: false,
            job_tolerations: Vec::new(),
            min_resync_period: Duration::from_mins(5),
            use_node_name_only: false,
            set_pv_owner_ref: false,
            remove_node_not_ready_taint: false,
            provisioner_not_ready_node_taint_key: DEFAULT_TAINT_KEY.into(),
            pause_cleaning: false,
            protect_released_data: false,
            max_concurrent_cleanups: const { NonZero::new(4).unwrap() },
        }
    }
}

/// What a directory held.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The part that can be used.
    pub config: Config,
    /// Everything that cannot.
    pub faults: Vec<Fault>,
    /// Everything that is probably not meant so.
    pub warnings: Vec<Warning>,
}

impl Loaded {
    /// The classes that are off because of their faults, by name.
    pub fn faulty_classes(&self) -> impl Iterator<Item = &str> {
        let names: BTreeSet<&str> = self
            .faults
            .iter()
            .filter_map(|fault| fault.class.as_deref())
            .collect();
        names.into_iter()
    }
}
