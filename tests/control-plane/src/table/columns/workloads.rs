//! What runs containers: Pods, Jobs, Deployments, `DaemonSets`.

use serde_json::{Value, json};

use super::{AGE, NAME, column, or, wide};
use crate::{
    meta,
    table::{
        Column,
        words::{age, between, joined, labels},
    },
};

pub(super) static PODS: [Column; 9] = [
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

pub(super) static JOBS: [Column; 8] = [
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
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) static DEPLOYMENTS: [Column; 8] = [
    NAME,
    column("Ready", |o| {
        let ready = o["status"]["readyReplicas"].as_u64().unwrap_or(0);
        json!(format!(
            "{ready}/{}",
            o["spec"]["replicas"].as_u64().unwrap_or(0)
        ))
    }),
    column("Up-to-date", |o| number(&o["status"]["updatedReplicas"])),
    column("Available", |o| number(&o["status"]["availableReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) static DAEMON_SETS: [Column; 11] = [
    NAME,
    column("Desired", |o| {
        number(&o["status"]["desiredNumberScheduled"])
    }),
    column("Current", |o| {
        number(&o["status"]["currentNumberScheduled"])
    }),
    column("Ready", |o| number(&o["status"]["numberReady"])),
    column("Up-to-date", |o| {
        number(&o["status"]["updatedNumberScheduled"])
    }),
    column("Available", |o| number(&o["status"]["numberAvailable"])),
    column("Node Selector", |o| {
        json!(labels(&o["spec"]["template"]["spec"]["nodeSelector"]))
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const CONTAINERS: Column = wide("Containers", |o| {
    json!(joined(&o["spec"]["template"]["spec"]["containers"], "name"))
});
const IMAGES: Column = wide("Images", |o| {
    json!(joined(
        &o["spec"]["template"]["spec"]["containers"],
        "image"
    ))
});
const SELECTOR: Column = wide("Selector", |o| {
    json!(labels(&o["spec"]["selector"]["matchLabels"]))
});

fn number(value: &Value) -> Value {
    json!(value.as_u64().unwrap_or(0).to_string())
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
