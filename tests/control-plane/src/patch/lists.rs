//! Which lists of the API are maps in disguise: the `patchMergeKey` of the types kept here.

use serde_json::Value;

use crate::resource::{self, Resource};

/// How a list behaves under strategic merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    /// Replaced as a whole.
    Atomic,
    /// A set of plain values.
    Set,
    /// Objects identified by this field.
    Keyed(&'static str),
}

/// The list called `field` inside an object called `parent`.
pub(super) fn kind(r: &'static Resource, parent: &str, field: &str) -> ListKind {
    match (parent, field) {
        ("metadata", "finalizers") => ListKind::Set,
        ("metadata", "ownerReferences") => ListKind::Keyed("uid"),
        (
            _,
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "env"
            | "imagePullSecrets",
        )
        | ("", "secrets") => ListKind::Keyed("name"),
        (_, "ports") if r == &resource::SERVICES => ListKind::Keyed("port"),
        (_, "ports") => ListKind::Keyed("containerPort"),
        (_, "volumeMounts") => ListKind::Keyed("mountPath"),
        (_, "volumeDevices") => ListKind::Keyed("devicePath"),
        ("status", "conditions" | "addresses") => ListKind::Keyed("type"),
        ("status", "podIPs") | (_, "hostAliases") => ListKind::Keyed("ip"),
        (_, "topologySpreadConstraints") => ListKind::Keyed("topologyKey"),
        _ => ListKind::Atomic,
    }
}

/// The position of the item with the same key.
pub(super) fn position(items: &[Value], key: &str, item: &Value) -> Option<usize> {
    items.iter().position(|i| i[key] == item[key])
}
