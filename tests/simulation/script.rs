//! The steps of a script: what tenants, operators, disks and the API server do.

use std::sync::Arc;
use std::time::Duration;

use control_plane::faults::Answer;
use control_plane::requests::Verb;
use control_plane::store::{DeleteOptions, Part};
use control_plane::{Faults, InProcess, resource};
use local_volume_provisioner::names::ANNOTATION_PAUSED;
use serde_json::{Value, json};

use crate::process::NODE;
use crate::world::World;

/// Acts as tenants, operators, disks and the API server.
#[derive(Debug)]
pub struct Script<'a> {
    pub api: &'a InProcess,
    pub world: &'a Arc<World>,
    created: u32,
    is_paused: bool,
}

fn any<T>(all: &[T]) -> Option<&T> {
    (!all.is_empty()).then(|| &all[fastrand::usize(..all.len())])
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

impl<'a> Script<'a> {
    pub fn new(api: &'a InProcess, world: &'a Arc<World>) -> Self {
        Self {
            api,
            world,
            created: 0,
            is_paused: false,
        }
    }

    /// One random step. Returns its name.
    pub fn step(&mut self) -> &'static str {
        match fastrand::u32(..30) {
            0..=2 => self.claim(),
            3..=8 => self.mount(),
            9..=13 => self.unmount(),
            14..=20 => self.delete_claim(),
            21 => self.delete_pod(),
            22 => self.orphan_pods(),
            23 | 24 => self.change_disk(),
            25 => self.pause_or_resume(),
            26 => {
                let all = ["persistentvolumes", "nodes", "storageclasses"];
                let resource = any(&all).unwrap();
                self.api.faults().cut_watches(resource);
                "watches are cut"
            }
            _ => {
                fault(self.api.faults());
                "the API server will fail"
            }
        }
    }

    /// A disk breaks, or a broken one works again.
    fn change_disk(&self) -> &'static str {
        self.world.change(|state| {
            let at = fastrand::usize(..state.disks.len());
            let disk = &mut state.disks[at];
            if disk.hangs || !disk.is_present {
                (disk.hangs, disk.is_present) = (false, true);
                return "a disk works again";
            }
            match fastrand::u8(..3) {
                0 => {
                    disk.is_present = false;
                    "a disk vanishes"
                }
                1 => {
                    disk.hangs = true;
                    "a disk hangs"
                }
                _ => {
                    disk.next_wipe_fails = true;
                    "a wipe will fail"
                }
            }
        })
    }

    fn pause_or_resume(&mut self) -> &'static str {
        self.is_paused = !self.is_paused;
        self.set_paused(self.is_paused);
        "cleaning is paused or resumed"
    }

    fn claims(&self) -> Vec<Arc<Value>> {
        let store = self.api.store();
        let claims = store.list(&resource::PERSISTENT_VOLUME_CLAIMS, Some("default"));
        claims.items
    }

    /// Creates a claim. There are up to two more than disks.
    pub fn claim(&mut self) -> &'static str {
        self.created += 1;
        let classes: Vec<_> = {
            let state = self.world.lock();
            state.disks.iter().map(|it| it.class.clone()).collect()
        };
        if self.claims().len() > classes.len() + 1 {
            return "nothing happens";
        }
        let class = any(&classes);
        let claim = json!({
            "metadata": { "name": format!("claim-{}", self.created) },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": class,
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        let store = self.api.store();
        let created = store.create(&resource::PERSISTENT_VOLUME_CLAIMS, "default", claim);
        created.unwrap();
        "a claim is created"
    }

    /// The kubelet mounts a bound volume, and the tenant writes to it.
    fn mount(&mut self) -> &'static str {
        let claims = self.claims();
        let is_bound = |pv: &Value| {
            let of = &pv["spec"]["claimRef"]["uid"];
            let claim = claims.iter().find(|it| it["metadata"]["uid"] == *of);
            pv["status"]["phase"] == "Bound"
                && claim.is_some_and(|claim| claim["status"]["phase"] == "Bound")
        };
        let mut bound = self.world.pvs();
        bound.retain(|pv| is_bound(pv));
        let Some(pv) = any(&bound) else {
            return self.claim();
        };
        let path = &pv["spec"]["local"]["path"];
        let uid = pv["metadata"]["uid"].as_str().unwrap();
        let violation = self.world.change(|state| {
            let disk = state.disks.iter_mut().find(|it| *path == it.path).unwrap();
            if !disk.is_present || disk.hangs {
                return None;
            }
            let before = disk.data.replace(uid.to_owned());
            disk.mounted_for.insert(name(pv).to_owned());
            if disk.is_wiped {
                return Some(format!("{path} is mounted while it is wiped"));
            }
            let foreign = before.filter(|before| before != uid)?;
            Some(format!("the tenant of {path} finds the data of {foreign}"))
        });
        if let Some(violation) = violation {
            self.world.violation(violation);
        }
        if fastrand::bool() {
            self.pod(&pv["spec"]["claimRef"]["name"]);
        }
        "a tenant writes to a volume"
    }

    fn pod(&mut self, claim: &Value) {
        self.created += 1;
        let pod = json!({
            "metadata": { "name": format!("pod-{}", self.created) },
            "spec": {
                "nodeName": NODE,
                "containers": [{ "name": "c", "image": "i" }],
                "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": claim } }],
            },
        });
        let store = self.api.store();
        store.create(&resource::PODS, "default", pod).unwrap();
    }

    /// The kubelet unmounts a volume. Its claim and its pod may be gone for long.
    fn unmount(&self) -> &'static str {
        self.world.change(|state| {
            let disks = state.disks.iter_mut();
            let mut mounted: Vec<_> = disks.filter(|it| !it.mounted_for.is_empty()).collect();
            if mounted.is_empty() {
                return "no volume is mounted";
            }
            let at = fastrand::usize(..mounted.len());
            mounted[at].mounted_for.clear();
            "a volume is unmounted"
        })
    }

    fn delete_claim(&mut self) -> &'static str {
        let Some(claim) = any(&self.claims()).cloned() else {
            return self.claim();
        };
        self.delete(&resource::PERSISTENT_VOLUME_CLAIMS, &claim);
        "a claim is deleted"
    }

    fn delete_pod(&self) -> &'static str {
        let pods = self.api.store().list(&resource::PODS, Some("default"));
        match any(&pods.items) {
            Some(pod) => self.delete(&resource::PODS, pod),
            None => return "there is no pod",
        }
        "a pod is deleted"
    }

    /// A Job is deleted, and its pods stay.
    fn orphan_pods(&self) -> &'static str {
        let store = self.api.store();
        let jobs = store.list(&resource::JOBS, Some("default"));
        let Some(job) = any(&jobs.items) else {
            return "there is no Job";
        };
        let options = DeleteOptions {
            propagation_policy: Some("Orphan".into()),
            ..DeleteOptions::default()
        };
        let deleted = store.delete(&resource::JOBS, "default", name(job), &options);
        deleted.unwrap();
        "a Job is deleted without its pods"
    }

    fn delete(&self, of: &'static resource::Resource, object: &Value) {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let deleted = self
            .api
            .store()
            .delete(of, "default", name(object), &options);
        deleted.unwrap();
    }

    fn set_paused(&self, paused: bool) {
        let store = self.api.store();
        let changed = store.modify(&resource::NODES, "", NODE, Part::Main, |node| {
            let mut node = node.clone();
            let value = if paused { json!("true") } else { Value::Null };
            node["metadata"]["annotations"] = json!({ ANNOTATION_PAUSED: value });
            if !paused {
                node["metadata"]["annotations"] = json!({});
            }
            Ok(node)
        });
        changed.unwrap();
    }

    /// Ends all faults. Tenants go, except for some claims that stay.
    pub fn end(&self) {
        self.api.faults().clear();
        self.set_paused(false);
        let pods = self.api.store().list(&resource::PODS, Some("default"));
        let is_tenant = |pod: &&Arc<Value>| name(pod).starts_with("pod-");
        for pod in pods.items.iter().filter(is_tenant) {
            self.delete(&resource::PODS, pod);
        }
        for claim in self.claims() {
            if fastrand::u8(..3) > 0 && !claim["metadata"]["deletionTimestamp"].is_string() {
                self.delete(&resource::PERSISTENT_VOLUME_CLAIMS, &claim);
            }
        }
        self.world.change(|state| {
            for disk in &mut state.disks {
                (disk.is_present, disk.hangs, disk.next_wipe_fails) = (true, false, false);
                disk.mounted_for.clear();
            }
        });
    }
}

/// Some of the next requests of a kind fail.
fn fault(faults: &Faults) {
    let verbs = [
        Verb::Get,
        Verb::List,
        Verb::Watch,
        Verb::Create,
        Verb::Patch,
        Verb::Delete,
    ];
    let verb = *any(&verbs).unwrap();
    let writes = matches!(verb, Verb::Create | Verb::Patch | Verb::Delete);
    let fault = faults.on(verb).times(fastrand::usize(1..4)).maybe();
    let fault = match fastrand::u8(..3) {
        0 => fault,
        _ => fault.resource("persistentvolumes"),
    };
    match fastrand::u32(..9) {
        0 => fault.reset_before(),
        1 | 2 => fault.reset_after(),
        3 => fault.latency(Duration::from_millis(fastrand::u64(..20_000))),
        4 if verb == Verb::Watch => fault.watch_gone(),
        4 if writes => fault.answer(Answer::code(409)),
        5 => fault.answer(Answer::code(429)),
        6 => fault.answer(Answer::code(503)),
        7 => fault.forbid(),
        _ => fault.answer(Answer::code(500)),
    };
}
