//! The configuration: a directory with one file per key, each holding a YAML value, as a mounted
//! ConfigMap shows it.
//!
//! [`load`] reads it into a [`Config`]. A class with a fault is omitted, and the others are used. [`Loaded`] has the
//! first fault of each class and key, and all warnings. It is an error only if nothing can be read. Values that only
//! the API server uses, such as selectors, are validated by the API server.
//!
//! [`watch`] reads it again after each change.

mod class;
mod cleaner;
mod devices;
mod directory;
pub mod duration;
mod keys;
mod labels;
mod parse;
pub mod pattern;
mod rows;
mod shown;
#[cfg(test)]
mod tests;
mod text;
mod values;
mod watch;
mod yaml;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;

use educe::Educe;
use k8s_openapi::api::core::v1::Toleration;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use tracing::level_filters::LevelFilter;

pub use self::class::{
    AccessMode, Binding, Class, DiscoveryPolicy, MissingVolumePolicy, WeakIdentity,
};
pub use self::cleaner::{CleanMethod, Cleaner, DEFAULT_CLEANER};
pub use self::devices::{Approve, Bytes, Devices};
pub use self::directory::{Files, read_dir};
pub use self::parse::{CLASSES, Fault, Loaded, from_files, load};
pub use self::pattern::NamePattern;
pub use self::rows::rows;
pub use self::shown::Shown;
pub use self::watch::{Reading, watch};
pub use self::yaml::documents;

/// Where the chart mounts the ConfigMap.
pub const DEFAULT_DIR: &str = "/etc/provisioner/config/";
/// The taint that the chart of the Go provisioner puts on new nodes.
pub const DEFAULT_TAINT_KEY: &str = "sig-storage-local-static-provisioner/agent-not-ready";

/// A valid configuration. Each field has the key, default and meaning of the ConfigMap; keys are matched without
/// regard to case.
#[serde_as]
#[derive(Clone, Debug, Educe, PartialEq, Serialize, Deserialize)]
#[educe(Default)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the ConfigMap of its own")]
pub struct Config {
    /// `storageClassMap` (default empty): the classes by name; those with faults are left out.
    #[serde(skip)]
    pub classes: BTreeMap<String, Arc<Class>>,
    /// `nodeLabelsForPV` (default empty): the node's labels that each PV gets too.
    #[serde(rename = "nodeLabelsForPV")]
    pub node_labels_for_pv: Vec<String>,
    /// `labelsForPV` (default empty): labels that each PV gets, never the hostname label.
    #[serde(rename = "labelsForPV")]
    pub labels_for_pv: BTreeMap<String, String>,
    /// `useAlphaAPI` (default false): true is refused.
    #[serde(rename = "useAlphaAPI", deserialize_with = "text::flag")]
    pub use_alpha_api: bool,
    /// `useJobForCleaning` (default false): devices are cleaned by a Job, not in this process.
    #[serde(deserialize_with = "text::flag")]
    pub use_job_for_cleaning: bool,
    /// `jobTolerations` (default empty): the tolerations of such Jobs.
    pub job_tolerations: Vec<Toleration>,
    /// `useNodeNameOnly` (default false): the provisioner's name has no node UID, so that a node
    /// that was registered again still owns its PVs.
    #[serde(deserialize_with = "text::flag")]
    pub use_node_name_only: bool,
    /// `setPVOwnerRef` (default false): each PV is owned by its Node, and is deleted with it.
    #[serde(rename = "setPVOwnerRef", deserialize_with = "text::flag")]
    pub set_pv_owner_ref: bool,
    /// `removeNodeNotReadyTaint` (default false): remove the taint below from the node when ready.
    #[serde(deserialize_with = "text::flag")]
    pub remove_node_not_ready_taint: bool,
    /// `provisionerNotReadyNodeTaintKey` (default [`DEFAULT_TAINT_KEY`]): the key of that taint.
    #[educe(Default = DEFAULT_TAINT_KEY.into())]
    pub provisioner_not_ready_node_taint_key: String,
    /// `pauseCleaning` (default false): no new cleanup starts. Also true when the value cannot be read, so
    /// that data is kept.
    #[serde(deserialize_with = "text::flag")]
    pub pause_cleaning: bool,
    /// `protectReleasedData` (default false): a finalizer keeps every PV with policy Delete until
    /// its volume is clean, also under `kubectl delete pv`. Also true when the value cannot be read.
    #[serde(deserialize_with = "text::flag")]
    pub protect_released_data: bool,
    /// `maxConcurrentCleanups` (default 4, at most 65535): volumes cleaned at the same time.
    #[educe(Default = const { NonZero::new(4).unwrap() })]
    #[serde_as(as = "DisplayFromStr")]
    pub max_concurrent_cleanups: NonZero<u16>,
    /// `logLevel` (default none): the log's level; none is that of the command line.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub log_level: Option<LevelFilter>,
}

impl Config {
    /// Whether a class has `binding: disk`.
    pub fn binds_to_disks(&self) -> bool {
        let mut classes = self.classes.values();
        classes.any(|class| class.binding == Binding::Disk)
    }
}
