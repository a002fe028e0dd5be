//! Label and field selectors of `list`, `watch` and `deletecollection`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    resource::{self, Resource},
    status::Status,
};

/// Both kinds of selectors; an empty one matches everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selectors {
    labels: Vec<LabelRequirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    test: LabelTest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelTest {
    In(BTreeSet<String>),
    /// Also true where the label is missing.
    NotIn(BTreeSet<String>),
    Exists,
    Missing,
}

#[derive(Debug, Clone)]
struct FieldRequirement {
    /// JSON pointer.
    pointer: String,
    wanted: String,
    equal: bool,
}

impl Selectors {
    /// Parses the query parameters `labelSelector` and `fieldSelector`.
    pub(crate) fn parse(r: &'static Resource, labels: &str, fields: &str) -> Result<Self, Status> {
        let labels = terms(labels)
            .map(|term| label_requirement(term).ok_or(term))
            .collect::<Result<_, _>>()
            .map_err(|term| {
                Status::bad_request(format!("unable to parse requirement: {term:?}"))
            })?;
        let fields = terms(fields).map(|t| field_requirement(r, t)).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|l| l.matches(&object["metadata"]["labels"][&l.key]))
            && self.fields.iter().all(|f| f.matches(object))
    }

    /// Also only the object of this name.
    pub(crate) fn and_name(mut self, name: &str) -> Self {
        self.fields.push(FieldRequirement {
            pointer: "/metadata/name".into(),
            wanted: name.to_owned(),
            equal: true,
        });
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

impl LabelRequirement {
    fn matches(&self, label: &Value) -> bool {
        let value = label.as_str();
        match &self.test {
            LabelTest::In(values) => value.is_some_and(|v| values.contains(v)),
            LabelTest::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            LabelTest::Exists => value.is_some(),
            LabelTest::Missing => value.is_none(),
        }
    }
}

impl FieldRequirement {
    fn matches(&self, object: &Value) -> bool {
        let equal = match object.pointer(&self.pointer).unwrap_or(&Value::Null) {
            Value::String(text) => *text == self.wanted,
            Value::Null => matches!(self.wanted.as_str(), "" | "false" | "0"),
            other => self.wanted.parse::<Value>().is_ok_and(|wanted| wanted == *other),
        };
        equal == self.equal
    }
}

/// The parts between commas that are not in parentheses.
fn terms(selector: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    selector
        .split(move |c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        })
        .map(str::trim)
        .filter(|term| !term.is_empty())
}

fn label_requirement(term: &str) -> Option<LabelRequirement> {
    let in_key = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let (key, rest, missing) = if let Some(key) = term.strip_prefix('!') {
        (key.trim(), "", true)
    } else {
        let end = term.find(|c| !in_key(c)).unwrap_or(term.len());
        (&term[..end], term[end..].trim(), false)
    };
    if crate::validation::qualified_name(key).is_some() {
        return None;
    }
    let one = |value: &str| {
        let value = value.trim();
        value.chars().all(in_key).then(|| BTreeSet::from([value.to_owned()]))
    };
    let set = |values: &str| {
        let inner = values.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|v| v.trim().to_owned()).collect())
    };
    let test = if missing {
        LabelTest::Missing
    } else if rest.is_empty() {
        LabelTest::Exists
    } else if let Some(value) = rest.strip_prefix("!=") {
        LabelTest::NotIn(one(value)?)
    } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        LabelTest::In(one(value)?)
    } else if let Some(values) = rest.strip_prefix("notin") {
        LabelTest::NotIn(set(values)?)
    } else {
        LabelTest::In(set(rest.strip_prefix("in")?)?)
    };
    Some(LabelRequirement { key: key.to_owned(), test })
}

fn field_requirement(r: &'static Resource, term: &str) -> Result<FieldRequirement, Status> {
    let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (path, value, true)
    } else {
        return Err(Status::bad_request(format!(
            "invalid field selector: {term:?}; can't understand it"
        )));
    };
    let supported = matches!(path, "metadata.name" | "metadata.namespace")
        || fields_of(r).iter().any(|field| {
            path == *field || field.strip_suffix('*').is_some_and(|stem| path.starts_with(stem))
        });
    if !supported {
        let known = if fields_of(r).is_empty() {
            format!(
                "{path:?} is not a known field selector: only \"metadata.name\", \
                 \"metadata.namespace\""
            )
        } else {
            format!("field label not supported: {path}")
        };
        return Err(Status::bad_request(known));
    }
    let path = if r == &resource::EVENTS && path == "source" { "source.component" } else { path };
    Ok(FieldRequirement {
        pointer: format!("/{}", path.replace('.', "/")),
        wanted: value.to_owned(),
        equal,
    })
}

/// The fields beyond name and namespace that a type can be selected by.
fn fields_of(r: &'static Resource) -> &'static [&'static str] {
    if r == &resource::PODS {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]
    } else if r == &resource::EVENTS {
        &["involvedObject.*", "reason", "reportingComponent", "source", "type"]
    } else if r == &resource::NODES {
        &["spec.unschedulable"]
    } else if r == &resource::NAMESPACES {
        &["status.phase"]
    } else if r == &resource::JOBS {
        &["status.successful"]
    } else if r == &resource::SECRETS {
        &["type"]
    } else {
        &[]
    }
}
