//! What the built-in admission plug-ins do to requests: StorageObjectInUseProtection,
//! DefaultStorageClass and PodTopologyLabels.

use serde_json::{Value, json};

use crate::{
    controllers::object::{BETA_CLASS, Class, add_finalizer, has_finalizer},
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
    for key in ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"] {
        if let label @ Value::String(_) = &node["metadata"]["labels"][key] {
            meta::child_mut(&mut pod["metadata"], "labels").insert(key.into(), label.clone());
        }
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    if !has_finalizer(object, finalizer) {
        add_finalizer(object, finalizer);
    }
}

fn default_class(store: &Store) -> Option<String> {
    let classes = store.list(&resource::STORAGE_CLASSES, None).items;
    let classes: Vec<_> = classes.into_iter().map(Class).collect();
    Class::default_of(classes.iter()).map(|class| class.name().to_owned())
}
