//! What the controllers know of the cluster: the objects that they decide about, indexed by the
//! questions that they ask. It is fed by the store's events and by the controllers' own writes,
//! never by listing, so an event costs the same among ten volumes and among ten thousand.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::object::{Claim, Class, Job, Key, Node, Pod, Volume, controller};
use crate::{
    meta,
    pv_controller::pools::{Pools, Volumes},
    resource::{self, Resource},
};

/// Typed, indexed views of the store.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) volumes: Volumes,
    /// The volumes that claims can be offered.
    pub(crate) pools: Pools,
    /// Volumes by the claim that their `claimRef` names, whatever its UID.
    by_claim: BTreeMap<Key, BTreeSet<Arc<str>>>,
    pub(crate) claims: BTreeMap<Key, Claim>,
    pub(crate) classes: BTreeMap<Arc<str>, Class>,
    pub(crate) nodes: BTreeMap<Arc<str>, Node>,
    pub(crate) pods: BTreeMap<Key, Pod>,
    /// Pods by the claims that they mount.
    users: BTreeMap<Key, BTreeSet<Key>>,
    pub(crate) jobs: BTreeMap<Key, Job>,
}

impl Cache {
    /// Takes in the state of an object, unless this or a newer one is known.
    pub(crate) fn store(&mut self, r: &'static Resource, object: &Arc<Value>) {
        if self.version(r, object).is_some_and(|known| known >= meta::resource_version(object)) {
            return;
        }
        self.take_out(r, object);
        let object = Arc::clone(object);
        let name: Arc<str> = meta::name(&object).into();
        if r == &resource::PERSISTENT_VOLUMES {
            let volume = Volume(object);
            if let Some(claim) = volume.claim_ref() {
                self.by_claim.entry(claim.key()).or_default().insert(Arc::clone(&name));
            }
            self.pools.insert(&volume);
            self.volumes.insert(name, volume);
        } else if r == &resource::PERSISTENT_VOLUME_CLAIMS {
            self.claims.insert(Key::of(&object), Claim(object));
        } else if r == &resource::PODS {
            let pod = Pod(object);
            let key = pod.key();
            for claim in pod.claims() {
                self.users.entry(claim).or_default().insert(key.clone());
            }
            self.pods.insert(key, pod);
        } else if r == &resource::STORAGE_CLASSES {
            self.classes.insert(name, Class(object));
        } else if r == &resource::NODES {
            self.nodes.insert(name, Node(object));
        } else if r == &resource::JOBS {
            self.jobs.insert(Key::of(&object), Job(object));
        }
    }

    /// Forgets an object whose last state this is, unless a newer one of its name is known.
    pub(crate) fn remove(&mut self, r: &'static Resource, object: &Value) {
        if self.version(r, object).is_some_and(|known| known <= meta::resource_version(object)) {
            self.take_out(r, object);
        }
    }

    fn version(&self, r: &'static Resource, object: &Value) -> Option<u64> {
        let name = meta::name(object);
        let known: &Value = if r == &resource::PERSISTENT_VOLUMES {
            self.volumes.get(name)?
        } else if r == &resource::PERSISTENT_VOLUME_CLAIMS {
            self.claims.get(&Key::of(object))?
        } else if r == &resource::PODS {
            self.pods.get(&Key::of(object))?
        } else if r == &resource::STORAGE_CLASSES {
            self.classes.get(name)?
        } else if r == &resource::NODES {
            self.nodes.get(name)?
        } else if r == &resource::JOBS {
            self.jobs.get(&Key::of(object))?
        } else {
            return None;
        };
        Some(meta::resource_version(known))
    }

    fn take_out(&mut self, r: &'static Resource, object: &Value) {
        let name = meta::name(object);
        if r == &resource::PERSISTENT_VOLUMES {
            let Some((name, volume)) = self.volumes.remove_entry(name) else {
                return;
            };
            if let Some(claim) = volume.claim_ref() {
                drop_from(&mut self.by_claim, &claim.key(), &name);
            }
            self.pools.remove(&volume);
        } else if r == &resource::PERSISTENT_VOLUME_CLAIMS {
            self.claims.remove(&Key::of(object));
        } else if r == &resource::PODS {
            let Some((key, pod)) = self.pods.remove_entry(&Key::of(object)) else {
                return;
            };
            for claim in pod.claims() {
                drop_from(&mut self.users, &claim, &key);
            }
        } else if r == &resource::STORAGE_CLASSES {
            self.classes.remove(name);
        } else if r == &resource::NODES {
            self.nodes.remove(name);
        } else if r == &resource::JOBS {
            self.jobs.remove(&Key::of(object));
        }
    }

    pub(crate) fn volume(&self, name: &str) -> Option<Volume> {
        self.volumes.get(name).cloned()
    }

    pub(crate) fn claim(&self, key: &Key) -> Option<Claim> {
        self.claims.get(key).cloned()
    }

    /// The volumes whose `claimRef` has this claim's name; their UID may be another claim's.
    pub(crate) fn volumes_of(&self, claim: &Key) -> impl Iterator<Item = Volume> + use<'_> {
        self.by_claim.get(claim).into_iter().flatten().filter_map(|name| self.volume(name))
    }

    /// The pods that mount this claim.
    pub(crate) fn users(&self, claim: &Key) -> impl Iterator<Item = &Pod> + use<'_> {
        self.users.get(claim).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// The pods that are controlled by the object with this UID.
    pub(crate) fn controlled(&self, uid: &str) -> impl Iterator<Item = &Pod> {
        let pods = self.pods.values();
        pods.filter(move |pod| controller(pod).is_some_and(|owner| owner["uid"] == uid))
    }

    /// Whether the claim waits for a pod. Its class alone says so; a class that is not there
    /// means no.
    pub(crate) fn binds_late(&self, claim: &Claim) -> bool {
        self.classes.get(claim.class()).is_some_and(Class::binds_late)
    }

    /// The class that claims without one get.
    pub(crate) fn default_class(&self) -> Option<&Class> {
        Class::default_of(self.classes.values())
    }
}

fn drop_from<K, V>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V)
where
    K: Ord,
    V: Ord,
{
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}
