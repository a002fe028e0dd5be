//! The scenarios as people write them: `scenarios/TOPIC.yaml`, explained in `README.md`.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    short,
    step::{Step, StepError},
    target::{Target, TargetError},
};

/// One story, and what of its end is recorded.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// `topic/name`.
    pub name: String,
    /// What is true, and why it matters, in one sentence.
    pub says: String,
    /// What happens.
    pub steps: Vec<Step>,
    /// The objects whose outcome is recorded.
    pub record: Vec<Target>,
    /// The objects of which also counts what was said while they waited.
    pub waiting: Vec<Target>,
    /// Whether it takes the whole cluster, and so runs when nothing else does.
    pub alone: bool,
    /// Whether a resync of the controllers has to pass before the outcome counts.
    pub resync: bool,
    /// Whether the events' messages are recorded, too.
    pub messages: bool,
    /// Where the embedded control plane ends elsewhere.
    pub differs: Option<Differs>,
}

/// A difference that is known.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differs {
    /// Why that cannot be otherwise.
    pub why: String,
    /// Each value, or what it stands in: a step or an object, then keys, as `compare` prints them.
    pub at: Vec<String>,
}

impl Scenario {
    /// The objects that its steps make.
    pub fn makes(&self) -> impl Iterator<Item = Target> {
        self.steps.iter().flat_map(Step::makes)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    says: String,
    #[serde(default)]
    class: StandardClass,
    steps: Vec<Value>,
    record: Option<Vec<String>>,
    #[serde(default)]
    waiting: Vec<String>,
    #[serde(default)]
    alone: bool,
    #[serde(default = "yes")]
    resync: bool,
    #[serde(default)]
    messages: bool,
    differs: Option<Differs>,
}

/// The class that the scenario's volumes and claims have by default.
#[derive(Default, Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum StandardClass {
    /// Binds at once.
    #[default]
    Immediate,
    /// Waits for a pod.
    Late,
    /// Only its name exists.
    Missing,
}

const fn yes() -> bool {
    true
}

/// A file of scenarios that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// It cannot be read.
    #[error("cannot read {path}: {why}")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// It is no list of scenarios.
    #[error("{path}: {why}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        why: Box<serde_saphyr::Error>,
    },
    /// A key or a value of a scenario is wrong.
    #[error("{path}: scenario {scenario}: {why}")]
    Scenario {
        /// The file.
        path: PathBuf,
        /// Its name, or its place in the file.
        scenario: String,
        /// What is wrong.
        why: Box<ScenarioError>,
    },
}

/// What is wrong with a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A key that there is not, one that is missing, or a value of another type.
    #[error(transparent)]
    Keys(#[from] serde_json::Error),
    /// A step.
    #[error("step {number}, {step}: {why}")]
    Step {
        /// From 1.
        number: usize,
        /// As it is written.
        step: String,
        /// What is wrong with it.
        why: StepError,
    },
    /// What `record` names.
    #[error("record or waiting: {entry:?}: {why}")]
    Record {
        /// As it is written.
        entry: String,
        /// What is wrong with it.
        why: TargetError,
    },
    /// What `waiting` names is not recorded at all.
    #[error("waiting: {0} is not recorded")]
    NotRecorded(String),
    /// Another scenario is called so.
    #[error("there is another one of this name in the file")]
    Twice,
    /// Names end in paths of the report.
    #[error("its name may hold a-z, 0-9 and '-' only")]
    Name,
}

/// Reads all files of a directory, in the order of their names.
///
/// # Errors
/// One of them cannot be used; the message says where and why.
pub fn load(directory: &Path) -> Result<Vec<Scenario>, DataError> {
    let read = |why| DataError::Read {
        path: directory.to_owned(),
        why,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            files.push(path);
        }
    }
    files.sort();
    let mut scenarios = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(|why| DataError::Read {
            path: path.clone(),
            why,
        })?;
        scenarios.extend(parse(&path, &text)?);
    }
    Ok(scenarios)
}

/// The scenarios of one file.
///
/// # Errors
/// As [`load`].
pub fn parse(path: &Path, text: &str) -> Result<Vec<Scenario>, DataError> {
    let topic = path.file_stem().unwrap_or_default().to_string_lossy();
    // `n` is the name of a node, and no falsehood.
    let options = serde_saphyr::options! { strict_booleans: true };
    let items: Vec<Value> =
        serde_saphyr::from_str_with_options(text, options).map_err(|why| DataError::Syntax {
            path: path.to_owned(),
            why: Box::new(why),
        })?;
    let mut names = HashSet::new();
    let mut scenarios = Vec::new();
    for (i, item) in items.into_iter().enumerate() {
        let called = item["name"].as_str().map(str::to_owned);
        let scenario = one(&topic, item).and_then(|scenario| {
            if names.insert(scenario.name.clone()) {
                Ok(scenario)
            } else {
                Err(ScenarioError::Twice)
            }
        });
        scenarios.push(scenario.map_err(|why| DataError::Scenario {
            path: path.to_owned(),
            scenario: called.unwrap_or_else(|| format!("number {}", i + 1)),
            why: Box::new(why),
        })?);
    }
    Ok(scenarios)
}

fn one(topic: &str, item: Value) -> Result<Scenario, ScenarioError> {
    let raw: Raw = serde_json::from_value(item)?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if raw.name.is_empty() || !raw.name.chars().all(plain) {
        return Err(ScenarioError::Name);
    }
    let mut steps = Vec::new();
    if raw.class != StandardClass::Missing {
        let late = raw.class == StandardClass::Late;
        let class = json!({format!("class {}", short::STANDARD): {"late": late}});
        steps.push(parse_step(0, class)?);
    }
    for (i, step) in raw.steps.into_iter().enumerate() {
        steps.push(parse_step(i + 1, step)?);
    }
    let record = match raw.record {
        Some(entries) => entries
            .into_iter()
            .map(recorded)
            .collect::<Result<_, _>>()?,
        None => made(&steps),
    };
    let waiting = raw.waiting.into_iter().map(recorded);
    let waiting: Vec<Target> = waiting.collect::<Result<_, _>>()?;
    if let Some(target) = waiting.iter().find(|target| !record.contains(target)) {
        return Err(ScenarioError::NotRecorded(target.to_string()));
    }
    Ok(Scenario {
        name: format!("{topic}/{}", raw.name),
        says: raw.says,
        steps,
        record,
        waiting,
        alone: raw.alone,
        resync: raw.resync,
        messages: raw.messages,
        differs: raw.differs,
    })
}

fn parse_step(number: usize, step: Value) -> Result<Step, ScenarioError> {
    let text = step.to_string();
    Step::parse(number.to_string(), step).map_err(|why| ScenarioError::Step {
        number,
        step: text,
        why,
    })
}

fn recorded(entry: String) -> Result<Target, ScenarioError> {
    let (kind, name) = entry.split_once(' ').unwrap_or((&entry, ""));
    Target::parse(kind, name).map_err(|why| ScenarioError::Record { entry, why })
}

/// Without a word about it: the volumes, claims and pods that the steps make.
fn made(steps: &[Step]) -> Vec<Target> {
    let mut made: Vec<Target> = Vec::new();
    for target in steps.iter().flat_map(Step::makes) {
        let counts = matches!(
            target.resource.singular,
            "persistentvolume" | "persistentvolumeclaim" | "pod"
        );
        if counts && !made.contains(&target) {
            made.push(target);
        }
    }
    made
}
