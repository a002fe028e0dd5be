//! What is recorded of an object when nothing happens to it any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::scenario::Scenario;

/// How one scenario ended on one API server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The step that did not go as the scenario says, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// What was answered to the steps that ask for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<String, Value>,
    /// The objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<String, Value>,
}

/// All outcomes of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Record {
    /// The version that the API server tells.
    pub server: String,
    /// By the scenarios' names.
    pub scenarios: BTreeMap<String, Outcome>,
}

impl Record {
    /// Reads a record: a directory with a file for each topic.
    ///
    /// # Errors
    /// One of the files is none of a record.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let mut record = Self::default();
        let files = fs::read_dir(directory);
        for file in files.with_context(|| format!("cannot read {}", directory.display()))? {
            let path = file?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let part = fs::read_to_string(&path)?;
            let part: Self = serde_json::from_str(&part)
                .with_context(|| format!("{} is no record", path.display()))?;
            record.server = part.server;
            record.scenarios.extend(part.scenarios);
        }
        Ok(record)
    }

    /// What is on record of these scenarios.
    #[must_use]
    pub fn of(&self, scenarios: &[Scenario]) -> Self {
        let known = |scenario: &Scenario| {
            let outcome = self.scenarios.get(&scenario.name)?;
            Some((scenario.name.clone(), outcome.clone()))
        };
        Self {
            server: self.server.clone(),
            scenarios: scenarios.iter().filter_map(known).collect(),
        }
    }

    /// Writes it. What the directory has on record of other topics goes; what is no record stays.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let mut topics: BTreeMap<&str, Self> = BTreeMap::new();
        for (name, outcome) in &self.scenarios {
            let (topic, _) = name.split_once('/').unwrap_or((name, ""));
            let part = topics.entry(topic).or_default();
            part.server.clone_from(&self.server);
            part.scenarios.insert(name.clone(), outcome.clone());
        }
        let write = || -> anyhow::Result<()> {
            fs::create_dir_all(directory)?;
            for file in fs::read_dir(directory)? {
                let path = file?.path();
                let topic = path.file_stem().unwrap_or_default().to_string_lossy();
                if !topics.contains_key(&*topic) && is_record(&path) {
                    fs::remove_file(path)?;
                }
            }
            for (topic, part) in &topics {
                let text = serde_json::to_string_pretty(part)? + "\n";
                fs::write(directory.join(format!("{topic}.json")), text)?;
            }
            Ok(())
        };
        write().with_context(|| format!("cannot write the record {}", directory.display()))
    }
}

/// Whether a file is a part of a record, and so may be replaced.
fn is_record(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
        && fs::read(path).is_ok_and(|text| serde_json::from_slice::<Record>(&text).is_ok())
}

/// An object as it is recorded. A few kinds have their own words; of the others everything counts
/// that is not different each time.
#[must_use]
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
    outcome.insert("events".into(), told(events, messages));
    outcome.retain(|_, value| !is_empty(value));
    Value::Object(outcome)
}

/// Leaves out what was said of a claim or a pod while it waited, if it does not wait any more:
/// whether it was said at all depends on how fast everybody was.
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
    fields
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
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
        (
            "attributes-class",
            spec["volumeAttributesClassName"].clone(),
        ),
        ("capacity", spec["capacity"]["storage"].clone()),
        ("modes", spec["accessModes"].clone()),
        ("policy", spec["persistentVolumeReclaimPolicy"].clone()),
    ])
}

fn claim(object: &Value) -> Map<String, Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let owners = object["metadata"]["ownerReferences"].as_array();
    let owners: Vec<String> = owners
        .into_iter()
        .flatten()
        .map(|owner| {
            let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
            format!("{} {}", text("kind"), text("name"))
        })
        .collect();
    let allocated = &status["allocatedResources"]["storage"];
    let resizing = &status["allocatedResourceStatuses"]["storage"];
    let current = &status["currentVolumeAttributesClassName"];
    fields([
        ("phase", status["phase"].clone()),
        ("owners", json!(owners)),
        ("attributes-class", current.clone()),
        ("modify-status", status["modifyVolumeStatus"].clone()),
        ("allocated", allocated.clone()),
        ("resizing", resizing.clone()),
        ("volume", spec["volumeName"].clone()),
        ("class", spec["storageClassName"].clone()),
        ("capacity", status["capacity"]["storage"].clone()),
        ("modes", status["accessModes"].clone()),
        ("conditions", conditions(status)),
    ])
}

/// The phase is left out: it is the kubelet's, and there may be none.
fn pod(object: &Value) -> Map<String, Value> {
    let scheduled = object["status"]["conditions"].as_array();
    let scheduled = scheduled
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == "PodScheduled");
    let scheduled: Vec<Value> = scheduled.cloned().collect();
    fields([
        ("node", object["spec"]["nodeName"].clone()),
        ("conditions", conditions(&json!({"conditions": scheduled}))),
    ])
}

fn conditions(status: &Value) -> Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told: BTreeSet<String> = conditions
        .map(|c| {
            let told = [word(&c["type"]), word(&c["status"]), word(&c["reason"])];
            told.join(" ").trim_end().to_owned()
        })
        .collect();
    json!(told)
}

/// Events by type and reason; those of kubelets depend on there being one.
fn told(events: &[Value], messages: bool) -> Value {
    let events = events
        .iter()
        .filter(|event| event["source"]["component"] != "kubelet");
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told: BTreeSet<String> = events
        .map(|event| {
            let what = format!("{} {}", word(&event["type"]), word(&event["reason"]));
            if messages {
                format!("{what}: {}", refusals(&word(&event["message"])))
            } else {
                what
            }
        })
        .collect();
    json!(told)
}

/// Of a message of the scheduler the reasons of the scenario's own nodes: how many others there are,
/// and that they are not for its pods, changes all the time. Any other message as it is.
fn refusals(message: &str) -> String {
    let Some((_, reasons)) = message.split_once(" nodes are available: ") else {
        return message.to_owned();
    };
    let (reasons, _) = reasons.split_once(". ").unwrap_or((reasons, ""));
    let own = reasons
        .split(", ")
        .filter(|reason| !reason.ends_with("node(s) didn't match Pod's node affinity/selector"));
    own.collect::<Vec<_>>().join(", ")
}

fn whole(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "managedFields",
            "resourceVersion",
            "creationTimestamp",
            "uid",
        ] {
            metadata.remove(field);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_are_replaced_by_a_record() -> anyhow::Result<()> {
        let directory = std::env::temp_dir().join(format!("record-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let of = |topic: &str| {
            let mut record = Record::default();
            record
                .scenarios
                .insert(format!("{topic}/x"), Outcome::default());
            record
        };
        let others = ["Cargo.toml", "package.json"];
        for name in others {
            fs::write(directory.join(name), "{}")?;
        }
        of("old").write(&directory)?;
        of("new").write(&directory)?;
        let there = |name: &str| directory.join(name).exists();
        assert!(
            others.iter().all(|name| there(name)),
            "no record is removed"
        );
        assert!(there("new.json") && !there("old.json"));
        for name in others.iter().chain(&["new.json"]) {
            fs::remove_file(directory.join(name))?;
        }
        fs::remove_dir(&directory)?;
        Ok(())
    }

    #[test]
    fn the_scheduler_tells_of_the_nodes_of_the_scenario() {
        for (message, recorded) in [
            (
                "0/9 nodes are available: 1 node(s) had no room, 8 node(s) didn't match Pod's \
                 node affinity/selector. preemption: 0/9 nodes are available: 9 no help.",
                "1 node(s) had no room",
            ),
            ("0/9 nodes are available: no claim. not found", "no claim"),
            (
                "Successfully assigned a to b",
                "Successfully assigned a to b",
            ),
        ] {
            assert_eq!(refusals(message), recorded);
        }
    }
}
