//! The bench for the controllers' tests: a store, and a manager that works when a test calls it.

pub(crate) mod disturbance;
mod relay;

use std::sync::Arc;

use serde_json::{Value, json};

use self::relay::Relay;
use super::{ControllerOptions, Manager, NodeOptions};
use crate::{
    node,
    resource::{EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Resource},
    store::{DeleteOptions, Part, Store},
};

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) manager: Manager,
    /// Stands between the store and the controllers, once they have been deaf.
    relay: Option<Relay>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(ControllerOptions::default())
    }

    pub(crate) fn with(options: ControllerOptions) -> Self {
        let store = Store::new(100);
        let manager = Manager::new(store.clone(), options);
        disturbance::clear();
        Self { store, manager, relay: None }
    }

    /// A controller that starts over, with nothing but the store.
    pub(crate) fn restart(&mut self) {
        self.restart_with(self.manager.cx.options.clone());
    }

    pub(crate) fn restart_with(&mut self, options: ControllerOptions) {
        disturbance::clear();
        self.relay = None;
        self.manager = Manager::new(self.store.clone(), options);
    }

    /// From now on the controllers do not hear of this type, while they hear of the others.
    pub(crate) fn withhold(&mut self, r: &'static Resource) {
        let events = &mut self.manager.events;
        let relay = self.relay.get_or_insert_with(|| Relay::before(events));
        relay.silent = Some(r);
    }

    /// They hear of everything, also of what was withheld.
    pub(crate) fn let_go(&mut self) {
        if let Some(relay) = &mut self.relay {
            relay.silent = None;
            relay.pass_on();
        }
    }

    /// Lets the controllers do a little; `false` if there was nothing to do.
    pub(crate) fn work(&mut self) -> bool {
        if let Some(relay) = &mut self.relay {
            relay.pass_on();
        }
        self.manager.work()
    }

    pub(crate) fn disturb_no_more(&mut self) {
        if disturbance::has_crashed() {
            self.restart();
        }
        disturbance::clear();
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.work() {
                return;
            }
        }
        panic!("the controllers do not come to rest");
    }

    /// Resyncs, and tries everything again that has failed, until nothing is left to do.
    pub(crate) fn rest(&mut self) {
        for _ in 0..3 {
            self.hurry();
            self.resync();
        }
    }

    /// Makes everything due that waits for a time.
    pub(crate) fn hurry(&mut self) {
        self.manager.cx.queues.hurry();
        self.manager.cx.reclaims.failures.hurry();
    }

    pub(crate) fn resync(&mut self) {
        self.settle();
        self.manager.resync();
        self.settle();
    }

    /// Creates without letting the controllers work.
    pub(crate) fn put(&self, r: &'static Resource, object: Value) -> Arc<Value> {
        let ns = if r.namespaced { ns_of(&object) } else { String::new() };
        self.store.create(r, &ns, object).unwrap()
    }

    pub(crate) fn create(&mut self, r: &'static Resource, object: Value) -> Arc<Value> {
        let created = self.put(r, object);
        self.settle();
        created
    }

    pub(crate) fn add_node(&mut self, name: &str) {
        node::register(&self.store, &NodeOptions::new(name)).unwrap();
        self.settle();
    }

    pub(crate) fn get(&self, r: &'static Resource, name: &str) -> Option<Arc<Value>> {
        let ns = if r.namespaced { "default" } else { "" };
        self.store.get(r, ns, name).ok()
    }

    pub(crate) fn volume(&self, name: &str) -> Arc<Value> {
        self.get(&PERSISTENT_VOLUMES, name).unwrap()
    }

    pub(crate) fn claim(&self, name: &str) -> Arc<Value> {
        self.get(&PERSISTENT_VOLUME_CLAIMS, name).unwrap()
    }

    pub(crate) fn pod(&self, name: &str) -> Arc<Value> {
        self.get(&PODS, name).unwrap()
    }

    /// Edits without letting the controllers work.
    pub(crate) fn edit(
        &self,
        r: &'static Resource,
        name: &str,
        part: Part,
        edit: impl FnOnce(&mut Value),
    ) {
        let mut object = (*self.get(r, name).unwrap()).clone();
        edit(&mut object);
        let ns = if r.namespaced { "default" } else { "" };
        self.store.update(r, ns, name, object, part).unwrap();
    }

    pub(crate) fn change(
        &mut self,
        r: &'static Resource,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) {
        self.edit(r, name, Part::Main, change);
        self.settle();
    }

    pub(crate) fn delete(&mut self, r: &'static Resource, name: &str) {
        let (ns, options) = (if r.namespaced { "default" } else { "" }, DeleteOptions::default());
        self.store.delete(r, ns, name, &options).unwrap();
        self.settle();
    }

    pub(crate) fn phase(&self, r: &'static Resource, name: &str) -> String {
        self.get(r, name).unwrap()["status"]["phase"].as_str().unwrap().to_owned()
    }

    /// The volume that a claim is bound to, both sides agreeing.
    pub(crate) fn bound(&self, claim: &str) -> Option<String> {
        let claim = self.claim(claim);
        let name = claim["spec"]["volumeName"].as_str()?.to_owned();
        let volume = self.volume(&name);
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
        assert_eq!([&claim, &volume].map(|o| o["status"]["phase"].clone()), ["Bound", "Bound"]);
        Some(name)
    }

    /// Reasons of the events about an object, sorted, each once.
    pub(crate) fn reasons(&self, name: &str) -> Vec<String> {
        let events = self.store.list(&EVENTS, None).items;
        let about = events.iter().filter(|event| event["involvedObject"]["name"] == name);
        let reasons = about.map(|event| event["reason"].as_str().unwrap().to_owned());
        reasons.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }
}

fn ns_of(object: &Value) -> String {
    object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned()
}

pub(crate) fn but(mut object: Value, edit: impl FnOnce(&mut Value)) -> Value {
    edit(&mut object);
    object
}

/// A local volume of class `fast`, kept when released, on any of the nodes with the hostname `n1`.
pub(crate) fn volume(name: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "fast",
            "local": {"path": format!("/mnt/{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]},
            ]}]}},
        },
    })
}

pub(crate) fn on_node(volume: Value, node: &str) -> Value {
    but(volume, |v| {
        v["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] =
            json!([node]);
    })
}

/// A volume as the provisioner makes it: deleted by it when released.
pub(crate) fn provisioned(name: &str, size: &str) -> Value {
    but(volume(name, size), |v| {
        v["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        v["metadata"]["annotations"] =
            json!({"pv.kubernetes.io/provisioned-by": "local-volume-provisioner-n1"});
    })
}

pub(crate) fn claim(name: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": size}},
        },
    })
}

pub(crate) fn class(name: &str, binding: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": binding,
    })
}

pub(crate) fn pod(name: &str, claims: &[&str]) -> Value {
    let volumes: Vec<_> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], "volumes": volumes},
    })
}
