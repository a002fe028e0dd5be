//! PVs, classes, claims and events.

use std::fmt::Debug;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Stage;

impl Stage {
    pub fn storage_class(&self, name: &str, policy: &str, binding: &str) {
        let class = json!({
            "metadata": { "name": self.named(name) },
            "provisioner": "kubernetes.io/no-provisioner",
            "reclaimPolicy": policy,
            "volumeBindingMode": binding,
        });
        self.create(&Api::<StorageClass>::all(self.client.clone()), class);
    }

    /// Creates an object.
    pub fn create<K>(&self, api: &Api<K>, object: Value) -> K
    where
        K: Resource + Clone + Serialize + DeserializeOwned + Debug,
    {
        let object = serde_json::from_value(object).expect("an object of its kind");
        self.request(api.create(&PostParams::default(), &object))
    }

    fn all_pvs(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// The PVs of this stage's classes, all of them.
    pub fn pvs(&self) -> Vec<PersistentVolume> {
        let all = self.request(self.all_pvs().list(&ListParams::default()));
        let is_ours = |pv: &PersistentVolume| {
            let class = pv.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
            class.is_some_and(|class| class.ends_with(&self.named("")))
        };
        all.items.into_iter().filter(is_ours).collect()
    }

    pub fn pvs_at(&self, path: &Path) -> Vec<PersistentVolume> {
        let at = |pv: &PersistentVolume| {
            let local = pv.spec.as_ref().and_then(|spec| spec.local.as_ref());
            let of_link = annotation(pv, "local-volume-provisioner/path");
            let local = local.map(|local| of_link.unwrap_or(&local.path));
            local.is_some_and(|local| Path::new(local) == path)
        };
        self.pvs().into_iter().filter(at).collect()
    }

    pub fn pv(&self, name: &str) -> Option<PersistentVolume> {
        self.request(self.all_pvs().get_opt(name))
    }

    /// Waits for an Available PV for a path, other than the one with the UID `not`.
    pub fn available(&self, path: &Path, not: Option<&str>) -> PersistentVolume {
        self.eventually(&format!("an Available PV for {}", path.display()), || {
            self.pvs_at(path).into_iter().find(|pv| {
                phase(pv) == "Available" && pv.metadata.uid.as_deref() != not && !is_terminating(pv)
            })
        })
    }

    pub fn in_phase(&self, name: &str, wanted: &str) -> PersistentVolume {
        self.eventually(&format!("PV {name} {wanted}"), || {
            self.pv(name).filter(|pv| phase(pv) == wanted)
        })
    }

    pub fn create_pv(&self, pv: Value) -> PersistentVolume {
        self.create(&self.all_pvs(), pv)
    }

    pub fn patch_pv(&self, name: &str, patch: &Value) -> PersistentVolume {
        let patch = Patch::Merge(patch);
        self.request(self.all_pvs().patch(name, &PatchParams::default(), &patch))
    }

    pub fn delete_pv(&self, name: &str) {
        self.request(self.all_pvs().delete(name, &DeleteParams::default()));
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace())
    }

    /// Makes a claim of one class of this stage's; with `volume`, for the PV of that name.
    pub fn claim(&self, name: &str, class: &str, volume: Option<&str>) {
        self.claim_in_mode(name, class, volume, "Filesystem");
    }

    pub fn claim_in_mode(&self, name: &str, class: &str, volume: Option<&str>, mode: &str) {
        let claim = json!({
            "metadata": { "name": name },
            "spec": {
                "storageClassName": self.named(class),
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": mode,
                "volumeName": volume,
                "resources": { "requests": { "storage": "1Mi" } },
            },
        });
        self.create(&self.claims(), claim);
    }

    /// Makes a claim for the PV of a path and waits until both are bound; returns the PV.
    pub fn bind(&self, claim: &str, path: &Path) -> PersistentVolume {
        let pv = self.available(path, None);
        let spec = pv.spec.clone().unwrap_or_default();
        let class = spec.storage_class_name.unwrap_or_default();
        let class = class.strip_suffix(&self.named("")).unwrap_or_default();
        let mode = spec.volume_mode.unwrap_or_else(|| "Filesystem".into());
        self.claim_in_mode(claim, class, Some(&name(&pv)), &mode);
        // The claim's status is what a binder writes last.
        self.claim_in_phase(claim, "Bound");
        self.in_phase(&name(&pv), "Bound")
    }

    /// A claim's phase; empty when there is no such claim.
    pub fn claim_phase(&self, claim: &str) -> String {
        let found = self.block_on(self.claims().get_opt(claim));
        let status = found.expect("reading a claim").and_then(|claim| claim.status);
        status.and_then(|status| status.phase).unwrap_or_default()
    }

    pub fn claim_in_phase(&self, claim: &str, wanted: &str) {
        self.eventually(&format!("claim {claim} {wanted}"), || self.claim_phase(claim) == wanted);
    }

    /// Waits until the provisioner has noted that a volume is used; what is decided about it later
    /// depends on that.
    pub fn used(&self, pv: &PersistentVolume) -> PersistentVolume {
        let name = name(pv);
        self.eventually(&format!("PV {name} is marked as used"), || {
            let is_used = |pv: &PersistentVolume| {
                annotation(pv, "local-volume-provisioner/used") == Some("true")
            };
            self.pv(&name).filter(is_used)
        })
    }

    /// Makes a claim for the PV of a directory, as [`Stage::bind`] does, and writes a file `secret`
    /// into it once the provisioner has noted that the volume is used.
    pub fn occupy(&self, claim: &str, path: &Path) -> PersistentVolume {
        let bound = self.bind(claim, path);
        let pv = self.used(&bound);
        fs::write(path.join("secret"), claim).expect("writing into the volume");
        pv
    }

    pub fn delete_claim(&self, name: &str) {
        self.request(self.claims().delete(name, &DeleteParams::default()));
    }

    /// The provisioner's events with a reason, as their texts.
    pub fn events(&self, reason: &str) -> Vec<String> {
        let api: Api<Event> = Api::all(self.client.clone());
        let of_reason = format!("reason={reason},reportingComponent=local-volume-provisioner");
        let events = self.request(api.list(&ListParams::default().fields(&of_reason)));
        let node = self.node();
        let is_ours = |event: &Event| {
            let by = event.reporting_instance.as_deref();
            by.is_some_and(|by| by.contains(&node))
        };
        let wanted = events.items.into_iter().filter(is_ours);
        wanted.map(|event| event.message.unwrap_or_default()).collect()
    }

    /// Waits for an event with a reason and some text in it.
    pub fn event(&self, reason: &str, text: &str) -> String {
        self.eventually(&format!("an event {reason} with {text:?}"), || {
            self.events(reason).into_iter().find(|message| message.contains(text))
        })
    }
}

pub fn name(pv: &PersistentVolume) -> String {
    pv.metadata.name.clone().unwrap_or_default()
}

pub fn uid(pv: &PersistentVolume) -> String {
    pv.metadata.uid.clone().unwrap_or_default()
}

pub fn phase(pv: &PersistentVolume) -> String {
    pv.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
}

pub fn is_terminating(pv: &PersistentVolume) -> bool {
    pv.metadata.deletion_timestamp.is_some()
}

pub fn annotation<'a>(pv: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    pv.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
