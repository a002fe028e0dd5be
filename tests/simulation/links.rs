//! The links through which kubelets mount the volumes of PVs that are bound to their disks.

use std::collections::BTreeMap;
use std::time::Duration;

use control_plane::resource;
use local_volume_provisioner::cleanup::Obstacle;
use local_volume_provisioner::host::mark::MarkState;
use local_volume_provisioner::names::{
    ANNOTATION_PATH, ANNOTATION_PROVISIONED_BY, LINK_DIR, PROVISIONER_PREFIX,
};
use local_volume_provisioner::plan::LinkOrder;
use serde_json::Value;

use crate::checks::{disk_of, tenant, uid};
use crate::host::SimHost;
use crate::machines::Homes;
use crate::process;
use crate::world::{NODES, Slot, State, World};

/// How long a provisioner may take until it has withdrawn the link of a volume that is not the right one any more.
pub const WINDOW: Duration = Duration::from_secs(2);
/// The same after a restore of etcd, which disconnects all clients.
const DISCONNECTED: Duration = Duration::from_millis(100);

/// The links of all nodes.
#[derive(Debug, Default)]
pub struct Bindings {
    /// The paths to which links lead, by node and token.
    pub links: BTreeMap<(usize, String), String>,
    /// The node of each process that runs, and since when.
    pub serving: BTreeMap<u64, (usize, Duration)>,
    /// When the caches of the API server have last shown the current state again.
    pub caught_up_at: Duration,
    pub mounts: u64,
    pub homes: Homes,
}

impl Bindings {
    /// The links of a node, with their targets.
    pub fn links_of(&self, node: usize) -> BTreeMap<String, String> {
        let links = self.links.iter().filter(|(key, _)| key.0 == node);
        links.map(|(key, path)| (key.1.clone(), path.clone())).collect()
    }

    pub fn unlink(&mut self, node: usize, token: &str) -> bool {
        self.links.remove(&(node, token.to_owned())).is_some()
    }

    /// Whether a process has served the node for as long as it may take to withdraw a link.
    fn is_served(&self, node: usize) -> bool {
        let is_serving = |since: Duration| process::elapsed() > since + WINDOW;
        let mut serving = self.serving.values();
        serving.any(|it| it.0 == node && is_serving(it.1))
    }
}

/// The name of the link of a PV, if it is bound to its disk.
pub fn token_of(pv: &Value) -> Option<&str> {
    let path = pv["spec"]["local"]["path"].as_str()?;
    path.strip_prefix(LINK_DIR)?.strip_prefix('/')
}

/// The entry of a PV in the discovery directory.
pub fn entry_of(pv: &Value) -> &str {
    let path = match token_of(pv) {
        Some(_) => &pv["metadata"]["annotations"][ANNOTATION_PATH],
        None => &pv["spec"]["local"]["path"],
    };
    path.as_str().unwrap_or_default()
}

/// The node of a PV: the one that its affinity names, or that of its provisioner.
pub fn node_of(pv: &Value) -> Option<usize> {
    if token_of(pv).is_some() {
        let by = pv["metadata"]["annotations"][ANNOTATION_PROVISIONED_BY].as_str()?;
        let is_by = |node: &&str| by.starts_with(&format!("{PROVISIONER_PREFIX}-{node}-"));
        return NODES.iter().position(is_by);
    }
    let terms = &pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let name = &terms[0]["matchExpressions"][0]["values"][0];
    NODES.iter().position(|node| *name == *node)
}

impl SimHost {
    /// Makes a link, unless the disk has changed since the scan or is locked.
    pub async fn make_link(&self, order: &LinkOrder) -> Result<(), Obstacle> {
        let make = |state: &mut State, at: usize| {
            if state.disks[at].lock.is_some() {
                return Err(Obstacle::Unknown("it is locked".into()));
            }
            let token = order.pv.link.as_ref().unwrap().token.clone();
            let links = &mut state.bindings.links;
            links.insert((self.node, token), order.volume.path.to_string());
            Ok(())
        };
        self.change_unchanged(&order.volume, make).await
    }
}

impl State {
    /// Whether the link of a bound PV is missing, although its mark names the claim.
    pub fn lacks_link(&self, slot: &Slot, pv: &Value) -> bool {
        let (Some(token), Some(at)) = (token_of(pv), slot.disk) else {
            return false;
        };
        let mark = self.mark(slot.node, at);
        let is_deleted = pv["metadata"]["deletionTimestamp"].is_string();
        let names_claim = mark.valid().is_some_and(|mark| {
            mark.state == MarkState::Used
                && mark.pv_uid == uid(pv)
                && mark.claim_uid.as_deref() == tenant(pv)
                && mark.token == token
        });
        let links = &self.bindings.links;
        names_claim
            && !is_deleted
            && !self.disks[at].hangs
            && !links.contains_key(&(slot.node, token.to_owned()))
    }
}

impl World {
    /// Whether no Node has the label that the affinity of a PV requires.
    pub fn lacks_label(&self, node: usize, pv: &Value) -> bool {
        let terms = &pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        let label = terms[0]["matchExpressions"][0]["key"].as_str().unwrap();
        let node = self.store.get(&resource::NODES, "", NODES[node]).unwrap();
        token_of(pv).is_some() && !node["metadata"]["labels"][label].is_string()
    }

    /// Follows a link as the kubelet does. `false`: there is none. It must lead to the volume of the PV and its claim.
    pub fn leads_to_its_volume(&self, node: usize, token: &str, pv: &Value) -> bool {
        let mut state = self.lock();
        let Some(path) = state.bindings.links.get(&(node, token.to_owned())).cloned() else {
            return false;
        };
        let slot = state.slot(node, &path).unwrap();
        let (at, changed_at) = (state.slots[slot].disk, state.slots[slot].changed_at);
        let now = process::elapsed();
        let is_due = |since: Duration, limit| now > since + limit;
        let is_excused = !is_due(changed_at, WINDOW)
            || !is_due(state.rolled_back_at, DISCONNECTED)
            || !is_due(state.bindings.caught_up_at, WINDOW)
            || state.is_stale
            || !state.bindings.is_served(node);
        state.bindings.mounts += 1;
        let made_for = state.made_for.get(uid(pv)).copied();
        // One that was restored by hand.
        let made_for = made_for.or_else(|| disk_of(&state, pv));
        let disk = at.map(|at| &state.disks[at]);
        let data = disk.filter(|it| !it.is_forged).and_then(|it| it.data.as_deref());
        let fault = match at {
            _ if is_excused => None,
            None => Some("nothing is mounted there".to_owned()),
            Some(at) if made_for != Some(at) => {
                Some(format!("disk {at} is there, not {made_for:?}"))
            }
            Some(_) if data.is_some_and(|data| tenant(pv) != Some(data)) => {
                Some(format!("it has the data of {data:?}"))
            }
            Some(_) => None,
        };
        if let Some(fault) = fault {
            let name = &pv["metadata"]["name"];
            state.violation(&format!("PV {name} is mounted from {path}, but {fault}"));
        }
        at.is_some()
    }
}
