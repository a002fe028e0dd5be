//! Manifests, such as the output of `helm template`, and the configurations in them.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::run::UsageError;
use super::status::show::text;
use super::storage_class;
use crate::config::{CLASSES, Config, Files, documents, from_files, read_dir};

/// A configuration, and what the provisioner or the API server would refuse in it.
#[derive(Debug)]
pub(super) struct Configuration {
    /// The ConfigMap; empty for a directory or plain keys.
    pub name: String,
    /// The valid part; `None` if the provisioner would not start.
    pub config: Option<Config>,
    pub faults: Vec<String>,
    pub warnings: Vec<String>,
}

/// The objects of a text, and the configurations in them.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    pub objects: Vec<Value>,
    pub configurations: Vec<Configuration>,
}

impl Manifests {
    /// Reads a directory with one file per key.
    pub fn of_directory(dir: &Path) -> Result<Self> {
        let files = read_dir(dir).map_err(UsageError)?;
        Ok(Self {
            objects: Vec::new(),
            configurations: vec![Configuration::new(String::new(), &files, Vec::new())],
        })
    }

    /// Reads a file; `-` is the standard input.
    pub fn read(path: &Path) -> Result<Self> {
        let text = if path != Path::new("-") {
            fs::read_to_string(path)
        } else if io::stdin().is_terminal() {
            bail!(UsageError("name the manifests by -f FILE, or pipe them in".into()));
        } else {
            io::read_to_string(io::stdin())
        };
        let name = path.display();
        let text = text.map_err(|error| UsageError(format!("{name}: {error}")))?;
        Self::parse(&text).with_context(|| name.to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut manifests = Self::default();
        for document in documents(text).map_err(|error| anyhow::anyhow!("invalid YAML: {error}"))? {
            manifests.add(document);
        }
        if manifests.configurations.is_empty() {
            bail!(UsageError(format!(
                "there is no ConfigMap with the key {CLASSES}: pass the one of the provisioner, or the output of helm template (values of the chart must be rendered)"
            )));
        }
        let classes: Vec<_> = manifests.of_kind::<StorageClass>("StorageClass").collect();
        for it in &mut manifests.configurations {
            let configured = it.config.as_ref().map(|it| &it.classes);
            let is_of =
                |it: &&StorageClass| configured.is_some_and(|of| of.contains_key(&it.name_any()));
            let of_classes = classes.iter().filter(is_of).flat_map(storage_class::faults);
            it.faults.extend(of_classes.map(|fault| fault.join("; ")));
        }
        Ok(manifests)
    }

    /// Adds an object, or the objects of a list.
    fn add(&mut self, mut document: Value) {
        if let Some(Value::Array(items)) = document.get_mut("items") {
            for item in std::mem::take(items) {
                self.add(item);
            }
            return;
        }
        let kind = text(&document, "kind");
        let data = if kind.is_empty() { &document } else { &document["data"] };
        let is_classes = |key: &String| key.eq_ignore_ascii_case(CLASSES);
        if let Some(data) = data.as_object().filter(|it| it.keys().any(is_classes)) {
            let names = ["namespace", "name"].map(|key| text(&document["metadata"], key));
            let name = format!("{kind} {}", names.join("/").trim_start_matches('/'));
            self.configurations.push(Configuration::of(name.trim(), data));
        }
        if !kind.is_empty() {
            self.objects.push(document);
        }
    }

    /// The objects of a kind. An invalid one is left to the API server.
    pub fn of_kind<K: DeserializeOwned>(&self, kind: &str) -> impl Iterator<Item = K> {
        let objects = self.objects.iter().filter(move |it| text(it, "kind") == kind);
        objects.filter_map(|it| serde_json::from_value(it.clone()).ok())
    }
}

impl Configuration {
    /// Reads the data of a ConfigMap. Plain keys have no name, and their values need not be texts.
    fn of(name: &str, data: &Map<String, Value>) -> Self {
        let (mut files, mut faults) = (Files::new(), Vec::new());
        for (key, value) in data {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if name.is_empty() || value.is_string() || value.is_null() {
                files.insert(key.clone(), text);
            } else {
                faults.push(format!(
                    "the key {key} is {text:.40}, but the API server accepts texts only; quote it, or write it below {key}: |"
                ));
            }
        }
        Self::new(name.to_owned(), &files, faults)
    }

    fn new(name: String, files: &Files, mut faults: Vec<String>) -> Self {
        let loaded = from_files(files).map_err(|fault| faults.push(fault)).ok();
        let (config, warnings) = loaded.map_or_else(Default::default, |it| {
            faults.extend(it.faults.iter().map(ToString::to_string));
            (Some(it.config), it.warnings)
        });
        Self { name, config, faults, warnings }
    }
}

#[cfg(test)]
mod tests;
