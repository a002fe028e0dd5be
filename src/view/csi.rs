//! CSI drivers whose volumes are lost with their nodes, and where each records the node of a PV.

use std::collections::BTreeSet;

use super::PersistentVolume;
use crate::names::LABEL_HOSTNAME;

/// The forms of a reference.
const REFERENCES: &str = "affinity, affinity:LABEL, annotation:KEY or attribute:KEY";
/// Azure Container Storage. Its PVs have no affinity, since a pod can move to another node and get an empty volume there.
const AZURE: &str = "localdisk.csi.acstor.io";
/// The current node, and the first one.
const AZURE_REFERENCES: &str = "annotation:localdisk.csi.acstor.io/selected-node|attribute:localdisk.csi.acstor.io/selected-initial-node";

/// A field of a PV that names its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReference {
    /// Values of a Node label, by the node affinity.
    Affinity(String),
    /// A Node's name, in an annotation.
    Annotation(String),
    /// A Node's name, in a volume attribute.
    Attribute(String),
}

/// A CSI driver whose volumes are lost with their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiDriver {
    /// The name, as in `spec.csi.driver`.
    pub name: String,
    /// The first reference that names a node counts.
    pub references: Vec<NodeReference>,
}

impl CsiDriver {
    /// Parses `DRIVER` or `DRIVER=REFERENCE|REFERENCE`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(entry: &str) -> Result<Self, String> {
        let (name, references) = match entry.trim().split_once('=') {
            Some((name, references)) => (name.trim(), references),
            None if entry.trim() == AZURE => (AZURE, AZURE_REFERENCES),
            None => (entry.trim(), "affinity"),
        };
        if name.is_empty() {
            return Err("the name of the CSI driver is missing".into());
        }
        let references = references.split('|').map(NodeReference::parse);
        Ok(Self { name: name.to_owned(), references: references.collect::<Result<_, _>>()? })
    }

    /// The nodes of a PV, by the first reference that names one: values of a Node label, or else a Node's name. None if
    /// no reference does.
    pub fn nodes(&self, pv: &PersistentVolume) -> (Option<&str>, BTreeSet<String>) {
        let mut nodes = self.references.iter().map(|it| (it.label(), it.nodes(pv)));
        let found = nodes.find(|(_, nodes)| !nodes.is_empty());
        found.unwrap_or_default()
    }
}

impl NodeReference {
    fn parse(text: &str) -> Result<Self, String> {
        if text.trim() == "affinity" {
            return Ok(Self::Affinity(LABEL_HOSTNAME.to_owned()));
        }
        let with_key = text.trim().split_once(':');
        let (kind, key) = with_key.filter(|it| !it.1.is_empty()).unwrap_or_default();
        let new = match kind {
            "affinity" => Self::Affinity,
            "annotation" => Self::Annotation,
            "attribute" => Self::Attribute,
            _ => return Err(format!("invalid reference {text:?}: use {REFERENCES}")),
        };
        Ok(new(key.to_owned()))
    }

    /// The Node label whose values it reads.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Affinity(label) => Some(label),
            Self::Annotation(_) | Self::Attribute(_) => None,
        }
    }

    fn nodes(&self, pv: &PersistentVolume) -> BTreeSet<String> {
        let csi = pv.spec.csi.as_ref();
        let (map, key) = match self {
            Self::Affinity(label) => return pv.spec.nodes_of_terms(label),
            Self::Annotation(key) => (pv.metadata.annotations.as_ref(), key),
            Self::Attribute(key) => (csi.and_then(|it| it.volume_attributes.as_ref()), key),
        };
        let name = map.and_then(|it| it.get(key)).into_iter();
        name.filter(|name| !name.is_empty()).cloned().collect()
    }
}
