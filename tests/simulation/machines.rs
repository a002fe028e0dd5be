//! Machines that fail, disks that are moved from them, and the PVs that other nodes take over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control_plane::resource;
use local_volume_provisioner::names::{
    ANNOTATION_CONSENT, ANNOTATION_PAUSED, LABEL_HOSTNAME, TAINT_OUT_OF_SERVICE,
};
use serde_json::{Value, json};

use crate::admin::move_to_other_node;
use crate::checks::uid;
use crate::links::{WINDOW, entry_of, node_of, token_of};
use crate::process::{self, Process};
use crate::processes::Processes;
use crate::script::{any, name};
use crate::world::{NODES, World};

/// The PVs that are bound to their disks.
#[derive(Debug, Default)]
pub struct Homes {
    /// The node of each, by UID.
    nodes: BTreeMap<String, usize>,
    /// Those that an operator permits to take over, by UID.
    consented: BTreeMap<String, String>,
    pub taken: u64,
}

impl World {
    /// Permits that a PV is moved, if a report asks for it.
    pub fn permit(&self, detail: &str) -> Option<()> {
        let (_, rest) = detail.split_once("annotate --overwrite pv ")?;
        let mut words = rest.split([' ', ';']);
        let (pv, consent) = words.next().zip(words.next())?;
        let (_, consent) = consent.split_once("=move:")?;
        let pvs = &resource::PERSISTENT_VOLUMES;
        let (uid, consent) = (consent.split(':').next()?, format!("move:{consent}"));
        let consented = &mut self.lock().bindings.homes.consented;
        consented.insert(uid.to_owned(), consent.clone());
        self.annotate(pvs, "", pv, ANNOTATION_CONSENT, json!(consent));
        Some(())
    }

    /// Checks a PV that is new or was changed: its node changes only if the other one does not use the disk any more.
    pub fn check_home(&self, pv: &Value) {
        let (Some(_), Some(node)) = (token_of(pv), node_of(pv)) else {
            return;
        };
        let pods = self.store.list(&resource::PODS, None).items;
        let nodes = self.store.list(&resource::NODES, None).items;
        let mut state = self.lock();
        let before = state.bindings.homes.nodes.insert(uid(pv).to_owned(), node);
        let is_restored = state.rolled_back_at == process::elapsed();
        let Some(before) = before.filter(|before| *before != node && !is_restored) else {
            return;
        };
        state.bindings.homes.taken += 1;
        let claim = &pv["spec"]["claimRef"]["name"];
        let uses = |pod: &Value| {
            let volumes = pod["spec"]["volumes"].as_array();
            let mut volumes = volumes.into_iter().flatten();
            volumes.any(|it| it["persistentVolumeClaim"]["claimName"] == *claim)
        };
        let runs = |pod: &Value| {
            let phase = &pod["status"]["phase"];
            pod["spec"]["nodeName"] == NODES[before] && phase != "Succeeded" && phase != "Failed"
        };
        let former = nodes.iter().find(|it| name(it) == NODES[before]);
        let is_out = former.is_none_or(|node| {
            let taints = node["spec"]["taints"].as_array();
            let mut taints = taints.into_iter().flatten();
            taints.any(|taint| taint["key"] == TAINT_OUT_OF_SERVICE)
        });
        // A backup can have a consent.
        let is_restored = state.rolled_back_at > Duration::ZERO;
        let consented = &mut state.bindings.homes.consented;
        let is_permitted = consented.remove(uid(pv)).is_some() || is_restored;
        let slot = state.slot(node, entry_of(pv));
        let changed_at = slot.map(|slot| state.slots[slot].changed_at);
        let is_late = changed_at.is_some_and(|at| process::elapsed() < at + WINDOW);
        let at = slot.and_then(|slot| state.slots[slot].disk);
        let is_its_disk = at.is_some() && state.made_for.get(uid(pv)).copied() == at;
        let other = at.and_then(|at| state.disks[at].mounted_for.iter().find(|it| it.0 != node));
        let faults = [
            (!is_out && !is_permitted, "nothing says that its node is off"),
            (pods.iter().any(|pod| uses(pod) && runs(pod)), "a pod of its claim runs there"),
            (!is_its_disk && !is_late && !state.by_hand.contains(uid(pv)), "its disk is not here"),
            (other.is_some(), "its disk is mounted there"),
        ];
        for (_, fault) in faults.iter().filter(|it| it.0) {
            let (from, to) = (NODES[before], NODES[node]);
            let text = format!("PV {} moves from {from} to {to}, but {fault}", name(pv));
            state.violation(&text);
        }
    }
}

impl Processes<'_> {
    /// A step of the machines, if one is due.
    pub async fn step_of_machines(&mut self) -> Option<&'static str> {
        match fastrand::u8(..16) {
            0 if self.off.is_none() => self.power_off().await,
            1 => self.power_on(),
            2 | 3 => self.move_disk(),
            4 | 5 => self.permit_move(),
            _ => None,
        }
    }

    /// Of two machines one fails, and an operator says so. Its disks are intact.
    async fn power_off(&mut self) -> Option<&'static str> {
        let node = self.running[fastrand::usize(..self.running.len())].node;
        if self.running.iter().all(|it| it.node == node) {
            return None;
        }
        while let Some(at) = self.running.iter().position(|it| it.node == node) {
            self.running.swap_remove(at).kill().await;
        }
        let (name, store) = (NODES[node], self.api.store());
        let pods = store.list(&resource::PODS, Some("default")).items;
        for pod in pods.iter().filter(|pod| pod["spec"]["nodeName"] == name) {
            self.world.delete(&resource::PODS, pod);
        }
        self.world.change(|state| {
            state.bindings.links.retain(|(of, _), _| *of != node);
            for disk in &mut state.disks {
                disk.mounted_for.retain(|it| it.0 != node);
            }
        });
        let found = store.get(&resource::NODES, "", name).ok()?;
        if fastrand::bool() {
            self.world.delete(&resource::NODES, &found);
        } else {
            let taint = json!({ "key": TAINT_OUT_OF_SERVICE, "effect": "NoExecute" });
            self.world.modify(&resource::NODES, "", name, |node| {
                node["spec"]["taints"] = json!([taint]);
            });
        }
        self.off = Some(node);
        Some("a machine fails")
    }

    /// The machine that failed is back.
    pub fn power_on(&mut self) -> Option<&'static str> {
        let node = self.off.take()?;
        let (name, nodes) = (NODES[node], &resource::NODES);
        let labels = json!({ LABEL_HOSTNAME: name });
        let new = json!({ "metadata": { "name": name, "labels": labels }, "spec": {} });
        // It may be there still.
        let _ = self.api.store().create(nodes, "", new);
        if self.world.lock().paused_at.is_some() {
            let paused = json!("true");
            self.world.annotate(nodes, "", name, ANNOTATION_PAUSED, paused);
        }
        self.world.modify(nodes, "", name, |node| {
            node["spec"]["taints"] = json!([]);
        });
        if self.world.lock().spares.makes {
            self.world.change(|state| state.boot(node));
        }
        self.start(node);
        Some("a machine is back")
    }

    /// A claim's disk is moved, from the machine that failed if there is one.
    fn move_disk(&self) -> Option<&'static str> {
        let mut pvs = self.world.pvs();
        pvs.retain(|pv| pv["status"]["phase"] == "Bound");
        self.world.change(|state| {
            let of_pv = |pv: &Arc<Value>| {
                let node = node_of(pv)?;
                let slot = state.slot(node, entry_of(pv))?;
                let disk = state.slots[slot].disk?;
                let is_from = self.off.is_none_or(|off| off == node);
                (is_from && state.made_for.get(uid(pv)) == Some(&disk)).then_some((slot, disk))
            };
            let of_claims: Vec<_> = pvs.iter().filter_map(of_pv).collect();
            let (slot, disk) = any(&of_claims)?;
            Some(move_to_other_node(state, *slot, *disk))
        })
    }

    /// An operator permits what the reports ask for.
    fn permit_move(&self) -> Option<&'static str> {
        let held = self.running.iter().flat_map(Process::held);
        let given: Vec<_> = held.filter_map(|it| self.world.permit(&it.1)).collect();
        (!given.is_empty()).then_some("an operator permits that a PV is moved")
    }
}
