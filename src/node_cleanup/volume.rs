//! A local PV, or one of a configured CSI driver, and the nodes that may have its data.

use crate::names::{LABEL_HOSTNAME, nodes_of_provisioner};
use crate::view::{CsiDriver, PersistentVolume, PvView};

/// A PV of a configured class. It is orphaned when all of its nodes are gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// The PV.
    pub pv: PvView,
    /// Names, or values of the label, of the Nodes that may have its data, by node affinity and hostname label, or by
    /// the references of its CSI driver. Empty if other Nodes may have it, too.
    pub hosts: Vec<String>,
    /// The Node label by which it names them.
    pub label: String,
    /// The name of the Node whose provisioner created the PV, if known. It identifies a Node whose label changed.
    pub maker: Option<String>,
    /// Whether it is the volume of a CSI driver.
    pub is_csi: bool,
}

impl Volume {
    /// Reads a PV; `None` if it is of another class, or neither local nor of one of the drivers.
    pub fn read(pv: &PersistentVolume, classes: &[String], drivers: &[CsiDriver]) -> Option<Self> {
        let view = PvView::from_api(pv);
        if !classes.contains(&view.class) {
            return None;
        }
        let spec = &pv.spec;
        let (label, mut hosts) = if spec.local.is_some() {
            (Some(LABEL_HOSTNAME), spec.nodes_of_terms(LABEL_HOSTNAME))
        } else {
            let csi = spec.csi.as_ref()?;
            drivers.iter().find(|it| it.name == csi.driver)?.nodes(pv)
        };
        // Without a label, it is the Node's name.
        let named = hosts.first().filter(|_| label.is_none()).cloned();
        if !hosts.is_empty() {
            hosts.extend(view.hostname_label.clone());
        }
        let by = view.provisioned_by.as_deref().unwrap_or_default();
        let maker = || nodes_of_provisioner(by).first().map(ToString::to_string);
        Some(Self {
            hosts: Vec::from_iter(hosts),
            label: label.unwrap_or(LABEL_HOSTNAME).to_owned(),
            maker: named.or_else(maker),
            is_csi: spec.local.is_none(),
            pv: view,
        })
    }

    /// All names by which one of the Nodes may still exist. The maker may be one of the hosts, too.
    pub fn node_names(&self) -> impl Iterator<Item = &String> {
        self.hosts.iter().chain(&self.maker)
    }

    /// The UID of the claim that the PV names.
    pub fn claim_uid(&self) -> Option<&str> {
        self.pv.claim.as_ref()?.uid.as_deref()
    }
}
