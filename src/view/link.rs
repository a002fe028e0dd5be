//! The link of a PersistentVolume that is bound to its disk.

use super::PvSpec;
use crate::names::{DISK_LABEL_PREFIX, LINK_DIR, is_link};

/// How the kubelet and the scheduler find the volume of a PV of a class with `binding: disk`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvLink {
    /// The name of the link in [`LINK_DIR`], which is also the token of the offer.
    pub token: String,
    /// The label of the Node that has the disk, which the node affinity requires.
    pub label: Option<String>,
}

impl PvLink {
    /// The link of a PV, if its path is one.
    pub(super) fn of(spec: &PvSpec) -> Option<Self> {
        let path = spec.local.as_ref()?.path.strip_prefix(LINK_DIR)?;
        let token = path.strip_prefix('/').filter(|it| is_link(it))?;
        let required = spec.node_affinity.iter().flat_map(|it| &it.required);
        let terms = required.flat_map(|it| &it.node_selector_terms);
        let mut keys = terms.flat_map(|term| term.match_expressions.iter().flatten());
        let label =
            keys.find(|it| it.key.starts_with(DISK_LABEL_PREFIX) && it.operator == "Exists");
        Some(Self { token: token.to_owned(), label: label.map(|it| it.key.clone()) })
    }
}
