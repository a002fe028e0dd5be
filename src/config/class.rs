//! One class: the keys below its name in `storageClassMap`.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use super::cleaner::{self, Cleaner};
use super::fault::Problem;
use super::label;
use super::pattern::NamePattern;
use super::raw::Node;
use super::scheduling::node_selector_term;
use super::section::{Place, Report, Section, flag, span, text, word};
use crate::types::{HostPath, MountPath, VolumeMode};

/// A StorageClass of the same name, and the directory where its volumes are found.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The StorageClass's name: the key in `storageClassMap`.
    pub name: String,
    /// `hostDir` (required): the discovery directory as the host and the kubelet name it. It is the
    /// first part of every volume's `spec.local.path`.
    pub host_dir: HostPath,
    /// `mountDir` (required): the same directory as this process sees it in its container.
    pub mount_dir: MountPath,
    /// `cleanMethod` or `blockCleanerCommand` (default `[/scripts/quick_reset.sh]`): how released
    /// devices are cleaned.
    pub cleaner: Cleaner,
    /// `cleanupTimeout` (default none): how long the cleaning of one volume may take from the moment
    /// that its data is touched; what takes longer is stopped and has failed. Never zero.
    pub cleanup_timeout: Option<Duration>,
    /// `trim` (default true): whether the disk below an emptied filesystem is told which blocks are
    /// free (`FITRIM`), so that it may drop what was deleted.
    pub trim: bool,
    /// `volumeMode` (default `Filesystem`; or `Block`): how pods get the volumes.
    pub volume_mode: VolumeMode,
    /// `accessMode` (default `ReadWriteOnce`).
    pub access_mode: AccessMode,
    /// `fsType` (default: the kubelet's choice): the filesystem that the kubelet makes on a device
    /// of a `Filesystem` class.
    pub fs_type: Option<String>,
    /// `namePattern` (default `*`): which entries belong to the class.
    pub name_pattern: NamePattern,
    /// `selector` (default none): node selector terms that are OR-ed with the node's own, for
    /// volumes that more nodes than this one can reach.
    pub selector: Vec<NodeSelectorTerm>,
    /// `weakIdentity` (default `Consent`; or `Accept`): whether a device that cannot be told from
    /// another after a reboot is cleaned without an administrator's consent.
    pub weak_identity: WeakIdentity,
    /// `discoveryPolicy` (default `Any`; or `EmptyOnly`): whether volumes that hold data are offered.
    pub discovery_policy: DiscoveryPolicy,
    /// `missingVolumePolicy` (default `Report`; or `Delete`): what becomes of a PV that nobody
    /// claimed when its disk has vanished.
    pub missing_volume_policy: MissingVolumePolicy,
}

/// How many pods or nodes may have a volume at once (`spec.accessModes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
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

/// What to do about a device without a lasting identity once the node was rebooted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WeakIdentity {
    /// Wait until an administrator has consented.
    #[default]
    Consent,
    /// Take it for the same device.
    Accept,
}

/// Which volumes are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DiscoveryPolicy {
    /// All.
    #[default]
    Any,
    /// Only filesystems with nothing but `lost+found`, and devices without a known signature.
    EmptyOnly,
}

/// What to do about an Available PV whose volume has vanished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MissingVolumePolicy {
    /// Say so.
    #[default]
    Report,
    /// Say so, and delete the PV after three discovery periods.
    Delete,
}

/// Each enum's words in the configuration.
const VOLUME_MODES: [(&str, VolumeMode); 2] = [
    ("Filesystem", VolumeMode::Filesystem),
    ("Block", VolumeMode::Block),
];
const ACCESS_MODES: [(&str, AccessMode); 4] = [
    ("ReadWriteOnce", AccessMode::ReadWriteOnce),
    ("ReadOnlyMany", AccessMode::ReadOnlyMany),
    ("ReadWriteMany", AccessMode::ReadWriteMany),
    ("ReadWriteOncePod", AccessMode::ReadWriteOncePod),
];
const WEAK_IDENTITIES: [(&str, WeakIdentity); 2] = [
    ("Consent", WeakIdentity::Consent),
    ("Accept", WeakIdentity::Accept),
];
const DISCOVERY_POLICIES: [(&str, DiscoveryPolicy); 2] = [
    ("Any", DiscoveryPolicy::Any),
    ("EmptyOnly", DiscoveryPolicy::EmptyOnly),
];
const MISSING_VOLUME_POLICIES: [(&str, MissingVolumePolicy); 2] = [
    ("Report", MissingVolumePolicy::Report),
    ("Delete", MissingVolumePolicy::Delete),
];

/// The word for a value, from the table that it is read by.
pub(super) fn spelling<T: Copy + PartialEq>(table: &[(&'static str, T)], value: T) -> &'static str {
    table
        .iter()
        .find(|(_, other)| *other == value)
        .map_or("", |(word, _)| word)
}

impl AccessMode {
    /// The spelling of the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        spelling(&ACCESS_MODES, self)
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for WeakIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(spelling(&WEAK_IDENTITIES, *self))
    }
}

impl fmt::Display for DiscoveryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(spelling(&DISCOVERY_POLICIES, *self))
    }
}

impl fmt::Display for MissingVolumePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(spelling(&MISSING_VOLUME_POLICIES, *self))
    }
}

/// The class, or nothing when there is a fault in it; all its faults are in the report.
pub(super) fn read(name: &str, node: Node, report: &mut Report) -> Option<Class> {
    let before = report.faults.len();
    let place = Place::class(name);
    if !label::is_dns_subdomain(name) {
        report.fault(&place, &Node::Text(name.into()), Problem::ClassName);
    }
    let mut section = Section::open(&place, node, report)?;
    let host_dir = section.required("hostDir", |node| {
        HostPath::normalise(text(node)?).map_err(Problem::Path)
    });
    let mount_dir = section.required("mountDir", |node| {
        MountPath::normalise(text(node)?).map_err(Problem::Path)
    });
    let cleaner = cleaner::read(&mut section);
    let cleanup_timeout = section.value("cleanupTimeout", |node| time_limit(node).map(Some));
    let trim = section.value_or("trim", true, true, flag);
    let volume_mode = section.value("volumeMode", |node| word(node, &VOLUME_MODES));
    let access_mode = section.value("accessMode", |node| word(node, &ACCESS_MODES));
    let fs_type = section
        .value("fsType", |node| {
            text(node).map(|text| Some(text.to_owned()))
        })
        .filter(|text| !text.is_empty());
    let name_pattern = section.value("namePattern", |node| match text(node)? {
        "" => Ok(NamePattern::default()),
        text => NamePattern::parse(text).map_err(Problem::Pattern),
    });
    let selector = section.list("selector", node_selector_term);
    let weak_identity = section.value("weakIdentity", |node| word(node, &WEAK_IDENTITIES));
    let discovery_policy = section.value("discoveryPolicy", |node| word(node, &DISCOVERY_POLICIES));
    let missing_volume_policy = section.value("missingVolumePolicy", |node| {
        word(node, &MISSING_VOLUME_POLICIES)
    });
    section.close();

    if report.faults.len() > before {
        return None;
    }
    Some(Class {
        name: name.to_owned(),
        host_dir: host_dir?,
        mount_dir: mount_dir?,
        cleaner,
        cleanup_timeout,
        trim,
        volume_mode,
        access_mode,
        fs_type,
        name_pattern,
        selector,
        weak_identity,
        discovery_policy,
        missing_volume_policy,
    })
}

/// A duration that is not zero: for some programs that means no limit, for others no time.
fn time_limit(node: &Node) -> Result<Duration, Problem> {
    let limit = span(node)?;
    if limit.is_zero() {
        Err(Problem::NoTime)
    } else {
        Ok(limit)
    }
}
