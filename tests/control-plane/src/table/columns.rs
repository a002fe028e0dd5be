//! The columns of volumes, claims, pods, Jobs and nodes, as the real API server prints them; of all other
//! types a table shows name and age.

use serde_json::{Value, json};

use super::{
    Column,
    words::{access_modes, age, between},
};
use crate::{
    meta,
    resource::{self, Resource},
};

const fn column(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { name, wide: false, cell }
}

const fn wide(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { name, wide: true, cell }
}

const NAME: Column = column("Name", |o| json!(meta::name(o)));
const AGE: Column = column("Age", |o| json!(age(&o["metadata"]["creationTimestamp"])));

static OTHERS: [Column; 2] = [NAME, AGE];

static PERSISTENT_VOLUMES: [Column; 11] = [
    NAME,
    column("Capacity", |o| text(&o["spec"]["capacity"]["storage"])),
    column("Access Modes", |o| json!(access_modes(&o["spec"]["accessModes"]))),
    column("Reclaim Policy", |o| text(&o["spec"]["persistentVolumeReclaimPolicy"])),
    column("Status", phase),
    column("Claim", |o| {
        let claim = &o["spec"]["claimRef"];
        match (claim["namespace"].as_str(), claim["name"].as_str()) {
            (ns, Some(name)) => json!(format!("{}/{name}", ns.unwrap_or_default())),
            _ => json!(""),
        }
    }),
    column("StorageClass", |o| text(&o["spec"]["storageClassName"])),
    column("VolumeAttributesClass", |o| or(&o["spec"]["volumeAttributesClassName"], "<unset>")),
    column("Reason", |o| text(&o["status"]["reason"])),
    AGE,
    wide("VolumeMode", |o| or(&o["spec"]["volumeMode"], "<unset>")),
];

static PERSISTENT_VOLUME_CLAIMS: [Column; 9] = [
    NAME,
    column("Status", phase),
    column("Volume", |o| text(&o["spec"]["volumeName"])),
    column("Capacity", |o| {
        // Until the controller has said how much it is, that is a quantity of nothing.
        bound(o, or(&o["status"]["capacity"]["storage"], "0"))
    }),
    column("Access Modes", |o| bound(o, json!(access_modes(&o["status"]["accessModes"])))),
    column("StorageClass", |o| text(&o["spec"]["storageClassName"])),
    column("VolumeAttributesClass", |o| or(&o["spec"]["volumeAttributesClassName"], "<unset>")),
    AGE,
    wide("VolumeMode", |o| or(&o["spec"]["volumeMode"], "<unset>")),
];

static NODES: [Column; 5] = [
    NAME,
    column("Status", node_status),
    column("Roles", |_| json!("<none>")),
    AGE,
    column("Version", |o| text(&o["status"]["nodeInfo"]["kubeletVersion"])),
];

static PODS: [Column; 7] = [
    NAME,
    column("Ready", |o| {
        let ready = statuses(o).filter(|c| c["ready"] == true).count();
        let all = o["spec"]["containers"].as_array().map_or(0, Vec::len);
        json!(format!("{ready}/{all}"))
    }),
    column("Status", pod_status),
    column("Restarts", |o| {
        let restarts: u64 = statuses(o).filter_map(|c| c["restartCount"].as_u64()).sum();
        json!(restarts.to_string())
    }),
    AGE,
    wide("IP", |o| or(&o["status"]["podIP"], "<none>")),
    wide("Node", |o| or(&o["spec"]["nodeName"], "<none>")),
];

static JOBS: [Column; 5] = [
    NAME,
    column("Status", job_status),
    column("Completions", |o| {
        let done = o["status"]["succeeded"].as_u64().unwrap_or(0);
        let all = o["spec"]["completions"].as_u64().unwrap_or(1);
        json!(format!("{done}/{all}"))
    }),
    column("Duration", |o| {
        let start = &o["status"]["startTime"];
        let text = match &o["status"]["completionTime"] {
            _ if start.is_null() => String::new(),
            Value::Null => age(start),
            end => between(start, end).unwrap_or_default(),
        };
        json!(text)
    }),
    AGE,
];

pub(super) fn of(r: &'static Resource) -> &'static [Column] {
    let tables: [(&Resource, &[Column]); 5] = [
        (&resource::PERSISTENT_VOLUMES, &PERSISTENT_VOLUMES),
        (&resource::PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUME_CLAIMS),
        (&resource::NODES, &NODES),
        (&resource::PODS, &PODS),
        (&resource::JOBS, &JOBS),
    ];
    let found = tables.into_iter().find(|(known, _)| *known == r);
    found.map_or(&OTHERS, |(_, columns)| columns)
}

fn text(value: &Value) -> Value {
    or(value, "")
}

fn or(value: &Value, missing: &str) -> Value {
    json!(value.as_str().filter(|v| !v.is_empty()).unwrap_or(missing))
}

fn phase(object: &Value) -> Value {
    if meta::is_terminating(object) {
        json!("Terminating")
    } else {
        text(&object["status"]["phase"])
    }
}

/// A claim shows capacity and modes only once it has a volume.
fn bound(claim: &Value, value: Value) -> Value {
    match claim["spec"]["volumeName"].as_str() {
        None | Some("") => json!(""),
        Some(_) => value,
    }
}

fn node_status(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.and_then(|c| c.iter().find(|c| c["type"] == "Ready"));
    let ready = match ready.map(|c| &c["status"]) {
        Some(status) if status == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = node["spec"]["unschedulable"] == true;
    json!(format!("{ready}{}", if cordoned { ",SchedulingDisabled" } else { "" }))
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let statuses = pod["status"]["containerStatuses"].as_array();
    statuses.into_iter().flatten()
}

/// The phase, unless a container's state or the deletion says more.
fn pod_status(pod: &Value) -> Value {
    let reasons = statuses(pod).find_map(|c| {
        let state = &c["state"];
        state["waiting"]["reason"].as_str().or(state["terminated"]["reason"].as_str())
    });
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let over = matches!(phase, "Succeeded" | "Failed");
    if meta::is_terminating(pod) && !over {
        return json!("Terminating");
    }
    let reason = pod["status"]["reason"].as_str();
    json!(reason.or(reasons).unwrap_or(match phase {
        "Succeeded" => "Completed",
        "Failed" => "Error",
        phase => phase,
    }))
}

fn job_status(job: &Value) -> Value {
    let is = |kind: &str| {
        let conditions = job["status"]["conditions"].as_array();
        conditions.is_some_and(|c| c.iter().any(|c| c["type"] == kind && c["status"] == "True"))
    };
    let known = ["Complete", "Failed", "Suspended"];
    let known = known.into_iter().find(|kind| is(kind));
    json!(known.unwrap_or(if meta::is_terminating(job) { "Terminating" } else { "Running" }))
}
