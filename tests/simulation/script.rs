//! The steps of a script: what tenants, administrators, disks and the API server do.

use std::sync::Arc;
use std::time::Duration;

use control_plane::faults::Answer;
use control_plane::requests::Verb;
use control_plane::store::DeleteOptions;
use control_plane::{Faults, InProcess, resource};
use local_volume_provisioner::names::ANNOTATION_PAUSED;
use serde_json::{Value, json};

use crate::backups::Backup;
use crate::links::node_of;
use crate::process;
use crate::world::{CLASSES, NODES, World};

/// Acts as tenants, administrators, disks and the API server.
#[derive(Debug)]
pub struct Script<'a> {
    pub api: &'a InProcess,
    pub world: &'a Arc<World>,
    pub nodes: usize,
    /// Whether administrators leave PVs, marks and disks alone. Disks break nevertheless.
    pub is_calm: bool,
    created: u32,
    is_paused: bool,
    /// The resource that the API server shows as it was.
    lags: Option<&'static str>,
    pub backup: Backup,
}

pub fn any<T>(all: &[T]) -> Option<&T> {
    (!all.is_empty()).then(|| &all[fastrand::usize(..all.len())])
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

impl<'a> Script<'a> {
    pub fn new(api: &'a InProcess, world: &'a Arc<World>, nodes: usize) -> Self {
        Self {
            api,
            world,
            nodes,
            is_calm: fastrand::u8(..3) == 0,
            created: 0,
            is_paused: false,
            lags: None,
            backup: Backup::default(),
        }
    }

    /// One random step. Returns its name.
    pub fn step(&mut self) -> &'static str {
        match fastrand::u32(..40) {
            0..=5 => self.claim(),
            6..=12 => self.mount(),
            13..=17 => self.unmount(),
            18..=23 => self.delete_claim(),
            24 => self.delete_pod(),
            25 => self.orphan_pods(),
            26..=29 => self.change_disks(),
            30..=33 if self.is_calm => self.mount(),
            30..=33 => self.administrate(),
            34 => self.pause_or_resume(),
            35 => {
                let all = ["persistentvolumes", "nodes", "storageclasses"];
                let resource = any(&all).unwrap();
                self.api.faults().cut_watches(resource);
                "watches are cut"
            }
            36 | 37 => self.lag_or_catch_up(),
            _ => {
                fault(self.api.faults());
                "the API server will fail"
            }
        }
    }

    /// The caches of the API server lag behind, or have caught up.
    fn lag_or_catch_up(&mut self) -> &'static str {
        if self.catch_up() {
            return "the API server has caught up";
        }
        let resource = match fastrand::u8(..4) {
            0 => *any(&["nodes", "jobs", "storageclasses"]).unwrap(),
            _ => "persistentvolumes",
        };
        self.lag(resource, fastrand::u64(..=50));
        "the API server shows an earlier state"
    }

    /// Caches of the API server show a resource as it was before the last `revisions`.
    pub fn lag(&mut self, resource: &'static str, revisions: u64) {
        self.catch_up();
        self.lags = Some(resource);
        self.world.lock().is_stale = true;
        self.api.faults().lag(resource, revisions);
    }

    /// Shows the current state again. Returns whether it was another one.
    fn catch_up(&mut self) -> bool {
        let Some(resource) = self.lags.take() else {
            return false;
        };
        self.api.faults().catch_up(resource);
        let mut state = self.world.lock();
        (state.is_stale, state.bindings.caught_up_at) = (false, process::elapsed());
        true
    }

    fn pause_or_resume(&mut self) -> &'static str {
        self.is_paused = !self.is_paused;
        self.set_paused(self.is_paused);
        "cleaning is paused or resumed"
    }

    pub fn claims(&self) -> Vec<Arc<Value>> {
        let store = self.api.store();
        let claims = store.list(&resource::PERSISTENT_VOLUME_CLAIMS, Some("default"));
        claims.items
    }

    /// Creates a claim. There are up to two more than disks.
    fn claim(&mut self) -> &'static str {
        self.created += 1;
        let classes: Vec<_> = {
            let state = self.world.lock();
            let slots = state.slots.iter().filter(|it| it.disk.is_some());
            slots.map(|it| CLASSES[it.class]).collect()
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
        if !self.world.mount(pv) {
            return "a volume cannot be mounted";
        }
        if fastrand::bool() {
            self.pod(pv);
        }
        "a tenant writes to a volume"
    }

    fn pod(&mut self, pv: &Value) {
        self.created += 1;
        let claim = &pv["spec"]["claimRef"]["name"];
        let pod = json!({
            "metadata": { "name": format!("pod-{}", self.created) },
            "spec": {
                "nodeName": NODES[node_of(pv).unwrap()],
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
        self.world.delete(&resource::PERSISTENT_VOLUME_CLAIMS, &claim);
        "a claim is deleted"
    }

    fn delete_pod(&self) -> &'static str {
        let pods = self.api.store().list(&resource::PODS, Some("default"));
        match any(&pods.items) {
            Some(pod) => self.world.delete(&resource::PODS, pod),
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
        let options =
            DeleteOptions { propagation_policy: Some("Orphan".into()), ..DeleteOptions::default() };
        let deleted = store.delete(&resource::JOBS, "default", name(job), &options);
        deleted.unwrap();
        "a Job is deleted without its pods"
    }

    pub fn resume(&mut self) {
        self.is_paused = false;
        self.set_paused(false);
    }

    fn set_paused(&self, paused: bool) {
        self.world.lock().paused_at = paused.then(process::elapsed);
        for node in &NODES[..self.nodes] {
            let value = if paused { json!("true") } else { Value::Null };
            self.world.annotate(&resource::NODES, "", node, ANNOTATION_PAUSED, value);
        }
    }

    /// Ends all faults. Tenants go, except for some claims that stay.
    pub fn end(&mut self) {
        self.api.faults().clear();
        self.catch_up();
        self.set_paused(false);
        let pods = self.api.store().list(&resource::PODS, Some("default"));
        let is_tenant = |pod: &&Arc<Value>| name(pod).starts_with("pod-");
        for pod in pods.items.iter().filter(is_tenant) {
            self.world.delete(&resource::PODS, pod);
        }
        for claim in self.claims() {
            if fastrand::u8(..3) > 0 && !claim["metadata"]["deletionTimestamp"].is_string() {
                self.world.delete(&resource::PERSISTENT_VOLUME_CLAIMS, &claim);
            }
        }
        self.restore_order();
    }
}

/// Some of the next requests of a kind fail.
fn fault(faults: &Faults) {
    let verbs = [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Patch, Verb::Delete];
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
