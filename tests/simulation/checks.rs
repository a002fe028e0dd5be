//! What must hold in every world.

use std::sync::Arc;
use std::time::Duration;

use control_plane::resource;
use http::Method;
use local_volume_provisioner::host::mark::Mark;
use local_volume_provisioner::names::{ANNOTATION_IDENTITY, FINALIZER};
use local_volume_provisioner::types::SkipReason;
use serde_json::Value;

use crate::found::identity;
use crate::links::{entry_of, node_of, token_of};
use crate::process::{self, Process};
use crate::script::name;
use crate::world::{CLASSES, Lock, NODES, State, World};

/// What a wipe is for.
#[derive(Clone, Debug)]
pub struct Wipe {
    pub node: usize,
    pub path: String,
    pub pv: String,
    pub pv_uid: String,
    pub identity: String,
    /// Whether an administrator's consent stands for the PV.
    pub is_orphan: bool,
}

/// The tenant of a PV, by the UID of its claim.
pub fn tenant(pv: &Value) -> Option<&str> {
    pv["spec"]["claimRef"]["uid"].as_str()
}

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The disk that a PV was made for, by its recorded identity.
pub fn disk_of(state: &State, pv: &Value) -> Option<usize> {
    let recorded = &pv["metadata"]["annotations"][ANNOTATION_IDENTITY];
    let mut disks = state.disks.iter().enumerate();
    Some(disks.find(|(at, disk)| *recorded == identity(*at, disk))?.0)
}

/// How long a decision of an administrator may take until no wipe begins against it.
const REACTION: Duration = Duration::from_secs(2);

/// How often a process may send the same request in a minute, whatever fails: a read for each disk, which is tried each
/// second, and a write, which each pass repeats while a watch does not show it.
const READS: usize = 100;
const WRITES: usize = 250;

impl State {
    /// How long the slowest request took that was answered since then.
    fn slowest_since(&self, since: Duration) -> Duration {
        let later = self.slow.iter().filter(|it| it.0 >= since);
        later.map(|it| it.1).max().unwrap_or_default()
    }
}

impl World {
    /// Checks a wipe by a provisioner before it begins.
    pub fn check_begin(&self, at: usize, wipe: &Wipe) {
        let pv = self.store.get(&resource::PERSISTENT_VOLUMES, "", &wipe.pv);
        let pv = pv.map(|pv| (*pv).clone()).unwrap_or_default();
        let retains = pv["spec"]["persistentVolumeReclaimPolicy"] == "Retain";
        let mut state = self.lock();
        state.disks[at].wiped_since = process::elapsed();
        // It may come while the last request before a wipe is answered.
        let is_old = |since: Option<&Duration>| {
            let limit = since.map(|since| *since + REACTION + state.slowest_since(*since));
            limit.is_some_and(|limit| process::elapsed() > limit)
        };
        let faults = [
            (is_old(state.paused_at.as_ref()), "cleaning is paused"),
            (is_old(state.gone_at.get(&wipe.pv_uid)) && !wipe.is_orphan, "its PV is gone"),
            (retains && is_old(state.retained_at.get(&wipe.pv_uid)), "its policy is Retain"),
        ];
        for (_, fault) in faults.iter().filter(|(is_fault, _)| *is_fault) {
            state.violation(&format!("a wipe of disk {at} begins, but {fault}"));
        }
    }

    /// Checks the mark that a wipe replaces.
    pub fn check_wiping(&self, node: usize, at: usize, next: &Mark, is_orphan: bool) {
        let mut state = self.lock();
        let found = state.mark(node, at);
        let is_same = |it: &Mark| it.pv_uid == next.pv_uid && it.release == next.release;
        if found.is_free() && found.valid().is_some_and(is_same) && !is_orphan {
            state.violation(&format!("disk {at} is clean already, and is wiped again"));
        }
    }

    /// A request was answered.
    pub fn answered(&self, took: Duration) {
        if took > REACTION / 4 {
            self.lock().slow.push((process::elapsed(), took));
        }
    }

    /// Checks how often a process sent the same request in a minute.
    pub fn check_rate(&self, count: usize, method: &Method, path: &str) {
        let mut state = self.lock();
        let limit = if method.is_safe() { READS * state.disks.len() } else { WRITES };
        if count == limit {
            state.violation(&format!("{count} times in a minute: {method} {path}"));
        }
    }

    /// Checks a wipe at the moment at which it destroys data.
    pub fn check_wipe(&self, at: usize, lock: Option<Lock>, wipe: &Wipe) {
        let pv = self.store.get(&resource::PERSISTENT_VOLUMES, "", &wipe.pv);
        let pv = pv.map(|pv| (*pv).clone()).unwrap_or_default();
        let is_claimed = self.is_claimed(&pv);
        let mut state = self.lock();
        let disk = &state.disks[at];
        let metadata = &pv["metadata"];
        let has_finalizer = |all: &Vec<Value>| all.iter().any(|it| it == FINALIZER);
        let is_by_hand = state.by_hand.contains(&wipe.pv_uid);
        let is_before_rollback = disk.wiped_since < state.rolled_back_at;
        let of_pv = [
            (uid(&pv) != wipe.pv_uid, "its PV is gone"),
            (!metadata["deletionTimestamp"].is_string(), "its PV is not Terminating"),
            (
                !metadata["finalizers"].as_array().is_some_and(has_finalizer),
                "its PV lacks the finalizer",
            ),
            (
                pv.is_object() && (entry_of(&pv) != wipe.path || node_of(&pv) != Some(wipe.node)),
                "it is another PV's",
            ),
            (
                pv.is_object()
                    && !is_before_rollback
                    && !disk.is_forged
                    && disk.data.as_deref().is_some_and(|data| tenant(&pv) != Some(data)),
                "the data is another tenant's",
            ),
        ];
        let of_disk = [
            (is_claimed && !is_before_rollback, "its claim exists"),
            (wipe.is_orphan && !disk.has_consent, "no administrator consented"),
            (!disk.mounted_for.is_empty() && !is_before_rollback, "it is in use"),
            (lock.is_some() && disk.lock != lock, "it is not locked"),
            (
                wipe.identity != identity(at, disk)
                    || (!disk.has_consent
                        && state.made_for.get(&wipe.pv_uid).is_some_and(|it| *it != at)),
                "it is another disk",
            ),
        ];
        // A PV may be gone by force, and a consent stands for what is there.
        let of_pv = of_pv.iter().skip(if is_by_hand { 3 } else { 0 });
        let of_pv = of_pv.filter(|_| !wipe.is_orphan && !disk.has_consent);
        let faults = of_pv.chain(&of_disk).filter(|(is_fault, _)| *is_fault);
        let faults: Vec<_> = faults.map(|(_, fault)| *fault).collect();
        if !faults.is_empty() {
            let text = format!(
                "disk {at} is wiped for {} of {}, but {}",
                wipe.pv,
                NODES[wipe.node],
                faults.join(", and ")
            );
            state.violation(&text);
        }
    }

    /// Whether the claim of a PV exists.
    fn is_claimed(&self, pv: &Value) -> bool {
        let claim = &pv["spec"]["claimRef"];
        let [name, namespace] = ["name", "namespace"].map(|key| claim[key].as_str().unwrap_or(""));
        let claims = &resource::PERSISTENT_VOLUME_CLAIMS;
        let found = self.store.get(claims, namespace, name);
        found.is_ok_and(|found| found["metadata"]["uid"] == claim["uid"])
    }

    /// Checks that an event tells of each PV that is held, and of dirty volumes.
    pub fn check_told(&self, process: &Process) {
        let node = NODES[process.node];
        let events = self.store.list(&resource::EVENTS, None).items;
        let pvs = self.pvs();
        for (volume, detail) in process.held() {
            // A PV of this name may have existed before.
            let pv = pvs.iter().find(|pv| volume.pv.as_deref() == Some(name(pv)));
            let is_told = |event: &Arc<Value>| {
                let about = &event["involvedObject"];
                pv.map_or(about["name"] == node, |pv| about["uid"] == uid(pv))
            };
            // Of a volume that another PV names, that PV has the event.
            let is_reported = pv.is_some() || volume.reason == Some(SkipReason::Dirty);
            if is_reported && !detail.is_empty() && !events.iter().any(is_told) {
                let path = &volume.path;
                let text = format!("{path} of {node} is held, and no event says so: {detail}");
                self.violation(&text);
            }
        }
    }

    /// A wipe has ended well.
    pub fn wiped(&self, at: usize) {
        let mut state = self.lock();
        state.wipes += 1;
        let disk = &mut state.disks[at];
        disk.data = None;
        (disk.is_forged, disk.has_consent) = (false, false);
    }

    /// Checks a new PV.
    pub fn check_offer(&self, pv: &Value) {
        let path = entry_of(pv);
        let all = self.pvs();
        let mut state = self.lock();
        if state.by_hand.contains(uid(pv)) {
            return;
        }
        let same =
            all.iter().filter(|other| entry_of(other) == path && node_of(other) == node_of(pv));
        if same.count() > 1 {
            state.violation(&format!("{path} has two PVs"));
        }
        let at = disk_of(&state, pv);
        state.made_for.extend(at.map(|at| (uid(pv).to_owned(), at)));
        // The answer to its request was lost, and its disk moved to another node meanwhile.
        let mut slots = state.slots.iter();
        if !slots.any(|slot| slot.disk == at && node_of(pv) == Some(slot.node)) {
            state.by_hand.insert(uid(pv).to_owned());
        }
        let of_disk = all.iter().filter(|other| {
            let is_by_hand = state.by_hand.contains(uid(other));
            node_of(other) == node_of(pv) && disk_of(&state, other) == at && !is_by_hand
        });
        let of_disk: Vec<_> = of_disk.map(|pv| &pv["metadata"]["name"]).collect();
        // Of two processes on a node, one may not see yet what the other one has created.
        if at.is_some() && of_disk.len() > 1 && !state.is_stale {
            let names: Vec<_> = of_disk.iter().map(ToString::to_string).collect();
            let names = names.join(" and ");
            state.violation(&format!("the disk at {path} has two PVs, {names}"));
        }
        let disk = at.map(|disk| &state.disks[disk]);
        let is_mounted = disk.is_some_and(|disk| !disk.mounted_for.is_empty());
        if is_mounted && self.shows_mounts {
            state.violation(&format!("{path} is offered while it is in use"));
        }
        let disk = at.map(|disk| &state.disks[disk]);
        let data = disk.filter(|disk| !disk.is_forged && !disk.has_consent);
        if let Some(tenant) = data.and_then(|disk| disk.data.clone()) {
            let text = format!("{path} is offered with the data of {tenant}");
            state.violation(&text);
        }
    }

    /// A kubelet mounts what is at the path of a bound PV, and the tenant reads and writes.
    pub fn mount(&self, pv: &Value) -> bool {
        let (Some(node), Some(tenant)) = (node_of(pv), tenant(pv)) else {
            return false;
        };
        if let Some(token) = token_of(pv)
            && !self.leads_to_its_volume(node, token, pv)
        {
            return false;
        }
        let (path, name) = (entry_of(pv), &pv["metadata"]["name"]);
        let shows_mounts = self.shows_mounts;
        self.change(|state| {
            let slot = state.slot(node, path).unwrap();
            let Some(at) = state.slots[slot].disk else {
                return false;
            };
            let is_its_disk = disk_of(state, pv) == Some(at);
            let is_by_hand = state.by_hand.contains(uid(pv));
            let is_marked = state.mark(node, at).valid().is_some_and(|it| it.pv_uid == uid(pv));
            let rolled_back_at = state.rolled_back_at;
            let disk = &mut state.disks[at];
            // A tenant of another disk is seen in the mount table only.
            if disk.hangs || !(is_its_disk || shows_mounts) {
                return false;
            }
            let name = name.as_str().unwrap().to_owned();
            disk.mounted_for.insert((node, name));
            // A restored API server may bring back the claim of a volume that is wiped.
            let is_wiped = disk.is_wiped && disk.wiped_since >= rolled_back_at;
            let mut fault = is_wiped.then(|| format!("{path} is mounted while it is wiped"));
            // What a tenant writes to the wrong disk is lost to it: the path does not prove the disk.
            if is_its_disk {
                let before = disk.data.replace(tenant.to_owned());
                // No provisioner may have seen that this PV is back.
                disk.is_forged |= is_by_hand && !is_marked;
                let foreign = before.filter(|before| before != tenant && !is_by_hand);
                let foreign = foreign.filter(|_| !disk.is_forged);
                let found =
                    foreign.map(|data| format!("the tenant of {path} finds the data of {data}"));
                fault = fault.or(found);
            }
            if let Some(fault) = fault {
                state.violation(&fault);
            }
            true
        })
    }

    /// Why the world is not at rest.
    pub fn unsettled(&self) -> Option<String> {
        let pvs = self.pvs();
        let state = self.lock();
        for (at, disk) in state.disks.iter().enumerate() {
            let is_by_hand = |pv: &Value| state.by_hand.contains(uid(pv));
            let of_disk = |pv: &&Arc<Value>| disk_of(&state, pv) == Some(at) && !is_by_hand(pv);
            if disk.global.is_unique && pvs.iter().filter(of_disk).count() > 1 {
                return Some(format!("disk {at} has two PVs"));
            }
        }
        let plugged = state.slots.iter().filter(|slot| slot.disk.is_some());
        let of_slot =
            |pv: &&Arc<Value>, node, path: &str| entry_of(pv) == path && node_of(pv) == Some(node);
        let mut plugged = plugged.map(|slot| {
            let (path, node) = (&slot.path, slot.node);
            let pvs = pvs.iter().filter(|pv| of_slot(pv, node, path));
            let path = format!("{path} of {}", NODES[node]);
            let [pv] = pvs.collect::<Vec<_>>()[..] else {
                return Some(format!("{path} is not offered"));
            };
            let (phase, name) = (&pv["status"]["phase"], &pv["metadata"]["name"]);
            if self.lacks_label(node, pv) {
                return Some(format!("PV {name} of {path} has no label of the Node"));
            }
            let disk = &state.disks[slot.disk?];
            let is_deleted = pv["metadata"]["deletionTimestamp"].is_string();
            match phase.as_str() {
                Some("Bound") => {
                    state.lacks_link(slot, pv).then(|| format!("PV {name} of {path} has no link"))
                }
                _ if is_deleted => Some(format!("PV {name} of {path} is Terminating")),
                Some("Available") if disk.data.is_none() || disk.is_forged => None,
                _ => Some(format!(
                    "PV {name} of {path}, class {}, is {phase}, data: {:?}",
                    CLASSES[slot.class], disk.data
                )),
            }
        });
        plugged.find_map(|why| why)
    }
}
