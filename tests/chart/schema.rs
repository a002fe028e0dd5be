//! The schema of the values: closed, complete, and what the README's table is made of.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

use serde_json::Value;

use crate::helm::{Helm, chart_dir, values_file};

/// The keys of the other provisioner's chart, v2.9.
const COMPAT: [&str; 58] = [
    "nameOverride",
    "fullnameOverride",
    "rbac.create",
    "rbac.extraRules",
    "serviceAccount.create",
    "serviceAccount.name",
    "setPVOwnerRef",
    "useJobForCleaning",
    "useNodeNameOnly",
    "minResyncPeriod",
    "removeNodeNotReadyTaint",
    "provisionerNotReadyNodeTaintKey",
    "labelsForPV",
    "nodeLabels",
    "tolerations",
    "additionalVolumes",
    "additionalVolumeMounts",
    "initContainers",
    "mountDevVolume",
    "classes",
    "classes[].name",
    "classes[].hostDir",
    "classes[].mountDir",
    "classes[].volumeMode",
    "classes[].accessMode",
    "classes[].fsType",
    "classes[].namePattern",
    "classes[].selector",
    "classes[].blockCleanerCommand",
    "classes[].allowedTopologies",
    "classes[].storageClass",
    "classes[].storageClass.reclaimPolicy",
    "classes[].storageClass.isDefaultClass",
    "classes[].storageClass.provisioner",
    "podAnnotations",
    "podLabels",
    "image",
    "imagePullPolicy",
    "imagePullSecrets",
    "priorityClassName",
    "nodeSelector",
    "affinity",
    "resources",
    "updateStrategy",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "hostPID",
    "kubeConfigEnv",
    "securityContext",
    "privileged",
    "serviceMonitor.enabled",
    "serviceMonitor.interval",
    "serviceMonitor.namespace",
    "serviceMonitor.additionalLabels",
    "serviceMonitor.relabelings",
    "enableWindows",
    "nodeSelectorWindows",
];

/// Some of those that it lacks.
const OURS: [&str; 13] = [
    "protectReleasedData",
    "maxConcurrentCleanups",
    "pauseCleaning",
    "kubeletDir",
    "classes[].cleanMethod",
    "classes[].cleanupTimeout",
    "classes[].trim",
    "nodeIsolation.enabled",
    "networkPolicy.enabled",
    "prometheusRule.enabled",
    "dashboard.enabled",
    "nodeCleanup.enabled",
    "uninstall.enabled",
];

fn read(name: &str) -> String {
    fs::read_to_string(chart_dir().join(name)).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(&read("values.schema.json")).unwrap()
}

fn values(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// A key with the way to it, as in `classes[].name`.
struct Key<'a> {
    path: String,
    description: &'a str,
}

/// All keys of the schema, with those of closed maps and of lists of such below them.
fn keys<'a>(root: &'a Value, node: &'a Value, prefix: &str, found: &mut Vec<Key<'a>>) {
    let node = resolve(root, node);
    if let Some(properties) = node["properties"].as_object() {
        for (name, property) in properties {
            let path = format!("{prefix}{name}");
            let described = property
                .get("description")
                .or_else(|| resolve(root, property).get("description"));
            let description = described.and_then(Value::as_str).unwrap_or_default();
            found.push(Key {
                path: path.clone(),
                description,
            });
            keys(root, property, &format!("{path}."), found);
        }
    }
    for choice in node["anyOf"].as_array().into_iter().flatten() {
        keys(root, choice, prefix, found);
    }
    if let Some(items) = node.get("items") {
        keys(
            root,
            items,
            &format!("{}[].", prefix.trim_end_matches('.')),
            found,
        );
    }
}

fn resolve<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"]
        .as_str()
        .and_then(|link| link.strip_prefix('#'))
    {
        Some(pointer) => root.pointer(pointer).unwrap(),
        None => node,
    }
}

fn all_keys(schema: &Value) -> Vec<Key<'_>> {
    let mut found = Vec::new();
    keys(schema, schema, "", &mut found);
    found
}

/// Whether a values file says something about a key.
fn given(values: &Value, path: &str) -> bool {
    let mut at = vec![values];
    for part in path.split('.') {
        let (name, list) = match part.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (part, false),
        };
        at = at.into_iter().filter_map(|value| value.get(name)).collect();
        if list {
            at = at
                .into_iter()
                .filter_map(Value::as_array)
                .flatten()
                .collect();
        }
    }
    !at.is_empty()
}

#[test]
fn the_compat_test_has_every_key() {
    let schema = schema();
    let known: BTreeSet<String> = all_keys(&schema).into_iter().map(|key| key.path).collect();
    let everything = values(&fs::read_to_string(values_file("everything.yaml")).unwrap());
    for key in COMPAT.iter().chain(&OURS) {
        assert!(known.contains(*key), "the schema does not know {key}");
    }
    for key in COMPAT {
        assert!(
            given(&everything, key),
            "everything.yaml does not have {key}"
        );
    }
}

#[test]
fn every_key_is_described() {
    let schema = schema();
    for key in all_keys(&schema) {
        let inner = ["rbac.extraRules[].", "selector[].match"];
        let of_kubernetes = inner.iter().any(|inner| key.path.contains(inner));
        assert!(
            of_kubernetes || key.description.ends_with('.'),
            "{} is not described",
            key.path
        );
    }
}

/// Every map is closed, or said to be free: `additionalProperties` with the type of its values, or
/// a part of Kubernetes' own API that has no properties here.
#[test]
fn maps_are_closed() {
    fn look(path: &str, node: &Value) {
        if let Some(map) = node.as_object() {
            if map.contains_key("properties") && !path.ends_with("/properties") {
                assert_eq!(
                    map.get("additionalProperties"),
                    Some(&Value::Bool(false)),
                    "{path}"
                );
            }
            for (key, value) in map {
                look(&format!("{path}/{key}"), value);
            }
        } else if let Some(list) = node.as_array() {
            for value in list {
                look(path, value);
            }
        }
    }
    look("", &schema());
}

/// A key of each level, with a letter too many.
#[test]
fn a_misspelt_key_is_refused_by_name() {
    let Some(helm) = Helm::find() else { return };
    let class = "classes[0].name=a,classes[0].hostDir=/a";
    let schema = schema();
    let top = schema["properties"].as_object().unwrap().keys();
    let mut misspelt: Vec<(String, String)> = top
        .map(|key| (format!("{key}s"), format!("{key}s=1")))
        .collect();
    for inner in [
        "rbac.creates",
        "serviceAccount.names",
        "serviceMonitor.intervall",
        "nodeIsolation.enable",
        "networkPolicy.metricsForm",
        "uninstall.enable",
        "prometheusRule.rules",
        "dashboard.enable",
        "nodeCleanup.replica",
        "resources.limit",
    ] {
        let key = inner.rsplit('.').next().unwrap();
        misspelt.push((key.into(), format!("{inner}=1")));
    }
    for inner in [
        "hostDirs",
        "reclaimPolicy",
        "storageClass.reclaimpolicy",
        "selector[0].matchExpression",
    ] {
        let key = inner.rsplit('.').next().unwrap();
        misspelt.push((key.into(), format!("{class},classes[0].{inner}=1")));
    }
    for (key, set) in misspelt {
        let said = helm.refusal(&[&set]);
        assert!(
            said.contains(&format!("'{key}'")) && said.contains("not allowed"),
            "{set}: {said}"
        );
    }
}

#[test]
fn values_of_the_wrong_kind_are_refused_by_name() {
    let Some(helm) = Helm::find() else { return };
    for (set, place) in [
        ("privileged=maybe", "/privileged"),
        ("useJobForCleaning=maybe", "/useJobForCleaning"),
        (
            "classes[0].name=a,classes[0].hostDir=mnt",
            "/classes/0/hostDir",
        ),
        (
            "classes[0].name=a,classes[0].hostDir=/a,classes[0].volumeMode=block",
            "/classes/0/volumeMode",
        ),
        (
            "classes[0].name=A_b,classes[0].hostDir=/a",
            "/classes/0/name",
        ),
        ("maxConcurrentCleanups=0", "/maxConcurrentCleanups"),
        ("minResyncPeriod=5", "/minResyncPeriod"),
        (
            "classes[0].name=a,classes[0].hostDir=/a,classes[0].cleanMethod=erase",
            "/classes/0/cleanMethod",
        ),
        (
            "classes[0].name=a,classes[0].hostDir=/a,classes[0].cleanupTimeout=2d",
            "/classes/0/cleanupTimeout",
        ),
        (
            "classes[0].name=a,classes[0].hostDir=/a,classes[0].cleanupTimeout=0h0.0s",
            "/classes/0/cleanupTimeout",
        ),
        // The Job ends after five minutes.
        ("uninstall.timeout=5m", "/uninstall/timeout"),
        ("uninstall.timeout=121s", "/uninstall/timeout"),
        ("nodeCleanup.replicas=-1", "/nodeCleanup/replicas"),
        (
            "nodeCleanup.pvcDeletionDelay=soon",
            "/nodeCleanup/pvcDeletionDelay",
        ),
        (
            "nodeCleanup.stalePvDiscoveryInterval=0s",
            "/nodeCleanup/stalePvDiscoveryInterval",
        ),
        (
            "nodeCleanup.requestsPerSecond=0",
            "/nodeCleanup/requestsPerSecond",
        ),
        ("imagePullPolicy=Sometimes", "/imagePullPolicy"),
    ] {
        let said = helm.refusal(&[set]);
        assert!(said.contains(&format!("'{place}'")), "{set}: {said}");
    }
}

/// A chart that has this one as a dependency passes `global` on, whatever is in it, and often has
/// `enabled` as the condition.
#[test]
fn values_of_a_parent_chart_are_let_through() {
    let Some(helm) = Helm::find() else { return };
    helm.render(&["global.imageRegistry=example.com", "enabled=true"]);
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart = values(&read("Chart.yaml"));
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
}

/// The table in the chart's README is made of the schema and the values. With `WRITE=1` in the
/// environment, as `scripts/render` runs it, this test writes it anew.
#[test]
fn the_readme_has_all_values() {
    const BEGIN: &str = "<!-- values -->\n";
    const END: &str = "<!-- end of values -->";
    let readme = read("README.md");
    let (head, rest) = readme.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let expected = format!("{head}{BEGIN}{}{END}{tail}", table());
    if std::env::var_os("WRITE").is_some() {
        fs::write(chart_dir().join("README.md"), expected).unwrap();
    } else {
        assert!(
            readme == expected,
            "the table is out of date: run scripts/render"
        );
    }
}

fn table() -> String {
    let schema = schema();
    let defaults = values(&read("values.yaml"));
    let mut table = String::from("| key | default | |\n|---|---|---|\n");
    for key in all_keys(&schema) {
        let depth = key.path.matches(['.', '[']).count();
        let inner = [
            "tolerations[",
            "rbac.extraRules[",
            "imagePullSecrets[",
            "resources.",
            "selector[",
        ];
        if depth > 3 || inner.iter().any(|inner| key.path.contains(inner)) {
            continue;
        }
        let pointer = format!("/{}", key.path.replace('.', "/"));
        let default = match defaults.pointer(&pointer) {
            Some(Value::Object(map)) if !map.is_empty() => String::new(),
            Some(Value::Array(list)) if list.iter().any(Value::is_object) => "one class".into(),
            Some(Value::String(text)) if text.is_empty() => "`\"\"`".into(),
            Some(Value::String(text)) => format!("`{text}`"),
            Some(value) => format!("`{value}`"),
            None => String::new(),
        };
        let description = key.description.replace('|', "\\|");
        writeln!(table, "| `{}` | {default} | {description} |", key.path).unwrap();
    }
    table
}
