//! The schema of the values: closed, complete, and what the README's table is made of.

use std::fmt::Write;
use std::fs;

use serde_json::{Value, json};

use crate::helm::{Helm, chart_dir, values_file};

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
            let described =
                property.get("description").or_else(|| resolve(root, property).get("description"));
            let description = described.and_then(Value::as_str).unwrap_or_default();
            found.push(Key { path: path.clone(), description });
            keys(root, property, &format!("{path}."), found);
        }
    }
    for choice in node["anyOf"].as_array().into_iter().flatten() {
        keys(root, choice, prefix, found);
    }
    if let Some(items) = node.get("items") {
        keys(root, items, &format!("{}[].", prefix.trim_end_matches('.')), found);
    }
}

fn resolve<'a>(root: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str().and_then(|link| link.strip_prefix('#')) {
        Some(pointer) => root.pointer(pointer).unwrap(),
        None => node,
    }
}

fn all_keys(schema: &Value) -> Vec<Key<'_>> {
    let mut found = Vec::new();
    keys(schema, schema, "", &mut found);
    found
}

#[test]
fn every_key_is_described() {
    let schema = schema();
    for key in all_keys(&schema) {
        let inner = ["rbac.extraRules[].", "selector[].match"];
        let of_kubernetes = inner.iter().any(|inner| key.path.contains(inner));
        assert!(of_kubernetes || key.description.ends_with('.'), "{} is not described", key.path);
    }
}

/// Every map is closed, or said to be free: `additionalProperties` with the type of its values, or
/// a part of Kubernetes' own API that has no properties here.
#[test]
fn maps_are_closed() {
    fn look(path: &str, node: &Value) {
        if let Some(map) = node.as_object() {
            // `global` also has the keys of other charts.
            let is_free = path.ends_with("/properties") || path == "/properties/global";
            if map.contains_key("properties") && !is_free {
                assert_eq!(map.get("additionalProperties"), Some(&Value::Bool(false)), "{path}");
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
    let helm = or_skip!(Helm::find());
    let class = "classes[0].name=a,classes[0].hostDir=/a";
    let schema = schema();
    let top = schema["properties"].as_object().unwrap().keys();
    let misspelt: Vec<String> = top.map(|key| format!("{key}s=1")).collect();
    let inner = [
        "rbac.creates=1",
        "serviceAccount.names=1",
        "serviceMonitor.intervall=1",
        "operatorRole.created=1",
        "nodeIsolation.enable=1",
        "networkPolicy.metricsForm=1",
        "uninstall.enable=1",
        "test.enable=1",
        "prometheusRule.rules=1",
        "dashboard.enable=1",
        "nodeCleanup.replica=1",
        "resources.limit=1",
        "classes[0].hostDirs=1",
        "classes[0].reclaimPolicy=1",
        "classes[0].storageClass.reclaimpolicy=1",
        "classes[0].selector[0].matchExpression=1",
        "classes[0].devices.matches=1",
    ];
    let sets: Vec<_> = misspelt.iter().map(String::as_str).chain(inner).collect();
    let said = helm.refusal(&[&[class], &sets[..]].concat());
    for set in sets {
        let path = set.trim_end_matches("=1").replace(['.', '['], "/");
        let path = format!("/{}", path.replace(']', ""));
        let (place, key) = path.rsplit_once('/').unwrap();
        let (place, key) = (format!("at '{place}': additional properties"), format!("'{key}'"));
        let mut lines = said.lines();
        assert!(lines.any(|line| line.contains(&place) && line.contains(&key)), "{set}: {said}");
    }
}

#[test]
fn values_of_the_wrong_kind_are_refused_by_name() {
    let helm = or_skip!(Helm::find());
    let class = |key: &str, value: Value| {
        let mut class = json!({ "name": "a", "hostDir": "/a" });
        class[key] = value;
        class
    };
    let said = helm.refusal_of(&json!({
        "privileged": "maybe",
        "useJobForCleaning": "maybe",
        "maxConcurrentCleanups": 0,
        "minResyncPeriod": 5,
        "imagePullPolicy": "Sometimes",
        "metricsPort": 0,
        "dnsPolicy": "none",
        "minReadySeconds": -1,
        "uninstall": { "ttlSecondsAfterFinished": 0 },
        "global": { "imageRegistry": 1 },
        "nodeCleanup": { "requestsPerSecond": 0 },
        "classes": [
            class("hostDir", "".into()),
            class("volumeMode", "block".into()),
            class("name", "".into()),
            class("cleanMethod", "erase".into()),
            class("binding", "Disk".into()),
            class("devices", json!({ "match": "/dev/disk/by-id/*" })),
            class("devices", json!({ "match": [] })),
            class("devices", json!({ "match": [1], "approve": "Maybe", "rotational": "often" })),
            class("devices", json!({ "minSize": 5, "exclude": [""] })),
            class("devices", json!({ "match": ["a"], "filesystem": "btrfs", "mountOptions": "noatime" })),
            class("devices", json!({ "match": ["a"], "filesystem": "xfs", "mountOptions": [1] })),
        ],
    }));
    for place in [
        "/privileged",
        "/useJobForCleaning",
        "/maxConcurrentCleanups",
        "/minResyncPeriod",
        "/imagePullPolicy",
        "/metricsPort",
        "/dnsPolicy",
        "/minReadySeconds",
        "/uninstall/ttlSecondsAfterFinished",
        "/global/imageRegistry",
        "/nodeCleanup/requestsPerSecond",
        "/classes/0/hostDir",
        "/classes/1/volumeMode",
        "/classes/2/name",
        "/classes/3/cleanMethod",
        "/classes/4/binding",
        "/classes/5/devices/match",
        "/classes/6/devices/match",
        "/classes/7/devices/match/0",
        "/classes/7/devices/approve",
        "/classes/7/devices/rotational",
        "/classes/8/devices",
        "/classes/8/devices/minSize",
        "/classes/8/devices/exclude/0",
        "/classes/9/devices/filesystem",
        "/classes/9/devices/mountOptions",
        "/classes/10/devices/mountOptions/0",
    ] {
        assert!(said.contains(&format!("'{place}'")), "{place}: {said}");
    }
}

/// The error would be the expression: `_formats.tpl` has a sentence instead.
#[test]
fn schema_has_no_regular_expression() {
    let schema = read("values.schema.json");
    assert!(!schema.contains("\"pattern\""));
    assert!(!schema.contains("\"patternProperties\""));
}

/// A chart that has this one as a dependency passes `global` on, whatever is in it, and often has
/// `enabled` as the condition.
#[test]
fn values_of_a_parent_chart_are_let_through() {
    let helm = or_skip!(Helm::find());
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
/// environment, as `scripts/render` runs it, this test writes it again.
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
        assert!(readme == expected, "the table is out of date: run scripts/render");
    }
}

/// The headings of `values.yaml`, each with the keys at the top level below it.
fn sections(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut sections = vec![("Names", Vec::new())];
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            sections.push((heading, Vec::new()));
        } else if line.starts_with(|first: char| first.is_ascii_lowercase()) {
            let (key, _) = line.split_once(':').unwrap();
            sections.last_mut().unwrap().1.push(key);
        }
    }
    sections
}

/// One table for each section of `values.yaml`, in its order. The last one also has the keys without a default.
fn table() -> String {
    let schema = schema();
    let text = read("values.yaml");
    let defaults = values(&text);
    let keys = all_keys(&schema);
    let mut sections = sections(&text);
    let go_chart = fs::read_to_string(values_file("everything.yaml")).unwrap();
    let go_chart = values(&go_chart);
    let has_default = |key: &str| defaults.get(key).is_some();
    let top = schema["properties"].as_object().unwrap().keys();
    let without = top.map(String::as_str).filter(|key| !has_default(key));
    sections.last_mut().unwrap().1.extend(without);
    let mut tables = String::new();
    for (heading, names) in sections {
        writeln!(tables, "\n### {heading}\n").unwrap();
        let mut section = Vec::new();
        for name in names {
            let inner = [".", "[]"].map(|mark| format!("{name}{mark}"));
            let belongs = |path: &str| path == name || inner.iter().any(|it| path.starts_with(it));
            section.extend(keys.iter().filter(|key| belongs(&key.path)));
        }
        tables += &rows(&defaults, &go_chart, &section);
    }
    tables + "\n"
}

/// Whether values have a key of the schema, in any element of its lists.
fn has_key(values: &Value, path: &str) -> bool {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    match values.get(first.trim_end_matches("[]")) {
        None => false,
        Some(_) if rest.is_empty() => true,
        Some(Value::Array(items)) => items.iter().any(|item| has_key(item, rest)),
        Some(value) => has_key(value, rest),
    }
}

fn rows(defaults: &Value, go_chart: &Value, keys: &[&Key<'_>]) -> String {
    let mut table = String::from("| key | default | |\n|---|---|---|\n");
    for key in keys {
        let depth = key.path.matches(['.', '[']).count();
        let inner =
            ["tolerations[", "rbac.extraRules[", "imagePullSecrets[", "resources.", "selector["];
        if depth > 3 || inner.iter().any(|inner| key.path.contains(inner)) {
            continue;
        }
        let pointer = format!("/{}", key.path.replace('.', "/"));
        let default = match defaults.pointer(&pointer) {
            Some(Value::Object(map)) if !map.is_empty() => String::new(),
            Some(Value::String(text)) if text.is_empty() => "`\"\"`".into(),
            Some(Value::String(text)) => format!("`{text}`"),
            Some(value) => format!("`{value}`"),
            None => String::new(),
        };
        let description = key.description.replace('|', "\\|");
        let mark = if has_key(go_chart, &key.path) { " \\*" } else { "" };
        let path = &key.path;
        writeln!(table, "| `{path}`{mark} | {default} | {description} |").unwrap();
    }
    table
}
