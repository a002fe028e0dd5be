//! The CSI drivers of `--csi-drivers`, and where each records the node of a PV.

use std::collections::BTreeSet;

use super::volume::nodes_of_terms;
use crate::names::LABEL_HOSTNAME;
use crate::view::PersistentVolume;

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
    /// Parses an entry of `--csi-drivers`.
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
        Ok(Self {
            name: name.to_owned(),
            references: references.collect::<Result<_, _>>()?,
        })
    }

    /// The Node labels that its references read.
    pub fn labels(&self) -> impl Iterator<Item = &String> {
        self.references.iter().filter_map(NodeReference::label)
    }

    /// The nodes of a PV, by the first reference that names one: values of a Node label, or else a Node's name. None if
    /// no reference does.
    pub fn nodes(&self, pv: &PersistentVolume) -> (Option<&String>, BTreeSet<String>) {
        let mut nodes = self.references.iter().map(|it| (it.label(), it.nodes(pv)));
        let found = nodes.find(|(_, nodes)| !nodes.is_empty());
        found.unwrap_or_default()
    }
}

impl NodeReference {
    fn parse(text: &str) -> Result<Self, String> {
        let (kind, key) = match text.trim().split_once(':') {
            Some((kind, key)) => (kind, key.trim()),
            None if text.trim() == "affinity" => ("affinity", LABEL_HOSTNAME),
            None => (text.trim(), ""),
        };
        let new = match kind {
            "affinity" => Self::Affinity,
            "annotation" => Self::Annotation,
            "attribute" => Self::Attribute,
            _ => {
                return Err(format!(
                    "unknown reference {text:?}: use affinity[:LABEL], annotation:KEY or attribute:KEY"
                ));
            }
        };
        if key.is_empty() {
            return Err(format!("reference {text:?} requires a key: {kind}:KEY"));
        }
        Ok(new(key.to_owned()))
    }

    fn label(&self) -> Option<&String> {
        match self {
            Self::Affinity(label) => Some(label),
            Self::Annotation(_) | Self::Attribute(_) => None,
        }
    }

    fn nodes(&self, pv: &PersistentVolume) -> BTreeSet<String> {
        let name = match self {
            Self::Affinity(label) => return nodes_of_terms(pv, label),
            Self::Annotation(key) => pv.metadata.annotations.as_ref().and_then(|it| it.get(key)),
            Self::Attribute(key) => {
                let attributes = pv
                    .spec
                    .csi
                    .as_ref()
                    .and_then(|it| it.volume_attributes.as_ref());
                attributes.and_then(|it| it.get(key))
            }
        };
        let name = name.filter(|name| !name.is_empty());
        name.into_iter().cloned().collect()
    }
}
