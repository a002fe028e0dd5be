//! What the built-in admission plug-ins do to requests: StorageObjectInUseProtection,
//! DefaultStorageClass and PodTopologyLabels.

use serde_json::{Value, json};

use crate::{
    controllers::object::BETA_CLASS,
    meta,
    resource::{self, Resource},
    store::Store,
};

/// On the way to a new object.
pub(crate) fn on_create(store: &Store, r: &'static Resource, object: &mut Value) {
    if r == &resource::PERSISTENT_VOLUMES {
        protect(object, "kubernetes.io/pv-protection");
    } else if r == &resource::PERSISTENT_VOLUME_CLAIMS {
        protect(object, "kubernetes.io/pvc-protection");
        // Also a claim that names its volume; the annotation is the older way to name a class.
        let open = object["spec"]["storageClassName"].is_null()
            && object["metadata"]["annotations"][BETA_CLASS].is_null();
        let spec = &mut object["spec"];
        if let Some(class) = default_class(store).filter(|_| spec.is_object() && open) {
            spec["storageClassName"] = json!(class);
        }
    } else if r == &resource::PODS
        && let Some(name) = object["spec"]["nodeName"].as_str()
        && let Ok(node) = store.get(&resource::NODES, "", name)
    {
        copy_topology(&node, object);
    }
}

/// Labels a pod with the zone and region of the node that it is on.
pub(crate) fn copy_topology(node: &Value, pod: &mut Value) {
    for key in [
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ] {
        if let label @ Value::String(_) = &node["metadata"]["labels"][key] {
            meta::child_mut(&mut pod["metadata"], "labels").insert(key.into(), label.clone());
        }
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    let finalizers = meta::metadata_mut(object)
        .entry("finalizers")
        .or_insert_with(|| json!([]));
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|f| f == finalizer)
    {
        finalizers.push(json!(finalizer));
    }
}

/// The newest class marked as default; among equally old ones the first by name.
fn default_class(store: &Store) -> Option<String> {
    let classes = store.list(&resource::STORAGE_CLASSES, None).items;
    let marked = |class: &Value| {
        let annotations = &class["metadata"]["annotations"];
        [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ]
        .iter()
        .any(|key| annotations[key] == "true")
    };
    let age = |class: &Value| {
        class["metadata"]["creationTimestamp"]
            .as_str()
            .map(str::to_owned)
    };
    classes
        .iter()
        .filter(|class| marked(class))
        .max_by(|a, b| {
            age(a)
                .cmp(&age(b))
                .then_with(|| meta::name(b).cmp(meta::name(a)))
        })
        .map(|class| meta::name(class).to_owned())
}
