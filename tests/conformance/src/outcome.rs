//! What is recorded of an object when nothing happens to it any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The step that failed, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// What was answered to the steps that ask for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Record {
    /// The version of the API server.
    pub server: String,
    pub scenarios: BTreeMap<String, Outcome>,
}

impl Record {
    /// Reads a record: a directory with a file for each topic.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let mut record = Self::default();
        let files = fs::read_dir(directory);
        for file in files.with_context(|| format!("cannot read {}", directory.display()))? {
            let path = file?.path();
            let part = fs::read_to_string(&path)?;
            let part: Self = serde_json::from_str(&part)
                .with_context(|| format!("{} is no record", path.display()))?;
            record.server = part.server;
            record.scenarios.extend(part.scenarios);
        }
        Ok(record)
    }

    /// Writes it, a file for each topic.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let mut topics: BTreeMap<&str, Self> = BTreeMap::new();
        for (name, outcome) in &self.scenarios {
            let (topic, _) = name.split_once('/').unwrap_or((name, ""));
            let part = topics.entry(topic).or_default();
            part.server.clone_from(&self.server);
            part.scenarios.insert(name.clone(), outcome.clone());
        }
        for (topic, part) in &topics {
            let path = directory.join(format!("{topic}.json"));
            let text = serde_json::to_string_pretty(part)? + "\n";
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// An object as it is recorded. A few kinds have their own words; of the others everything counts
/// that is not different each time.
pub fn of_object(object: Option<&Value>, events: &[Value], messages: bool) -> Value {
    let Some(object) = object else {
        return json!("gone");
    };
    let mut outcome = match object["kind"].as_str() {
        Some("PersistentVolume") => volume(object),
        Some("PersistentVolumeClaim") => claim(object),
        Some("Pod") => pod(object),
        _ => return whole(object),
    };
    let metadata = &object["metadata"];
    outcome.insert("annotations".into(), metadata["annotations"].clone());
    outcome.insert("finalizers".into(), metadata["finalizers"].clone());
    outcome.insert("labels".into(), metadata["labels"].clone());
    if metadata["deletionTimestamp"].is_string() {
        outcome.insert("terminating".into(), true.into());
    }
    outcome.insert("events".into(), occurred(events, messages));
    outcome.retain(|_, value| !is_empty(value));
    Value::Object(outcome)
}

/// Leaves out the events of a claim or a pod while it waited, if it does not wait any more:
/// whether it was emitted at all depends on timing.
pub(crate) fn forget_waiting(outcome: &mut Value) {
    let past: &[&str] = if outcome["phase"] == "Bound" {
        &["Normal WaitForFirstConsumer", "Normal WaitForPodScheduled"]
    } else if outcome["annotations"]["volume.kubernetes.io/selected-node"].is_string() {
        &["Normal WaitForPodScheduled"]
    } else if outcome["node"].is_string() {
        &["Warning FailedScheduling"]
    } else {
        return;
    };
    let is_past = |event: &Value| {
        let event = event.as_str().unwrap_or_default();
        past.iter().any(|said| event.starts_with(said))
    };
    if let Some(outcome) = outcome.as_object_mut()
        && let Some(events) = outcome.get_mut("events").and_then(Value::as_array_mut)
    {
        events.retain(|event| !is_past(event));
        if events.is_empty() {
            outcome.remove("events");
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn volume(object: &Value) -> Map<String, Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let reference = &spec["claimRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let claim = reference.is_object().then(|| {
        let uid = match text("uid") {
            "" => "no uid",
            uid => uid,
        };
        format!("{}/{}, {uid}", text("namespace"), text("name"))
    });
    fields([
        ("phase", status["phase"].clone()),
        ("message", status["message"].clone()),
        ("claim", claim.into()),
        ("class", spec["storageClassName"].clone()),
        ("attributes-class", spec["volumeAttributesClassName"].clone()),
        ("capacity", spec["capacity"]["storage"].clone()),
        ("modes", spec["accessModes"].clone()),
        ("policy", spec["persistentVolumeReclaimPolicy"].clone()),
    ])
}

fn claim(object: &Value) -> Map<String, Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let current = &status["currentVolumeAttributesClassName"];
    fields([
        ("phase", status["phase"].clone()),
        ("attributes-class", current.clone()),
        ("volume", spec["volumeName"].clone()),
        ("class", spec["storageClassName"].clone()),
        ("capacity", status["capacity"]["storage"].clone()),
        ("modes", status["accessModes"].clone()),
        // kube-controller-manager sets Unused with a delay, and stops once the claim is deleted.
        ("conditions", conditions(status, |kind| kind != "Unused")),
    ])
}

/// The phase is left out: it is the kubelet's, and there may be none.
fn pod(object: &Value) -> Map<String, Value> {
    let scheduled = |kind: &str| kind == "PodScheduled";
    fields([
        ("node", object["spec"]["nodeName"].clone()),
        ("conditions", conditions(&object["status"], scheduled)),
    ])
}

/// The conditions whose type counts, without their times.
fn conditions(status: &Value, counts: impl Fn(&str) -> bool) -> Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions = conditions.filter(|c| counts(c["type"].as_str().unwrap_or_default()));
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let occurred: BTreeSet<String> = conditions
        .map(|c| {
            let occurred = [word(&c["type"]), word(&c["status"]), word(&c["reason"])];
            let causes = match c["reason"].as_str() {
                Some("Unschedulable") => causes(&word(&c["message"])),
                _ => String::new(),
            };
            format!("{} {causes}", occurred.join(" ")).trim_end().to_owned()
        })
        .collect();
    json!(occurred)
}

/// The causes in the scheduler's message. The number of nodes, the result of preemption, and nodes
/// of other scenarios that do not match the pod's selector depend on the cluster.
fn causes(message: &str) -> String {
    let (_, causes) = message.split_once("available: ").unwrap_or(("", message));
    let (causes, _) = causes.split_once(". ").unwrap_or((causes, ""));
    let causes = causes.trim_end_matches('.').split(", ").map(|cause| {
        let cause = cause.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        cause.strip_prefix("node(s) ").unwrap_or(cause)
    });
    let causes = causes.filter(|cause| *cause != "didn't match Pod's node affinity/selector");
    let causes: BTreeSet<&str> = causes.collect();
    causes.into_iter().collect::<Vec<_>>().join(", ")
}

/// Events by type and reason. Those of kubelets depend on there being one, and nothing here grows.
fn occurred(events: &[Value], messages: bool) -> Value {
    let others = |component: &&str| !["kubelet", "volume_expand"].contains(component);
    let events = events
        .iter()
        .filter(|event| event["source"]["component"].as_str().is_none_or(|c| others(&c)));
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let occurred: BTreeSet<String> = events
        .map(|event| {
            let what = format!("{} {}", word(&event["type"]), word(&event["reason"]));
            if messages { format!("{what}: {}", word(&event["message"])) } else { what }
        })
        .collect();
    json!(occurred)
}

fn whole(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "creationTimestamp", "uid"] {
            metadata.remove(field);
        }
    }
    object
}

#[test]
fn causes_do_not_depend_on_the_cluster() {
    let message = "0/3 nodes are available: 1 node(s) b, 12 node(s) a, 2 node(s) didn't match Pod's \
                   node affinity/selector. no new claims to deallocate, preemption: 0/3 nodes are \
                   available: 3 Preemption is not helpful for scheduling.";
    assert_eq!(causes(message), "a, b");
    let message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(causes(message), "");
}
