//! One class: the keys below its name in `storageClassMap`.

use std::time::Duration;

use k8s_openapi::api::core::v1::NodeSelectorTerm;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use super::cleaner::Cleaner;
use super::devices::Devices;
use super::pattern::NamePattern;
use super::{duration, text};
use crate::types::{HostPath, MountPath, VolumeMode};

/// A StorageClass of the same name, and the directory where its volumes are found.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Class {
    /// The StorageClass's name: the key in `storageClassMap`.
    #[serde(skip)]
    pub name: String,
    /// `hostDir` (required): the discovery directory as the host and the kubelet name it. It is the
    /// first part of every volume's `spec.local.path`.
    #[serde_as(as = "DisplayFromStr")]
    pub host_dir: HostPath,
    /// `mountDir` (required): the same directory as this process sees it in its container.
    #[serde_as(as = "DisplayFromStr")]
    pub mount_dir: MountPath,
    /// `cleanMethod` or `blockCleanerCommand` (default `[/scripts/quick_reset.sh]`): how released
    /// devices are cleaned.
    #[serde(flatten, skip_deserializing)]
    pub cleaner: Cleaner,
    /// `cleanupTimeout` (default none): the time limit of one volume's cleaning, from the first change of its
    /// data. A cleaning that takes longer is stopped and fails. Never zero.
    #[serde(default, with = "duration")]
    pub cleanup_timeout: Option<Duration>,
    /// `trim` (default true): whether the free blocks of an emptied filesystem are discarded (`FITRIM`), so
    /// that the disk can drop the deleted data.
    #[serde(default = "enabled", deserialize_with = "text::flag")]
    pub trim: bool,
    /// `volumeMode` (default `Filesystem`; or `Block`): how pods get the volumes.
    #[serde(default)]
    pub volume_mode: VolumeMode,
    /// `accessMode` (default `ReadWriteOnce`).
    #[serde(default)]
    pub access_mode: AccessMode,
    /// `fsType` (default: the kubelet's choice): the filesystem that the kubelet creates on a device of a
    /// `Filesystem` class.
    #[serde(default)]
    pub fs_type: Option<String>,
    /// `namePattern` (default `*`): which entries belong to the class.
    #[serde(default)]
    pub name_pattern: NamePattern,
    /// `selector` (default none): node selector terms that are OR-ed with the node's own, for
    /// volumes that more nodes than this one can reach.
    #[serde(default)]
    pub selector: Vec<NodeSelectorTerm>,
    /// `weakIdentity` (default `Consent`; or `Accept`): whether a device whose identity cannot be verified
    /// after a reboot is cleaned without an administrator's consent.
    #[serde(default)]
    pub weak_identity: WeakIdentity,
    /// `discoveryPolicy` (default `Any`; or `EmptyOnly`): whether volumes that hold data are offered.
    #[serde(default)]
    pub discovery_policy: DiscoveryPolicy,
    /// `missingVolumePolicy` (default `Report`; or `Delete`): what happens to an unclaimed PV whose disk is
    /// missing.
    #[serde(default)]
    pub missing_volume_policy: MissingVolumePolicy,
    /// `binding` (default `path`; or `disk`): what a new PV names, and so what the kubelet mounts for its claim.
    #[serde(default)]
    pub binding: Binding,
    /// `devices` (default none): which disks become volumes without an entry that an operator makes.
    #[serde(default)]
    pub devices: Option<Devices>,
}

impl Class {
    /// Whether its rule makes filesystems on disks.
    pub fn makes_filesystems(&self) -> bool {
        let rule = self.devices.as_ref();
        rule.is_some_and(|rule| rule.filesystem.is_some())
    }
}

fn enabled() -> bool {
    true
}

/// How many pods or nodes may have a volume at once (`spec.accessModes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum AccessMode {
    /// One node, reading and writing.
    #[default]
    ReadWriteOnce,
    /// Many nodes, reading.
    ReadOnlyMany,
    /// Many nodes, reading and writing.
    ReadWriteMany,
    /// One pod, reading and writing.
    ReadWriteOncePod,
}

/// How a device without a persistent identity is treated after a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum WeakIdentity {
    /// Wait until an administrator has consented.
    #[default]
    Consent,
    /// Assume that it is the same device.
    Accept,
}

/// Which volumes are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum DiscoveryPolicy {
    /// All.
    #[default]
    Any,
    /// Only filesystems with nothing but `lost+found`, and devices without a known signature.
    EmptyOnly,
}

/// How an Available PV whose volume is missing is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum MissingVolumePolicy {
    /// Report it.
    #[default]
    Report,
    /// Report it, and delete the PV after three discovery periods.
    Delete,
}

/// What `spec.local.path` and the node affinity of a new PV name. Existing PVs keep theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Binding {
    /// The entry's path on the host, and the node.
    #[default]
    Path,
    /// A link below [`LINK_DIR`](crate::names::LINK_DIR), which exists only while the claim's volume is verified, and
    /// a label of the Node that has the volume.
    Disk,
}
