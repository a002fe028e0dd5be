//! What a step is about: `pv a`, `pvc other/c`, `configmap settings`.

use std::fmt;

use anyhow::{Context, bail};
use control_plane::resource::{self, Resource};

#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub resource: &'static Resource,
    /// The word for the type, as the scenario has it.
    word: String,
    /// The other namespace that it lives in, if it is not the scenario's own.
    namespace: Option<String>,
    pub name: String,
}

impl Target {
    pub fn parse(kind: &str, name: &str) -> anyhow::Result<Self> {
        let word = if kind == "class" { "sc" } else { kind };
        let known = resource::all().iter().find(|r| {
            r.singular == word
                || r.plural == word
                || r.short_names.contains(&word)
                || r.qualified() == word
        });
        let resource = *known.with_context(|| format!("there is no kind {kind:?}"))?;
        let (namespace, name) = match name.split_once('/') {
            None => (None, name),
            Some((namespace, name)) if resource.namespaced => (Some(namespace.to_owned()), name),
            Some(_) => bail!("{kind} {name:?}: objects of this kind have no namespace"),
        };
        Ok(Self { resource, word: kind.to_owned(), namespace, name: name.to_owned() })
    }

    /// Its name in the cluster, as a template: names that are the whole cluster's get a prefix.
    pub fn real_name(&self) -> String {
        if self.resource.namespaced { self.name.clone() } else { format!("${{{}}}", self.name) }
    }

    /// The path of its collection, as a template.
    pub fn collection(&self) -> String {
        let Resource { group, version, plural, .. } = self.resource;
        let root = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        match (&self.namespace, self.resource.namespaced) {
            (_, false) => format!("{root}/{plural}"),
            (None, true) => format!("{root}/namespaces/${{ns}}/{plural}"),
            (Some(other), true) => format!("{root}/namespaces/${{{other}}}/{plural}"),
        }
    }

    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.real_name())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            None => write!(f, "{} {}", self.word, self.name),
            Some(namespace) => write!(f, "{} {namespace}/{}", self.word, self.name),
        }
    }
}
