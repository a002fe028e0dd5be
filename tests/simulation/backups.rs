//! Backups of the API server, and what administrators restore from them.

use std::sync::Arc;

use control_plane::resource;
use local_volume_provisioner::host::mark::{Mark, MarkState};
use serde_json::Value;

use crate::checks::uid;
use crate::process;
use crate::script::{Script, any, name};
use crate::world::{NODES, State};

/// The PVs and claims of a moment.
#[derive(Debug, Default)]
pub struct Backup {
    pvs: Vec<Arc<Value>>,
    claims: Vec<Arc<Value>>,
}

impl State {
    /// The API server forgets the tenants whose volumes no provisioner could mark `used` in time.
    pub fn forget_unmarked(&mut self) {
        for at in 0..self.disks.len() {
            let nodes = 0..NODES.len();
            let is_used = |mark: &Mark| mark.state >= MarkState::Used;
            let mut marks = nodes.map(|node| self.mark(node, at));
            let is_marked = marks.any(|mark| mark.valid().is_some_and(is_used));
            let disk = &mut self.disks[at];
            disk.is_forged |= disk.data.is_some() && !is_marked;
        }
    }
}

impl Script<'_> {
    pub fn back_up(&mut self) -> &'static str {
        self.backup = Backup { pvs: self.world.pvs(), claims: self.claims() };
        "a backup is made"
    }

    /// Creates a PV of the backup, with another UID, as tools for backups do.
    pub fn restore(&self) -> &'static str {
        let now = self.world.pvs();
        let mut gone = self.backup.pvs.clone();
        gone.retain(|pv| now.iter().all(|it| name(it) != name(pv)));
        let Some(pv) = any(&gone) else {
            return "nothing is missing";
        };
        let mut pv = (**pv).clone();
        let metadata = pv["metadata"].as_object_mut().unwrap();
        for key in ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"] {
            metadata.remove(key);
        }
        pv["status"].take();
        let store = self.api.store();
        let restored = store.create(&resource::PERSISTENT_VOLUMES, "", pv);
        if let Ok(restored) = restored {
            self.world.lock().by_hand.insert(uid(&restored).to_owned());
        }
        "a PV is restored from a backup"
    }

    /// Restores etcd: the PVs and claims are those of the backup, and the disks are as they are.
    pub fn roll_back(&self) -> &'static str {
        if self.backup.pvs.is_empty() {
            return "there is no backup";
        }
        let is_newer =
            |all: &[Arc<Value>], object: &Value| all.iter().all(|it| uid(it) != uid(object));
        for pv in self.world.pvs() {
            if is_newer(&self.backup.pvs, &pv) {
                self.delete_by_force(&resource::PERSISTENT_VOLUMES, &pv);
            }
        }
        for claim in self.claims() {
            if is_newer(&self.backup.claims, &claim) {
                self.delete_by_force(&resource::PERSISTENT_VOLUME_CLAIMS, &claim);
            }
        }
        let store = self.api.store();
        for pv in &self.backup.pvs {
            {
                let mut state = self.world.lock();
                state.by_hand.insert(uid(pv).to_owned());
                state.gone_at.remove(uid(pv));
            }
            store.restore(&resource::PERSISTENT_VOLUMES, (**pv).clone());
        }
        {
            let mut state = self.world.lock();
            state.forget_unmarked();
            state.rolled_back_at = process::elapsed();
        }
        for claim in &self.backup.claims {
            store.restore(&resource::PERSISTENT_VOLUME_CLAIMS, (**claim).clone());
        }
        // The API server is restarted.
        if !self.world.lock().bindings.links.is_empty() {
            self.api.faults().cut_watches("persistentvolumes");
        }
        "etcd is restored from a backup"
    }
}
