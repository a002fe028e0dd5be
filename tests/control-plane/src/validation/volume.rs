//! PersistentVolumes.

use serde_json::{Value, json};

use super::{metadata::qualified_name, one_of, positive, storage};
use crate::{quantity::Quantity, status::Cause};

/// Every volume source that a PersistentVolume may have.
const SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

pub(super) fn spec(spec: &Value, causes: &mut Vec<Cause>) {
    storage(spec, "", causes);
    let capacity = spec["capacity"].as_object();
    match capacity.map(|c| (c.len(), c.get("storage"))) {
        Some((1, Some(amount))) => {
            const FIELD: &str = "spec.capacity[storage]";
            let size = amount.as_str().and_then(|text| text.parse::<Quantity>().ok());
            if let Some(size) = size.map(|size| size.value()).filter(|size| *size < 0) {
                let detail = "must be a valid resource quantity";
                causes.push(Cause::invalid(FIELD, &json!(size), detail));
            }
            positive(amount, FIELD, causes);
        }
        several_or_none => {
            if several_or_none.is_none_or(|(count, _)| count == 0) {
                causes.push(Cause::required("spec.capacity", ""));
            }
            let capacity = &spec["capacity"];
            causes.push(Cause::not_supported("spec.capacity", capacity, &["storage"]));
        }
    }
    let policies = ["Delete", "Recycle", "Retain"];
    one_of(spec, "persistentVolumeReclaimPolicy", "spec.", &policies, causes);
    node_affinity(&spec["nodeAffinity"], causes);
    source(spec, causes);
}

fn source(spec: &Value, causes: &mut Vec<Cause>) {
    let mut sources = SOURCES.iter().filter(|s| !spec[**s].is_null());
    let Some(&first) = sources.next() else {
        causes.push(Cause::required("spec", "must specify a volume type"));
        return;
    };
    for second in sources {
        let detail = "may not specify more than 1 volume type";
        causes.push(Cause::forbidden(format!("spec.{second}"), detail));
    }
    if !matches!(first, "local" | "hostPath") {
        return;
    }
    let field = format!("spec.{first}.path");
    let path = &spec[first]["path"];
    match path.as_str().unwrap_or_default() {
        "" => causes.push(Cause::required(field, "")),
        text if text.split('/').any(|part| part == "..") => {
            causes.push(Cause::invalid(field, path, "must not contain '..'"));
        }
        "/" if first == "hostPath" && spec["persistentVolumeReclaimPolicy"] == "Recycle" => {
            let detail = "may not be 'recycle' for a hostPath mount of '/'";
            causes.push(Cause::forbidden("spec.persistentVolumeReclaimPolicy", detail));
        }
        _ => {}
    }
    if first == "local" && spec["nodeAffinity"]["required"].is_null() {
        let detail = "Local volume requires node affinity";
        causes.push(Cause::required("spec.nodeAffinity", detail));
    }
}

fn node_affinity(affinity: &Value, causes: &mut Vec<Cause>) {
    const REQUIRED: &str = "spec.nodeAffinity.required";
    if affinity.is_null() {
        return;
    }
    if affinity["required"].is_null() {
        causes.push(Cause::required(REQUIRED, "must specify required node constraints"));
        return;
    }
    let terms = affinity["required"]["nodeSelectorTerms"].as_array();
    let terms = terms.map(Vec::as_slice).unwrap_or_default();
    if terms.is_empty() {
        let detail = "must have at least one node selector term";
        causes.push(Cause::required(format!("{REQUIRED}.nodeSelectorTerms"), detail));
    }
    for (i, term) in terms.iter().enumerate() {
        for list in ["matchExpressions", "matchFields"] {
            for (j, requirement) in term[list].as_array().into_iter().flatten().enumerate() {
                let path = format!("{REQUIRED}.nodeSelectorTerms[{i}].{list}[{j}]");
                node_requirement(requirement, &path, causes);
            }
        }
    }
}

fn node_requirement(requirement: &Value, path: &str, causes: &mut Vec<Cause>) {
    let values = requirement["values"].as_array().map_or(0, Vec::len);
    let field = format!("{path}.values");
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" | "NotIn" if values == 0 => causes
            .push(Cause::required(field, "must be specified when `operator` is 'In' or 'NotIn'")),
        "Exists" | "DoesNotExist" if values > 0 => causes.push(Cause::forbidden(
            field,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "Gt" | "Lt" if values != 1 => causes.push(Cause::required(
            field,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => causes.push(Cause::invalid(
            format!("{path}.operator"),
            &requirement["operator"],
            "not a valid selector operator",
        )),
    }
    if let Some(fault) = qualified_name(requirement["key"].as_str().unwrap_or_default()) {
        causes.push(Cause::invalid(format!("{path}.key"), &requirement["key"], fault));
    }
}

/// Class, capacity, access modes, policy and claimRef may change; where the data is may not.
pub(super) fn change(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if SOURCES.iter().any(|source| old[*source] != new[*source]) {
        causes.push(Cause::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    if old["volumeMode"] != new["volumeMode"] {
        causes.push(Cause::invalid("volumeMode", &new["volumeMode"], "field is immutable"));
    }
    let (before, after) = (&old["nodeAffinity"], &new["nodeAffinity"]);
    if !before.is_null() && before != after {
        let detail = "field is immutable, except for updating from beta label to GA";
        causes.push(Cause::invalid("nodeAffinity", after, detail));
    }
}
