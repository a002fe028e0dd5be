//! What is kept of a PV: some hundred bytes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PersistentVolume, PersistentVolumeSpec};

use super::timer::Subject;
use crate::names::{ANNOTATION_NODE_GONE_SINCE, LABEL_HOSTNAME, PROVISIONER_PREFIX};
use crate::view::{ClaimRef, Phase, PvRef, PvView, ReclaimPolicy};

/// A local PV of a class that is ours to clean up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own on the object"
)]
pub struct Volume {
    /// The object and its version.
    pub pv: PvRef,
    /// `spec.storageClassName`.
    pub class: String,
    /// `status.phase`.
    pub phase: Phase,
    /// `spec.persistentVolumeReclaimPolicy`.
    pub policy: ReclaimPolicy,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether our finalizer is on it.
    pub protected: bool,
    /// Whether nobody can ever have written to it.
    pub never_used: bool,
    /// Whether an administrator wants it left alone.
    pub paused: bool,
    /// `spec.claimRef`.
    pub claim: Option<ClaimRef>,
    /// The nodes that may have its data, or why that cannot be said.
    pub place: Result<Place, &'static str>,
    /// The annotation with the time since when its node is gone.
    pub gone_since: Option<String>,
}

/// The nodes of a PV. All must be gone before it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// By node affinity and hostname label: hostname labels, or names, of Nodes.
    pub hosts: Vec<String>,
    /// The name of the Node whose provisioner made it, where the PV tells. With another label than its
    /// name, perhaps one that was taken off, the Node is known by this.
    pub maker: Option<String>,
}

impl Place {
    /// All names under which some Node may still be there.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let maker = self
            .maker
            .iter()
            .filter(|maker| !self.hosts.contains(maker));
        self.hosts.iter().chain(maker).map(String::as_str)
    }
}

impl Volume {
    /// The nodes that its data may be on; none if that cannot be said.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        self.place.as_ref().map_or(&[], |place| &place.hosts)
    }

    /// What its time is counted for.
    #[must_use]
    pub fn subject(&self) -> Subject<'_> {
        let claim = self.claim.as_ref();
        Subject {
            hosts: self.hosts(),
            claim: claim.and_then(|claim| claim.uid.as_deref()),
        }
    }

    /// Reads a PV; `None` if it is not local, or of none of these classes.
    #[must_use]
    pub fn of(pv: &PersistentVolume, classes: &BTreeSet<String>) -> Option<Self> {
        let spec = pv.spec.as_ref()?;
        spec.local.as_ref()?;
        if !classes.contains(spec.storage_class_name.as_deref()?) {
            return None;
        }
        let view = PvView::from_api(pv);
        let annotations = pv.metadata.annotations.as_ref();
        let gone_since = annotations.and_then(|map| map.get(ANNOTATION_NODE_GONE_SINCE));
        Some(Self {
            pv: view.reference(),
            class: view.class.clone(),
            phase: view.phase,
            protected: view.has_finalizer(),
            never_used: view.never_used(),
            place: place(spec, &view),
            policy: view.policy,
            deleting: view.deleting,
            paused: view.paused,
            claim: view.claim,
            gone_since: gone_since.cloned(),
        })
    }
}

fn place(spec: &PersistentVolumeSpec, view: &PvView) -> Result<Place, &'static str> {
    let required = spec
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.required.as_ref());
    let terms = required.map_or(&[][..], |required| &required.node_selector_terms);
    if terms.is_empty() {
        return Err("it has no required node affinity");
    }
    let mut hosts = Vec::new();
    for term in terms {
        let named = named_by(term);
        if named.is_empty() {
            // Such a term may hold for any node, also one that there will be tomorrow.
            return Err("a term of its node affinity names no node by kubernetes.io/hostname");
        }
        hosts.extend(named);
    }
    hosts.extend(view.hostname_label.clone());
    hosts.sort();
    hosts.dedup();
    let maker = view.provisioned_by.as_deref().and_then(maker);
    Ok(Place { hosts, maker })
}

/// The nodes that a term names. It may narrow these down further.
fn named_by(term: &NodeSelectorTerm) -> Vec<String> {
    let labels = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    labels
        .filter(|label| label.key == LABEL_HOSTNAME)
        .chain(fields.filter(|field| field.key == "metadata.name"))
        .filter(|expression| expression.operator == "In")
        .flat_map(|expression| expression.values.clone().unwrap_or_default())
        .collect()
}

/// The Node's name in a provisioner's name, which its UID may follow.
fn maker(provisioner: &str) -> Option<String> {
    const UID: usize = "-00000000-0000-0000-0000-000000000000".len();
    let rest = provisioner
        .strip_prefix(PROVISIONER_PREFIX)?
        .strip_prefix('-')?;
    let name = match rest
        .len()
        .checked_sub(UID)
        .and_then(|at| rest.split_at_checked(at))
    {
        Some((name, uid)) if !name.is_empty() && is_uid(uid) => name,
        _ => rest,
    };
    Some(name.to_owned())
}

fn is_uid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        0 | 9 | 14 | 19 | 24 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}
