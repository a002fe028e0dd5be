//! Fields that the API server fills in.

use serde_json::{Map, Value, json};

use crate::{
    meta, quantity,
    resource::{self, Resource},
};

/// The status that a new object starts with, whatever the client sent.
pub(crate) fn initial_status(r: &'static Resource, object: &mut Value) {
    let status = if r == &resource::PERSISTENT_VOLUMES {
        json!({"phase": "Pending", "lastPhaseTransitionTime": meta::now()})
    } else if r == &resource::PERSISTENT_VOLUME_CLAIMS {
        json!({"phase": "Pending"})
    } else if r == &resource::PODS {
        json!({"phase": "Pending", "qosClass": qos_class(object)})
    } else if r == &resource::NAMESPACES {
        json!({"phase": "Active"})
    } else if r == &resource::NODES {
        // A kubelet registers its node with the status in it.
        return;
    } else if r.status {
        json!({})
    } else {
        return;
    };
    object["status"] = status;
}

/// Defaults and canonical forms; doing it twice is doing it once.
pub(crate) fn apply(r: &'static Resource, object: &mut Value) {
    if r == &resource::PERSISTENT_VOLUMES {
        volume(object);
    } else if r == &resource::PERSISTENT_VOLUME_CLAIMS {
        claim(object);
    } else if r == &resource::STORAGE_CLASSES {
        fill(object, "reclaimPolicy", json!("Delete"));
        fill(object, "volumeBindingMode", json!("Immediate"));
    } else if r == &resource::PODS {
        pod_spec(&mut object["spec"]);
    } else if r == &resource::JOBS {
        job(object);
    } else if r == &resource::NAMESPACES {
        let label = json!(meta::name(object));
        if label != "" {
            meta::child_mut(&mut object["metadata"], "labels")
                .insert("kubernetes.io/metadata.name".into(), label);
        }
        if !object["spec"].is_object() {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
        }
    }
}

fn volume(object: &mut Value) {
    let spec = &mut object["spec"];
    if !spec.is_object() {
        return;
    }
    fill(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
    fill(spec, "volumeMode", json!("Filesystem"));
    if spec["hostPath"].is_object() {
        fill(&mut spec["hostPath"], "type", json!(""));
    }
    canonical(&mut spec["capacity"]);
    tidy(spec, "capacity");
}

fn claim(object: &mut Value) {
    if object["spec"].is_object() {
        fill(&mut object["spec"], "volumeMode", json!("Filesystem"));
        resources(&mut object["spec"]);
    }
    if object["status"]["capacity"].is_object() {
        canonical(&mut object["status"]["capacity"]);
    }
}

fn pod_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
    ] {
        fill(spec, field, value);
    }
    for list in ["containers", "initContainers"] {
        let Some(containers) = spec[list].as_array_mut() else {
            tidy(spec, list);
            continue;
        };
        for container in containers.iter_mut().filter(|c| c.is_object()) {
            fill(container, "terminationMessagePath", json!("/dev/termination-log"));
            fill(container, "terminationMessagePolicy", json!("File"));
            fill(container, "resources", json!({}));
            resources(container);
        }
    }
}

/// The Job controller finds its pods by labels that carry the Job's UID and name.
fn job(object: &mut Value) {
    let (uid, name) = (meta::uid(object).to_owned(), meta::name(object).to_owned());
    let spec = &mut object["spec"];
    if !spec.is_object() || name.is_empty() {
        return;
    }
    fill(spec, "backoffLimit", json!(6));
    fill(spec, "completionMode", json!("NonIndexed"));
    fill(spec, "manualSelector", json!(false));
    fill(spec, "suspend", json!(false));
    fill(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        fill(spec, "completions", json!(1));
    }
    fill(spec, "parallelism", json!(1));
    if spec["manualSelector"] == json!(false) {
        fill(spec, "selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
        let labels = meta::child_mut(meta_of_template(spec), "labels");
        for (key, value) in [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ] {
            labels.entry(key).or_insert_with(|| json!(value));
        }
    }
    pod_spec(&mut spec["template"]["spec"]);
    tidy(&mut spec["template"], "spec");
    // A Job without labels has those of its pods.
    let labels = spec["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        let own = meta::metadata_mut(object);
        if own.get("labels").is_none_or(|own| own.as_object().is_none_or(Map::is_empty)) {
            own.insert("labels".to_owned(), labels);
        }
    }
}

fn meta_of_template(spec: &mut Value) -> &mut Value {
    let template = meta::child_mut(spec, "template");
    template.entry("metadata").or_insert_with(|| json!({}))
}

/// `Guaranteed`, `Burstable` or `BestEffort`; only the last two are distinguished here, by whether
/// anything is requested at all.
fn qos_class(pod: &Value) -> &'static str {
    let asks = |c: &Value| {
        ["requests", "limits"]
            .iter()
            .any(|k| c["resources"][k].as_object().is_some_and(|m| !m.is_empty()))
    };
    let any = pod["spec"]["containers"].as_array().into_iter().flatten().any(asks);
    if any { "Burstable" } else { "BestEffort" }
}

fn resources(holder: &mut Value) {
    if let Some(resources) = holder.get_mut("resources").and_then(Value::as_object_mut) {
        resources.values_mut().for_each(canonical);
    }
}

/// Quantities in a map get their canonical form; what does not parse is left to validation.
fn canonical(quantities: &mut Value) {
    let Some(map) = quantities.as_object_mut() else {
        return;
    };
    for value in map.values_mut() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => continue,
        };
        if let Ok(quantity) = text.parse::<quantity::Quantity>() {
            *value = json!(quantity.to_string());
        }
    }
}

fn fill(holder: &mut Value, field: &str, value: Value) {
    if holder[field].is_null() {
        holder[field] = value;
    }
}

/// Looking at a missing field through `&mut` leaves a null behind.
fn tidy(holder: &mut Value, field: &str) {
    if let Some(map) = holder.as_object_mut()
        && map.get(field).is_some_and(Value::is_null)
    {
        map.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_labels_has_those_of_its_pods() {
        let labels_of = |labels: Value| {
            let mut job = json!({
                "metadata": {"name": "j", "uid": "u", "labels": labels},
                "spec": {"template": {"metadata": {"labels": {"app": "x"}}, "spec": {}}},
            });
            apply(&resource::JOBS, &mut job);
            job["metadata"]["labels"].clone()
        };
        assert_eq!(labels_of(Value::Null)["app"], "x");
        assert_eq!(labels_of(Value::Null)["job-name"], "j");
        assert_eq!(labels_of(json!({"own": "y"})), json!({"own": "y"}));
    }
}
