//! Reading and editing the JSON objects that the controllers handle.
//!
//! Objects stay the `Arc` that the store handed out; a typed view ([`Volume`], [`Claim`], [`Pod`],
//! …) is that `Arc` with named accessors.

use std::{fmt, ops::Deref, sync::Arc};

use serde_json::{Map, Value};

use crate::{meta, quantity::Quantity};

/// The name of an object within its type; the namespace is empty for cluster-scoped types.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn of(object: &Value) -> Self {
        Self::new(meta::namespace(object), meta::name(object))
    }

    /// The key of a cluster-scoped object.
    pub(crate) fn cluster(name: &str) -> Self {
        Self::new("", name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// A JSON string, or the empty one.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The elements of a JSON array, or none.
pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The reference to the one owner that controls an object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    items(&object["metadata"]["ownerReferences"]).find(|owner| owner["controller"] == true)
}

/// Whole bytes of a quantity; 0 for what is none, which the API server does not let in.
fn bytes(quantity: &Value) -> i128 {
    text(quantity).parse().map_or(0, |quantity: Quantity| quantity.value())
}

pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    meta::finalizers(object).any(|present| present == finalizer)
}

pub(crate) fn add_finalizer(object: &mut Value, finalizer: &str) {
    list_mut(meta::metadata_mut(object), "finalizers").push(finalizer.into());
}

pub(crate) fn remove_finalizer(object: &mut Value, finalizer: &str) {
    list_mut(meta::metadata_mut(object), "finalizers").retain(|present| present != finalizer);
}

pub(crate) fn set_annotation(object: &mut Value, key: &str, value: &str) {
    meta::child_mut(&mut object["metadata"], "annotations").insert(key.into(), value.into());
}

pub(crate) fn remove_annotation(object: &mut Value, key: &str) {
    meta::child_mut(&mut object["metadata"], "annotations").remove(key);
}

pub(crate) fn list_mut<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Vec<Value> {
    let value = parent.entry(key).or_insert(Value::Null);
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(list) => list,
        _ => unreachable!("made a list just above"),
    }
}

/// A view: an object that the store handed out, known to be of one type.
macro_rules! view {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name(pub(crate) Arc<Value>);

        impl Deref for $name {
            type Target = Value;

            fn deref(&self) -> &Value {
                &self.0
            }
        }

        impl From<Arc<Value>> for $name {
            fn from(object: Arc<Value>) -> Self {
                Self(object)
            }
        }

        #[allow(dead_code, reason = "every view has the same accessors")]
        impl $name {
            pub(crate) fn name(&self) -> &str {
                meta::name(self)
            }

            pub(crate) fn namespace(&self) -> &str {
                meta::namespace(self)
            }

            pub(crate) fn key(&self) -> Key {
                Key::of(self)
            }

            pub(crate) fn uid(&self) -> &str {
                meta::uid(self)
            }

            pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
                self["metadata"]["annotations"][key].as_str()
            }

            pub(crate) fn phase(&self) -> &str {
                text(&self["status"]["phase"])
            }

            pub(crate) fn is_terminating(&self) -> bool {
                meta::is_terminating(self)
            }
        }
    )*};
}

view! {
    /// A PersistentVolume.
    Volume;
    /// A PersistentVolumeClaim.
    Claim;
    /// A StorageClass.
    Class;
    /// A Node.
    Node;
    /// A Pod.
    Pod;
    /// A Job.
    Job;
}

/// Annotation of the deprecated way to name a class; it still wins over the field.
pub(crate) const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The claim that a volume's `spec.claimRef` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimRef<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Empty while the volume is only reserved for the claim.
    pub(crate) uid: &'a str,
}

impl ClaimRef<'_> {
    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace, self.name)
    }

    /// Whether it names this claim: by name, and by UID once there is one.
    pub(crate) fn names(&self, claim: &Claim) -> bool {
        self.name == claim.name()
            && self.namespace == claim.namespace()
            && (self.uid.is_empty() || self.uid == claim.uid())
    }
}

/// How a volume is offered to pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum VolumeMode {
    Filesystem,
    Block,
}

impl VolumeMode {
    fn of(object: &Value) -> Self {
        if object["spec"]["volumeMode"] == "Block" { Self::Block } else { Self::Filesystem }
    }
}

/// A set of access modes. Its order is that of matching: fewer modes come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccessModes(u8);

impl AccessModes {
    const NAMES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

    pub(crate) fn of(list: &Value) -> Self {
        Self(items(list).fold(0, |set, mode| {
            Self::NAMES.iter().position(|name| mode == name).map_or(set, |bit| set | 1 << bit)
        }))
    }

    pub(crate) fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    pub(crate) fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl Ord for AccessModes {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.count(), self.0).cmp(&(other.count(), other.0))
    }
}

impl PartialOrd for AccessModes {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Volume {
    pub(crate) fn claim_ref(&self) -> Option<ClaimRef<'_>> {
        let reference = &self["spec"]["claimRef"];
        reference.is_object().then(|| ClaimRef {
            namespace: text(&reference["namespace"]),
            name: text(&reference["name"]),
            uid: text(&reference["uid"]),
        })
    }

    pub(crate) fn class(&self) -> &str {
        self.annotation(BETA_CLASS).unwrap_or_else(|| text(&self["spec"]["storageClassName"]))
    }

    pub(crate) fn mode(&self) -> VolumeMode {
        VolumeMode::of(self)
    }

    pub(crate) fn access_modes(&self) -> AccessModes {
        AccessModes::of(&self["spec"]["accessModes"])
    }

    /// Its size in bytes.
    pub(crate) fn capacity(&self) -> i128 {
        bytes(&self["spec"]["capacity"]["storage"])
    }

    pub(crate) fn attributes_class(&self) -> &str {
        text(&self["spec"]["volumeAttributesClassName"])
    }

    pub(crate) fn reclaim_policy(&self) -> &str {
        text(&self["spec"]["persistentVolumeReclaimPolicy"])
    }

    /// The required node selector of its node affinity; `None` when any node will do.
    pub(crate) fn node_selector(&self) -> Option<&Value> {
        let required = &self["spec"]["nodeAffinity"]["required"];
        required.is_object().then_some(required)
    }
}

impl Claim {
    /// `None` when the claim leaves the class open, unlike a claim that asks for no class (`""`).
    pub(crate) fn class_if_set(&self) -> Option<&str> {
        self.annotation(BETA_CLASS).or_else(|| self["spec"]["storageClassName"].as_str())
    }

    pub(crate) fn class(&self) -> &str {
        self.class_if_set().unwrap_or_default()
    }

    pub(crate) fn mode(&self) -> VolumeMode {
        VolumeMode::of(self)
    }

    pub(crate) fn access_modes(&self) -> AccessModes {
        AccessModes::of(&self["spec"]["accessModes"])
    }

    /// The size that it asks for, in bytes.
    pub(crate) fn request(&self) -> i128 {
        bytes(&self["spec"]["resources"]["requests"]["storage"])
    }

    pub(crate) fn attributes_class(&self) -> &str {
        text(&self["spec"]["volumeAttributesClassName"])
    }

    /// Its label selector over volumes; `None` when any volume will do.
    pub(crate) fn selector(&self) -> Option<&Value> {
        let selector = &self["spec"]["selector"];
        selector.is_object().then_some(selector)
    }

    pub(crate) fn volume_name(&self) -> &str {
        text(&self["spec"]["volumeName"])
    }
}

impl Class {
    /// Whether its claims wait for a pod (`WaitForFirstConsumer`).
    pub(crate) fn binds_late(&self) -> bool {
        self["volumeBindingMode"] == "WaitForFirstConsumer"
    }

    pub(crate) fn provisioner(&self) -> &str {
        text(&self["provisioner"])
    }

    /// Of classes in the order of their names the default: of several the newest, then the first.
    pub(crate) fn default_of<'a>(
        classes: impl DoubleEndedIterator<Item = &'a Self>,
    ) -> Option<&'a Self> {
        // `max_by_key` takes the last of equals, hence the reversal.
        let defaults = classes.rev().filter(|class| class.is_default());
        defaults.max_by_key(|class| text(&class["metadata"]["creationTimestamp"]))
    }

    fn is_default(&self) -> bool {
        [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ]
        .iter()
        .any(|key| self.annotation(key) == Some("true"))
    }
}

impl Pod {
    /// The node that it runs on; empty before it is scheduled.
    pub(crate) fn node(&self) -> &str {
        text(&self["spec"]["nodeName"])
    }

    /// Whether it ran to its end.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// The claims that it mounts.
    pub(crate) fn claims(&self) -> impl Iterator<Item = Key> {
        let names = items(&self["spec"]["volumes"])
            .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
        names.map(|name| Key::new(self.namespace(), name))
    }
}
