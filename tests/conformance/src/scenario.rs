//! The scenarios as they are written: `scenarios/TOPIC.yaml`, explained in `README.md`.

use std::{collections::HashSet, fs, path::Path};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{short, step::Step, target::Target};

#[derive(Debug, Clone)]
pub struct Scenario {
    pub name: String,
    /// What is true, and why it matters, in one sentence.
    pub says: String,
    pub steps: Vec<Step>,
    pub record: Vec<Target>,
    /// The objects whose events while they waited count, too.
    pub waiting: Vec<Target>,
    /// Whether it takes the whole cluster, and so runs when nothing else does.
    pub alone: bool,
    /// Whether a resync of the controllers has to pass before the outcome counts.
    pub resync: bool,
    pub messages: bool,
}

impl Scenario {
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
    Missing,
}

const fn yes() -> bool {
    true
}

/// Reads all files of a directory, in the order of their names.
pub fn load(directory: &Path) -> anyhow::Result<Vec<Scenario>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        files.push(entry?.path());
    }
    files.sort();
    let mut scenarios = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        scenarios.extend(parse(&path, &text)?);
    }
    Ok(scenarios)
}

pub fn parse(path: &Path, text: &str) -> anyhow::Result<Vec<Scenario>> {
    let topic = path.file_stem().unwrap_or_default().to_string_lossy();
    // `n` is the name of a node, and no falsehood.
    let options = serde_saphyr::options! { strict_booleans: true };
    let items: Vec<Value> = serde_saphyr::from_str_with_options(text, options)
        .with_context(|| path.display().to_string())?;
    let mut names = HashSet::new();
    let mut scenarios = Vec::new();
    for item in items {
        let called = item["name"].as_str().unwrap_or("without a name").to_owned();
        let scenario =
            one(&topic, item).with_context(|| format!("{}: scenario {called}", path.display()))?;
        if !names.insert(scenario.name.clone()) {
            bail!("{}: two scenarios are called {called}", path.display());
        }
        scenarios.push(scenario);
    }
    Ok(scenarios)
}

fn one(topic: &str, item: Value) -> anyhow::Result<Scenario> {
    let raw: Raw = serde_json::from_value(item)?;
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
        Some(entries) => targets(&entries)?,
        None => made(&steps),
    };
    let waiting = targets(&raw.waiting)?;
    if let Some(target) = waiting.iter().find(|target| !record.contains(target)) {
        bail!("waiting: {target} is not recorded");
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
    })
}

fn parse_step(number: usize, step: Value) -> anyhow::Result<Step> {
    let text = step.to_string();
    Step::parse(number.to_string(), step).with_context(|| format!("step {number}, {text}"))
}

fn targets(entries: &[String]) -> anyhow::Result<Vec<Target>> {
    let targets = entries.iter().map(|entry| {
        let (kind, name) = entry.split_once(' ').unwrap_or((entry, ""));
        Target::parse(kind, name)
    });
    targets.collect()
}

/// By default: the volumes, claims and pods that the steps make.
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
