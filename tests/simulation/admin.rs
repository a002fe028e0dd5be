//! The steps of administrators, with and without care.

use std::collections::BTreeSet;
use std::sync::Arc;

use control_plane::resource::{self, Resource};
use local_volume_provisioner::host::mark::MarkOnDisk;
use local_volume_provisioner::names::{
    ANNOTATION_CONSENT, ANNOTATION_IDENTITY, ANNOTATION_OFFER, ANNOTATION_USED, CONSENT_PREFIX,
    FINALIZER, LABEL_HOSTNAME, LABEL_IDENTITY_HASH,
};
use serde_json::{Value, json};

use crate::checks::{disk_of, uid};
use crate::links::{entry_of, node_of};
use crate::process::{self, Process};
use crate::script::{Script, any, name};
use crate::world::{NODES, State};

/// The farthest that a clock jumps, in seconds.
const JUMP: i64 = 7200;

/// The slots of which something holds.
fn slots(state: &State, holds: impl Fn(usize) -> bool) -> Vec<usize> {
    (0..state.slots.len()).filter(|at| holds(*at)).collect()
}

impl Script<'_> {
    /// A disk breaks, is pulled, exchanged or moved, or what was wrong is set right.
    pub fn change_disks(&self) -> &'static str {
        self.world.change(|state| {
            let filled = slots(state, |at| state.slots[at].disk.is_some());
            // What has data is the more interesting.
            let has_data = |at: usize| state.disks[at].data.is_some();
            let used = slots(state, |at| state.slots[at].disk.is_some_and(has_data));
            let used = any(&used).filter(|_| fastrand::bool());
            let Some(slot) = used.or_else(|| any(&filled)).copied() else {
                plug_in_missing(state);
                return "disks are plugged in";
            };
            let at = state.slots[slot].disk.unwrap();
            if state.disks[at].hangs {
                state.disks[at].hangs = false;
                return "a disk answers again";
            }
            let limit = if self.is_calm { 7 } else { 10 };
            match fastrand::u8(..limit) {
                0 | 1 => {
                    state.plug(slot, None);
                    "a disk is pulled"
                }
                2 | 3 => {
                    plug_in_missing(state);
                    "disks are plugged in"
                }
                4 => {
                    state.disks[at].hangs = true;
                    "a disk hangs"
                }
                5 => {
                    state.disks[at].next_wipe_fails = true;
                    "a wipe will fail"
                }
                6 => {
                    state.disks[at].gib += 1;
                    "a disk grows"
                }
                7 | 8 => {
                    let (node, class) = (state.slots[slot].node, state.slots[slot].class);
                    let others = slots(state, |other| {
                        let other = &state.slots[other];
                        other.node == node && other.class == class
                    });
                    let is_of_made = |slot| state.is_entry_of_made(slot);
                    let other = *any(&others).unwrap();
                    if is_of_made(slot) || is_of_made(other) {
                        return "no disks change places";
                    }
                    let there = state.slots[other].disk;
                    state.plug(other, Some(at));
                    state.plug(slot, there);
                    "two disks of a node change places"
                }
                _ => move_to_other_node(state, slot, at),
            }
        })
    }

    /// An administrator changes PVs, marks, Nodes or clocks.
    pub fn administrate(&mut self) -> &'static str {
        let pvs = self.world.pvs();
        // What is being cleaned is the more interesting, and what no watch shows in time.
        let is_released = |pv: &&Arc<Value>| pv["status"]["phase"] == "Released";
        let released: Vec<_> = pvs.iter().filter(is_released).collect();
        let released = any(&released).filter(|_| fastrand::bool()).copied();
        let Some(pv) = released.or_else(|| any(&pvs)) else {
            return "there is no PV";
        };
        if fastrand::u8(..3) == 0 {
            self.lag("persistentvolumes", 0);
        }
        match fastrand::u8(..12) {
            0 | 1 => {
                self.world.delete(&resource::PERSISTENT_VOLUMES, pv);
                "a PV is deleted"
            }
            2 => {
                self.delete_by_force(&resource::PERSISTENT_VOLUMES, pv);
                "a PV is deleted by force"
            }
            3 => {
                let is_delete = pv["spec"]["persistentVolumeReclaimPolicy"] == "Delete";
                let policy = if is_delete { "Retain" } else { "Delete" };
                self.set_policy(pv, policy);
                "a reclaim policy is changed"
            }
            4 | 5 => {
                self.strip(pv);
                "metadata of a PV is removed"
            }
            6 => self.back_up(),
            7 => self.restore(),
            8 => self.roll_back(),
            9 => self.forge_mark(),
            10 => {
                self.register_again();
                "a Node is registered again"
            }
            _ => {
                process::jump(fastrand::i64(-JUMP..=JUMP));
                "the clocks jump"
            }
        }
    }

    /// Deletes an object at once, whatever holds it.
    pub fn delete_by_force(&self, of: &'static Resource, object: &Value) {
        self.world.lock().by_hand.insert(uid(object).to_owned());
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        self.world.modify(of, namespace, name(object), |object| {
            object["metadata"]["finalizers"] = json!([]);
        });
        self.world.delete(of, object);
    }

    /// Changes a PV by hand.
    fn edit(&self, pv: &Value, change: impl FnOnce(&mut Value)) {
        self.world.lock().by_hand.insert(uid(pv).to_owned());
        self.world.modify(&resource::PERSISTENT_VOLUMES, "", name(pv), change);
    }

    fn set_policy(&self, pv: &Value, policy: &str) {
        if policy == "Retain" {
            let mut state = self.world.lock();
            state.retained_at.insert(uid(pv).to_owned(), process::elapsed());
        }
        self.world.modify(&resource::PERSISTENT_VOLUMES, "", name(pv), |pv| {
            pv["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
        });
    }

    fn strip(&self, pv: &Value) {
        let all = [
            ANNOTATION_IDENTITY,
            ANNOTATION_OFFER,
            ANNOTATION_USED,
            LABEL_HOSTNAME,
            LABEL_IDENTITY_HASH,
            FINALIZER,
        ];
        let key = *any(&all).unwrap();
        self.edit(pv, |pv| {
            let metadata = &mut pv["metadata"];
            if let Some(finalizers) = metadata["finalizers"].as_array_mut() {
                finalizers.retain(|it| it != key);
            }
            for map in ["annotations", "labels"] {
                if let Some(map) = metadata[map].as_object_mut() {
                    map.remove(key);
                }
            }
        });
    }

    fn forge_mark(&self) -> &'static str {
        self.world.change(|state| {
            let filled = slots(state, |at| state.slots[at].disk.is_some());
            let Some((slot, other)) = any(&filled).zip(any(&filled)) else {
                return "there is no disk";
            };
            let [slot, other] = [slot, other].map(|at| &state.slots[*at]);
            let (node, disk) = (slot.node, slot.disk.unwrap());
            let mark = match fastrand::u8(..3) {
                0 => MarkOnDisk::Absent,
                1 => {
                    let digest = format!("{:016x}", fastrand::u64(..));
                    MarkOnDisk::Unreadable { digest }
                }
                _ => state.mark(other.node, other.disk.unwrap()),
            };
            state.set_mark(node, disk, mark);
            state.disks[disk].is_forged = true;
            "a mark is lost, broken, or that of another disk"
        })
    }

    /// The new Node has no annotations, so a pause ends.
    fn register_again(&mut self) {
        self.resume();
        let (store, nodes) = (self.api.store(), &resource::NODES);
        let node = NODES[fastrand::usize(..self.nodes)];
        let Ok(before) = store.get(nodes, "", node) else {
            return;
        };
        let labels = &before["metadata"]["labels"];
        let after = json!({ "metadata": { "name": node, "labels": labels }, "spec": {} });
        self.world.delete(nodes, &before);
        store.create(nodes, "", after).unwrap();
    }

    /// Sets everything right that no consent can: each disk goes where a PV records it, or where it belongs.
    pub fn restore_order(&self) {
        process::jump(0);
        for pv in self.world.pvs() {
            self.set_policy(&pv, "Delete");
        }
        let mut pvs = self.world.pvs();
        let urgency = ["Bound", "Released", "Failed", "Available"];
        pvs.sort_by_key(|pv| urgency.iter().position(|it| pv["status"]["phase"] == *it));
        self.world.change(|state| {
            let all = 0..state.slots.len();
            let mut left: BTreeSet<_> = (0..state.disks.len()).collect();
            let mut places = vec![None; state.slots.len()];
            for pv in &pvs {
                let path = entry_of(pv);
                let slot = node_of(pv).and_then(|node| state.slot(node, path)).unwrap();
                let disk = disk_of(state, pv).filter(|disk| left.contains(disk));
                let disk = disk.filter(|disk| state.may_be_on(state.slots[slot].node, *disk));
                if let Some(disk) = disk.filter(|_| places[slot].is_none()) {
                    left.remove(&disk);
                    places[slot] = Some(disk);
                }
            }
            for disk in left {
                let home = all.clone().find(|at| state.slots[*at].home == Some(disk));
                // One that no class has taken in stays where it is.
                let Some(class) = home.map(|home| state.slots[home].class) else {
                    continue;
                };
                let is_made = state.disks[disk].made.identity.is_some();
                let free = |at: &usize| {
                    let slot = &state.slots[*at];
                    places[*at].is_none()
                        && slot.class == class
                        && state.may_be_on(slot.node, disk)
                        && (home == Some(*at) || !(is_made || state.is_entry_of_made(*at)))
                };
                let slot = home.filter(free).or_else(|| all.clone().find(free));
                if let Some(slot) = slot {
                    places[slot] = Some(disk);
                }
            }
            for (slot, disk) in places.into_iter().enumerate() {
                if state.slots[slot].disk != disk {
                    state.put(slot, disk);
                }
            }
            for disk in &mut state.disks {
                (disk.hangs, disk.next_wipe_fails) = (false, false);
                disk.mounted_for.clear();
            }
            state.spares.is_quiet = true;
            for spare in state.spares.disks.values_mut() {
                spare.mishap = None;
            }
        });
    }

    /// Gives up the PV that a report names as the wrong one.
    fn give_up_other(&self, detail: &str) {
        let named = detail.split_once(" of PV ").map(|(_, rest)| rest);
        let named = named.and_then(|it| it.split([',', ' ', ';']).next());
        let named =
            named.filter(|_| detail.contains("delete that PV") || detail.contains("delete PV"));
        let (store, pvs) = (self.api.store(), &resource::PERSISTENT_VOLUMES);
        if let Some(pv) = named.and_then(|name| store.get(pvs, "", name).ok()) {
            let claim = &pv["spec"]["claimRef"]["name"];
            let claims = self.claims();
            for claim in claims.iter().filter(|it| it["metadata"]["name"] == *claim) {
                self.world.delete(&resource::PERSISTENT_VOLUME_CLAIMS, claim);
            }
            self.set_policy(&pv, "Retain");
            self.world.delete(pvs, &pv);
        }
    }

    /// Gives the consents that the reports of held volumes name.
    pub fn consent(&self, process: &Process) {
        let node = NODES[process.node];
        for (volume, detail) in process.held() {
            let quoted = |verb: &str| detail.split('"').find(|it| it.starts_with(verb));
            let given = if let Some(pv) = &volume.pv {
                let consent = quoted("wipe:").or_else(|| quoted("forget:"));
                let pvs = &resource::PERSISTENT_VOLUMES;
                consent.map(|it| {
                    self.world.annotate(pvs, "", pv, ANNOTATION_CONSENT, json!(it));
                })
            } else {
                let mut words = detail.split(' ');
                let word = words.find(|it| it.starts_with(CONSENT_PREFIX));
                let consent = word.and_then(|it| it.split_once('='));
                consent.map(|(key, it)| {
                    self.world.annotate(&resource::NODES, "", node, key, json!(it));
                })
            };
            if given.is_none() && self.world.permit(&detail).is_none() {
                self.give_up_other(&detail);
            }
            let is_cleaned = detail.contains("local-volume-provisioner clean ");
            self.world.change(|state| {
                let slot = state.slot(process.node, &volume.path);
                let Some(disk) = slot.and_then(|slot| state.slots[slot].disk) else {
                    return;
                };
                state.disks[disk].has_consent |= given.is_some();
                if is_cleaned {
                    state.disks[disk].data = None;
                }
            });
        }
    }
}

/// Disks that are nowhere go where they belong.
fn plug_in_missing(state: &mut State) {
    for slot in 0..state.slots.len() {
        let home = state.slots[slot].home;
        let is_somewhere = home.is_some_and(|home| {
            let mut slots = state.slots.iter();
            slots.any(|slot| slot.disk == Some(home))
        });
        let may_be = home.is_some_and(|home| state.may_be_on(state.slots[slot].node, home));
        let is_loose = home.is_some_and(|home| state.loose_on(home).is_some());
        if state.slots[slot].disk.is_none() && !is_somewhere && !is_loose && may_be {
            state.put(slot, home);
        }
    }
}

pub fn move_to_other_node(state: &mut State, slot: usize, at: usize) -> &'static str {
    if state.is_entry_of_made(slot) {
        state.move_made(at, state.slots[slot].node);
        let disk = &mut state.disks[at];
        disk.is_forged |= disk.data.is_some() && !disk.global.is_unique;
        return "the disk of a filesystem is moved to another node";
    }
    let empty = slots(state, |other| {
        let (other, slot) = (&state.slots[other], &state.slots[slot]);
        other.disk.is_none()
            && other.node != slot.node
            && other.class == slot.class
            && state.may_be_on(other.node, at)
    });
    let empty: Vec<_> = (empty.into_iter()).filter(|slot| !state.is_entry_of_made(*slot)).collect();
    let Some(other) = any(&empty) else {
        return "no disk is moved";
    };
    state.plug(slot, None);
    state.plug(*other, Some(at));
    // A PV there may be of this disk, too, and no kubelet asks whether its tenant wrote what is there.
    let disk = &mut state.disks[at];
    disk.is_forged |= disk.data.is_some() && !disk.global.is_unique;
    "a disk is moved to another node"
}
