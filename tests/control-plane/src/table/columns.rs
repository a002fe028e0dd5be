//! The columns of each type, as the real API server prints them.

mod access;
mod workloads;

use serde_json::{Value, json};

use super::{
    Column,
    words::{access_modes, age},
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

/// Of a type for which the real one has no columns of its own, either.
static PLAIN: [Column; 2] = [
    NAME,
    column("Created At", |o| text(&o["metadata"]["creationTimestamp"])),
];

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
        // Until the controller has said how much it is, that is a quantity of nothing.
        bound(o, or(&o["status"]["capacity"]["storage"], "0"))
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
    let table: [(&Resource, &[Column]); 17] = [
        (&resource::PERSISTENT_VOLUMES, &PERSISTENT_VOLUMES),
        (
            &resource::PERSISTENT_VOLUME_CLAIMS,
            &PERSISTENT_VOLUME_CLAIMS,
        ),
        (&resource::NODES, &NODES),
        (&resource::STORAGE_CLASSES, &STORAGE_CLASSES),
        (&resource::NAMESPACES, &NAMESPACES),
        (&resource::EVENTS, &EVENTS),
        (&resource::CONFIG_MAPS, &CONFIG_MAPS),
        (&resource::SECRETS, &access::SECRETS),
        (&resource::SERVICE_ACCOUNTS, &access::SERVICE_ACCOUNTS),
        (&resource::SERVICES, &access::SERVICES),
        (&resource::LEASES, &access::LEASES),
        (&resource::ROLE_BINDINGS, &access::ROLE_BINDINGS),
        (&resource::CLUSTER_ROLE_BINDINGS, &access::ROLE_BINDINGS),
        (&resource::PODS, &workloads::PODS),
        (&resource::JOBS, &workloads::JOBS),
        (&resource::DEPLOYMENTS, &workloads::DEPLOYMENTS),
        (&resource::DAEMON_SETS, &workloads::DAEMON_SETS),
    ];
    let found = table.into_iter().find(|(known, _)| *known == r);
    found.map_or(&PLAIN, |(_, columns)| columns)
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
