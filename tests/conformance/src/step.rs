//! What happens in a scenario, step by step.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use crate::{short, target::Target};

#[derive(Debug, Clone)]
pub struct Step {
    /// Its place in the scenario, from 1; with a letter in a list of steps.
    pub number: String,
    /// The step as it is written: `pv a`, `delete pvc c`.
    pub title: String,
    pub action: Action,
}

/// What a step does. Paths and bodies are templates: `${a}` is the name of `a` in the cluster.
#[derive(Debug, Clone)]
pub enum Action {
    Request(Box<Request>),
    Wait(Target, Condition),
    /// Keeping a value of an object for later steps: variable, object, JSON pointer.
    Keep(String, Target, String),
    Settle,
    Resync,
    /// Several steps with nothing in between; only then things settle.
    Together(Vec<Step>),
}

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub content_type: String,
    pub headers: Vec<(String, String)>,
    /// The body; null sends none.
    pub body: Value,
    /// What has to be answered; any success if it does not say.
    pub answers: Option<Expected>,
    /// What of the answer is recorded: JSON pointers in which `*` is every element, `header:NAME`, or
    /// `length:` and a pointer.
    pub shows: Vec<String>,
    /// What of the answer is kept for later steps: variable, JSON pointer.
    pub keeps: BTreeMap<String, String>,
    pub makes: Option<Target>,
    /// Whether controllers may react.
    pub concerns_controllers: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    pub code: u16,
    /// The `reason` of a Status, if given.
    pub reason: Option<String>,
    pub message: String,
}

#[derive(Debug, Clone)]
pub enum Condition {
    Gone,
    Phase(String),
    /// It has these fields, others do not matter.
    Has(Value),
}

const SHAPE: &str =
    "a step has one action, and beside it `answers`, `shows`, `keeps`, `as`, `headers` at most";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

impl Step {
    pub fn parse(number: String, step: Value) -> anyhow::Result<Self> {
        let (title, action) = match step {
            Value::Array(steps) => {
                let letters = ('a'..).map(|letter| format!("{number}{letter}"));
                let steps = letters.zip(steps).map(|(n, step)| Self::parse(n, step));
                let steps = steps.collect::<Result<_, _>>()?;
                ("at once".to_owned(), Action::Together(steps))
            }
            step => Self::single(step)?,
        };
        Ok(Self { number, title, action })
    }

    fn single(step: Value) -> anyhow::Result<(String, Action)> {
        match step {
            Value::String(title) => Ok((title.clone(), action(&title, Value::Null, Map::new())?)),
            Value::Object(mut fields) => {
                let mut options = Map::new();
                for key in ["answers", "shows", "keeps", "as", "headers"] {
                    if let Some(value) = fields.remove(key) {
                        options.insert(key.into(), value);
                    }
                }
                let mut fields = fields.into_iter();
                match (fields.next(), fields.next()) {
                    (Some((title, body)), None) => {
                        let action = action(&title, body, options)?;
                        Ok((title, action))
                    }
                    _ => bail!(SHAPE),
                }
            }
            _ => bail!(SHAPE),
        }
    }

    pub fn makes(&self) -> Vec<Target> {
        match &self.action {
            Action::Request(request) => request.makes.iter().cloned().collect(),
            Action::Together(steps) => steps.iter().flat_map(Self::makes).collect(),
            _ => Vec::new(),
        }
    }
}

fn action(title: &str, body: Value, options: Map<String, Value>) -> anyhow::Result<Action> {
    let words: Vec<&str> = title.split_whitespace().collect();
    Ok(match words.as_slice() {
        ["settle"] => Action::Settle,
        ["resync"] => Action::Resync,
        ["wait", kind, name] => Action::Wait(Target::parse(kind, name)?, condition(body)?),
        ["keep", variable] => keep((*variable).to_owned(), &body)?,
        [method @ ("GET" | "POST" | "PUT" | "PATCH" | "DELETE"), path] => {
            let content_type = if *method == "PATCH" { MERGE } else { JSON };
            let request = Request::new(method, (*path).to_owned(), content_type);
            request.with(body, options)?
        }
        [kind, name] if short::is_short(kind) => {
            let target = Target::parse(kind, name)?;
            let object = short::expand(kind, &target, body)?;
            Request::create(target).with(object, options)?
        }
        [verb, kind, name] => {
            let target = Target::parse(kind, name)?;
            verb_on(verb, target, body, options)?
        }
        _ => bail!("there is no action {title:?}; see README.md beside the scenarios"),
    })
}

fn verb_on(
    verb: &str,
    target: Target,
    body: Value,
    options: Map<String, Value>,
) -> anyhow::Result<Action> {
    let path = target.path();
    let status = format!("{path}/status");
    let patch_as = |word: &str| Request::new("PATCH", path.clone(), content_type(word));
    let (mut request, body) = match verb {
        "create" => {
            let object = short::named(&target, body);
            return Request::create(target).with(object, options);
        }
        "put" => (Request::new("PUT", path, JSON), short::named(&target, body)),
        "delete" => (Request::new("DELETE", path, JSON), body),
        "patch" => (patch_as("merge"), body),
        "strategic" => (patch_as("strategic"), body),
        "json-patch" => (patch_as("json"), body),
        "patch-status" if body.get("status").is_none() => {
            bail!("patch-status takes an object with `status`; all else in it is ignored");
        }
        "patch-status" => (Request::new("PATCH", status, MERGE), body),
        "get" => (Request::new("GET", path, JSON), body),
        _ => bail!("there is no action {verb:?}; see README.md beside the scenarios"),
    };
    request.concerns_controllers = verb != "get" && concerns_controllers(&target);
    request.with(body, options)
}

fn concerns_controllers(target: &Target) -> bool {
    !matches!(
        target.resource.singular,
        "configmap" | "secret" | "event" | "lease" | "service" | "serviceaccount"
    )
}

impl Request {
    fn new(method: &str, path: String, content_type: &str) -> Self {
        Self {
            method: method.to_owned(),
            path,
            content_type: content_type.to_owned(),
            headers: Vec::new(),
            body: Value::Null,
            answers: None,
            shows: Vec::new(),
            keeps: BTreeMap::new(),
            makes: None,
            concerns_controllers: method != "GET",
        }
    }

    fn create(target: Target) -> Self {
        let mut request = Self::new("POST", target.collection(), JSON);
        request.concerns_controllers = concerns_controllers(&target);
        request.makes = Some(target);
        request
    }

    /// With its body and with what stands beside the action.
    fn with(mut self, body: Value, options: Map<String, Value>) -> anyhow::Result<Action> {
        self.body = body;
        for (key, value) in options {
            match key.as_str() {
                "answers" => self.answers = Some(expected(&value)?),
                "shows" => {
                    self.shows =
                        serde_json::from_value(value).context("shows: a list of strings")?;
                }
                "keeps" => {
                    self.keeps =
                        serde_json::from_value(value).context("keeps: a map of strings")?;
                }
                "as" => {
                    let kind = value.as_str();
                    let kind = kind.context("as: a content type, or merge, strategic or json")?;
                    content_type(kind).clone_into(&mut self.content_type);
                }
                _ => {
                    let headers: BTreeMap<_, _> =
                        serde_json::from_value(value).context("headers: a map of strings")?;
                    self.headers = headers.into_iter().collect();
                }
            }
        }
        // An object that is not made is none to be looked at.
        if self.answers.as_ref().is_some_and(|answer| answer.code >= 300) {
            self.makes = None;
        }
        Ok(Action::Request(Box::new(self)))
    }
}

fn content_type(word: &str) -> &str {
    match word {
        "merge" => MERGE,
        "strategic" => "application/strategic-merge-patch+json",
        "json" => "application/json-patch+json",
        other => other,
    }
}

/// `409`, `409 Conflict` or `409 Conflict some words of the message`.
fn expected(value: &Value) -> anyhow::Result<Expected> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let (code, rest) = text.split_once(' ').unwrap_or((&text, ""));
    let (reason, message) = rest.split_once(' ').unwrap_or((rest, ""));
    Ok(Expected {
        code: code.parse().with_context(|| {
            format!(
                "answers: {value}: it is a code, and after it a reason and a part of the message"
            )
        })?,
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
        message: message.to_owned(),
    })
}

fn condition(body: Value) -> anyhow::Result<Condition> {
    match body {
        Value::String(word) if word == "gone" => Ok(Condition::Gone),
        Value::String(phase) => Ok(Condition::Phase(phase)),
        Value::Object(_) => Ok(Condition::Has(body)),
        _ => bail!("wait takes a phase, `gone`, or fields of the object"),
    }
}

fn keep(variable: String, body: &Value) -> anyhow::Result<Action> {
    let words: Vec<&str> = body.as_str().unwrap_or_default().split(' ').collect();
    match words.as_slice() {
        [kind, name, pointer] if pointer.starts_with('/') => {
            let target = Target::parse(kind, name)?;
            Ok(Action::Keep(variable, target, (*pointer).to_owned()))
        }
        _ => bail!("keep takes an object and a JSON pointer: `keep uid: pvc c /metadata/uid`"),
    }
}
