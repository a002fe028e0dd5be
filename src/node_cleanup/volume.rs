//! A local PV, and the nodes that may have its data.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PersistentVolume, PersistentVolumeSpec};

use crate::names::{ANNOTATION_NODE_GONE_SINCE, LABEL_HOSTNAME, PROVISIONER_PREFIX};
use crate::view::PvView;

/// A local PV of a configured class.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// The PV.
    pub pv: PvView,
    /// The nodes that may have its data, or why they are unknown.
    pub nodes: Result<NodeNames, &'static str>,
    /// The annotation that marks it as one of a node that is gone.
    pub mark: Option<String>,
}

/// The nodes of a PV. The PV is orphaned when all of them are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNames {
    /// Hostname labels or names of Nodes, by node affinity and hostname label.
    pub hosts: Vec<String>,
    /// The name of the Node whose provisioner created the PV, if known. It identifies a Node whose label changed.
    pub maker: Option<String>,
}

impl NodeNames {
    /// All names by which one of the Nodes may still exist.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        let maker = self.maker.iter();
        let maker = maker.filter(|maker| !self.hosts.contains(maker));
        self.hosts.iter().chain(maker).map(String::as_str)
    }
}

impl Volume {
    /// Reads a PV; `None` if it is not local, or of another class.
    #[must_use]
    pub fn read(pv: &PersistentVolume, classes: &BTreeSet<String>) -> Option<Self> {
        let spec = pv.spec.as_ref()?;
        spec.local.as_ref()?;
        if !classes.contains(spec.storage_class_name.as_deref()?) {
            return None;
        }
        let view = PvView::from_api(pv);
        let annotations = pv.metadata.annotations.as_ref();
        let mark = annotations.and_then(|map| map.get(ANNOTATION_NODE_GONE_SINCE));
        Some(Self {
            nodes: node_names(spec, &view),
            pv: view,
            mark: mark.cloned(),
        })
    }

    /// The hosts by node affinity and label; empty if unknown.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        self.nodes.as_ref().map_or(&[], |nodes| &nodes.hosts)
    }

    /// The UID of the claim that the PV names.
    #[must_use]
    pub fn claim_uid(&self) -> Option<&str> {
        self.pv.claim.as_ref()?.uid.as_deref()
    }

    /// A new mark: `<RFC 3339 time> <node>[,<node>...] <claim's UID>`.
    #[must_use]
    pub fn new_mark(&self, now: Timestamp) -> String {
        format!("{} {}", now.strftime("%FT%TZ"), self.marked_as())
    }

    /// Whether the mark names these nodes and this claim. Another claim has its own delay.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        let mark = self.mark.as_deref().and_then(|mark| mark.split_once(' '));
        mark.is_some_and(|(_, of)| of == self.marked_as())
    }

    fn marked_as(&self) -> String {
        format!(
            "{} {}",
            self.hosts().join(","),
            self.claim_uid().unwrap_or("-")
        )
    }
}

fn node_names(spec: &PersistentVolumeSpec, view: &PvView) -> Result<NodeNames, &'static str> {
    let affinity = spec.node_affinity.as_ref();
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let terms = required.map_or(&[][..], |required| &required.node_selector_terms);
    if terms.is_empty() {
        return Err("it has no required node affinity");
    }
    let mut hosts = Vec::from_iter(view.hostname_label.clone());
    for term in terms {
        let named = hosts_of(term);
        if named.is_empty() {
            // Any node may match such a term, even one that joins later.
            return Err("a term of its node affinity names no node by kubernetes.io/hostname");
        }
        hosts.extend(named);
    }
    hosts.sort();
    hosts.dedup();
    let maker = view.provisioned_by.as_deref().and_then(maker);
    Ok(NodeNames { hosts, maker })
}

/// The nodes that a term names. Its other expressions can only exclude some of them.
fn hosts_of(term: &NodeSelectorTerm) -> Vec<String> {
    let labels = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    labels
        .filter(|label| label.key == LABEL_HOSTNAME)
        .chain(fields.filter(|field| field.key == "metadata.name"))
        .filter(|expression| expression.operator == "In")
        .flat_map(|expression| expression.values.clone().unwrap_or_default())
        .collect()
}

/// The Node's name in a provisioner's name, which the Node's UID may follow.
fn maker(provisioner: &str) -> Option<String> {
    const UID_LEN: usize = "-00000000-0000-0000-0000-000000000000".len();
    let rest = provisioner.strip_prefix(PROVISIONER_PREFIX)?;
    let rest = rest.strip_prefix('-')?;
    let split = rest.len().checked_sub(UID_LEN);
    let name = match split.and_then(|at| rest.split_at_checked(at)) {
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
