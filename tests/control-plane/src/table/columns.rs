//! The columns of each type, as the real API server prints them.

use serde_json::{Value, json};

use super::{
    Column,
    words::{access_modes, age, between, joined},
};
use crate::{
    meta,
    resource::{self, Resource},
};

const fn column(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column {
        name,
        wide: false,
        cell,
    }
}

const fn wide(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column {
        name,
        wide: true,
        cell,
    }
}

const NAME: Column = column("Name", |o| json!(meta::name(o)));
const AGE: Column = column("Age", |o| json!(age(&o["metadata"]["creationTimestamp"])));

static PLAIN: [Column; 2] = [NAME, AGE];

static PERSISTENT_VOLUMES: [Column; 11] = [
    NAME,
    column("Capacity", |o| text(&o["spec"]["capacity"]["storage"])),
    column("Access Modes", |o| {
        json!(access_modes(&o["spec"]["accessModes"]))
    }),
    column("Reclaim Policy", |o| {
        text(&o["spec"]["persistentVolumeReclaimPolicy"])
    }),
    column("Status", phase),
    column("Claim", |o| {
        let claim = &o["spec"]["claimRef"];
        match (claim["namespace"].as_str(), claim["name"].as_str()) {
            (ns, Some(name)) => json!(format!("{}/{name}", ns.unwrap_or_default())),
            _ => json!(""),
        }
    }),
    column("StorageClass", |o| text(&o["spec"]["storageClassName"])),
    column("VolumeAttributesClass", |o| {
        or(&o["spec"]["volumeAttributesClassName"], "<unset>")
    }),
    column("Reason", |o| text(&o["status"]["reason"])),
    AGE,
    wide("VolumeMode", |o| or(&o["spec"]["volumeMode"], "<unset>")),
];

static PERSISTENT_VOLUME_CLAIMS: [Column; 9] = [
    NAME,
    column("Status", phase),
    column("Volume", |o| text(&o["spec"]["volumeName"])),
    column("Capacity", |o| {
        bound(o, text(&o["status"]["capacity"]["storage"]))
    }),
    column("Access Modes", |o| {
        bound(o, json!(access_modes(&o["status"]["accessModes"])))
    }),
    column("StorageClass", |o| text(&o["spec"]["storageClassName"])),
    column("VolumeAttributesClass", |o| {
        or(&o["spec"]["volumeAttributesClassName"], "<unset>")
    }),
    AGE,
    wide("VolumeMode", |o| or(&o["spec"]["volumeMode"], "<unset>")),
];

static PODS: [Column; 9] = [
    NAME,
    column("Ready", |o| {
        let ready = statuses(o).filter(|c| c["ready"] == true).count();
        let all = o["spec"]["containers"].as_array().map_or(0, Vec::len);
        json!(format!("{ready}/{all}"))
    }),
    column("Status", pod_status),
    column("Restarts", |o| {
        let restarts: u64 = statuses(o).filter_map(|c| c["restartCount"].as_u64()).sum();
        let ends = statuses(o).map(|c| &c["lastState"]["terminated"]["finishedAt"]);
        // Timestamps of this form sort as text.
        match ends.max_by_key(|end| end.as_str()) {
            Some(end) if end.is_string() => json!(format!("{restarts} ({} ago)", age(end))),
            _ => json!(restarts.to_string()),
        }
    }),
    AGE,
    wide("IP", |o| or(&o["status"]["podIP"], "<none>")),
    wide("Node", |o| or(&o["spec"]["nodeName"], "<none>")),
    wide("Nominated Node", |o| {
        or(&o["status"]["nominatedNodeName"], "<none>")
    }),
    wide("Readiness Gates", |_| json!("<none>")),
];

static JOBS: [Column; 8] = [
    NAME,
    column("Status", job_status),
    column("Completions", |o| {
        let done = o["status"]["succeeded"].as_u64().unwrap_or(0);
        match (
            o["spec"]["completions"].as_u64(),
            o["spec"]["parallelism"].as_u64().unwrap_or(1),
        ) {
            (Some(all), _) => json!(format!("{done}/{all}")),
            (None, n) if n > 1 => json!(format!("{done}/1 of {n}")),
            (None, _) => json!(format!("{done}/1")),
        }
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
    wide("Containers", |o| {
        json!(joined(&o["spec"]["template"]["spec"]["containers"], "name"))
    }),
    wide("Images", |o| {
        json!(joined(
            &o["spec"]["template"]["spec"]["containers"],
            "image"
        ))
    }),
    wide("Selector", |o| {
        let labels = o["spec"]["selector"]["matchLabels"].as_object();
        let pairs = labels.into_iter().flatten();
        let pairs = pairs.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()));
        json!(pairs.collect::<Vec<_>>().join(","))
    }),
];

static NODES: [Column; 10] = [
    NAME,
    column("Status", node_status),
    column("Roles", |o| {
        let labels = o["metadata"]["labels"].as_object();
        let keys = labels.into_iter().flat_map(|l| l.keys());
        let roles: Vec<_> = keys
            .filter_map(|k| k.strip_prefix("node-role.kubernetes.io/"))
            .collect();
        json!(if roles.is_empty() {
            "<none>".into()
        } else {
            roles.join(",")
        })
    }),
    AGE,
    column("Version", |o| {
        text(&o["status"]["nodeInfo"]["kubeletVersion"])
    }),
    wide("Internal-IP", |o| json!(address(o, "InternalIP"))),
    wide("External-IP", |o| json!(address(o, "ExternalIP"))),
    wide("OS-Image", |o| {
        or(&o["status"]["nodeInfo"]["osImage"], "<unknown>")
    }),
    wide("Kernel-Version", |o| {
        or(&o["status"]["nodeInfo"]["kernelVersion"], "<unknown>")
    }),
    wide("Container-Runtime", |o| {
        or(
            &o["status"]["nodeInfo"]["containerRuntimeVersion"],
            "<unknown>",
        )
    }),
];

static STORAGE_CLASSES: [Column; 6] = [
    column("Name", |o| {
        let annotations = &o["metadata"]["annotations"];
        let default = annotations["storageclass.kubernetes.io/is-default-class"] == "true";
        json!(format!(
            "{}{}",
            meta::name(o),
            if default { " (default)" } else { "" }
        ))
    }),
    column("Provisioner", |o| text(&o["provisioner"])),
    column("ReclaimPolicy", |o| text(&o["reclaimPolicy"])),
    column("VolumeBindingMode", |o| text(&o["volumeBindingMode"])),
    column("AllowVolumeExpansion", |o| {
        json!(o["allowVolumeExpansion"] == true)
    }),
    AGE,
];

static NAMESPACES: [Column; 3] = [NAME, column("Status", |o| text(&o["status"]["phase"])), AGE];

static EVENTS: [Column; 10] = [
    column("Last Seen", |o| json!(age(last_seen(o)))),
    column("Type", |o| text(&o["type"])),
    column("Reason", |o| text(&o["reason"])),
    column("Object", |o| {
        let about = &o["involvedObject"];
        let kind = about["kind"].as_str().unwrap_or_default().to_lowercase();
        json!(format!(
            "{kind}/{}",
            about["name"].as_str().unwrap_or_default()
        ))
    }),
    wide("Subobject", |o| text(&o["involvedObject"]["fieldPath"])),
    wide("Source", |o| {
        let source = &o["source"]["component"];
        text(if source.is_null() {
            &o["reportingComponent"]
        } else {
            source
        })
    }),
    column("Message", |o| {
        json!(o["message"].as_str().unwrap_or_default().trim())
    }),
    wide("First Seen", |o| {
        let first = &o["firstTimestamp"];
        json!(age(if first.is_null() {
            &o["eventTime"]
        } else {
            first
        }))
    }),
    wide("Count", |o| {
        let series = o["series"]["count"].as_u64();
        json!(series.or(o["count"].as_u64()).unwrap_or(1).to_string())
    }),
    wide("Name", |o| json!(meta::name(o))),
];

static CONFIG_MAPS: [Column; 3] = [
    NAME,
    column("Data", |o| {
        let size = |field: &str| o[field].as_object().map_or(0, serde_json::Map::len);
        json!((size("data") + size("binaryData")).to_string())
    }),
    AGE,
];

pub(super) fn of(r: &'static Resource) -> &'static [Column] {
    if r == &resource::PERSISTENT_VOLUMES {
        &PERSISTENT_VOLUMES
    } else if r == &resource::PERSISTENT_VOLUME_CLAIMS {
        &PERSISTENT_VOLUME_CLAIMS
    } else if r == &resource::PODS {
        &PODS
    } else if r == &resource::JOBS {
        &JOBS
    } else if r == &resource::NODES {
        &NODES
    } else if r == &resource::STORAGE_CLASSES {
        &STORAGE_CLASSES
    } else if r == &resource::NAMESPACES {
        &NAMESPACES
    } else if r == &resource::EVENTS {
        &EVENTS
    } else if r == &resource::CONFIG_MAPS {
        &CONFIG_MAPS
    } else {
        &PLAIN
    }
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
    if claim["spec"]["volumeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
    {
        json!("")
    } else {
        value
    }
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
}

/// The phase, unless a container's state or the deletion says more.
fn pod_status(pod: &Value) -> Value {
    let reasons = statuses(pod).find_map(|c| {
        let state = &c["state"];
        state["waiting"]["reason"]
            .as_str()
            .or(state["terminated"]["reason"].as_str())
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
    json!(if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if meta::is_terminating(job) {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    })
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
    json!(format!(
        "{ready}{}",
        if cordoned { ",SchedulingDisabled" } else { "" }
    ))
}

fn address(node: &Value, kind: &str) -> String {
    let addresses = node["status"]["addresses"].as_array();
    let found = addresses.and_then(|a| a.iter().find(|a| a["type"] == kind));
    found
        .and_then(|a| a["address"].as_str())
        .unwrap_or("<none>")
        .to_owned()
}

fn last_seen(event: &Value) -> &Value {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["firstTimestamp"],
        &event["eventTime"],
    ];
    times
        .into_iter()
        .find(|t| !t.is_null())
        .unwrap_or(&Value::Null)
}
