//! Server-side apply: who owns which field (`metadata.managedFields`), conflicts between owners,
//! and the removal of fields that their manager no longer mentions.
//!
//! Ownership is kept only for objects that somebody has applied; until then there is nobody to
//! conflict with, and the objects stay small. The first apply to an older object credits what is
//! there to `before-first-apply`, as a real API server does for objects without managed fields.

use serde_json::{Map, Value, json};

use super::lists::{self, ListKind};
use crate::{meta, resource::Resource, status::Status};

/// Fields that nobody owns.
const UNOWNED: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "generateName",
];

/// Who applies, and whether conflicts are overridden.
#[derive(Debug, Clone)]
pub(crate) struct Manager {
    pub(crate) name: String,
    /// `status`, or empty.
    pub(crate) subresource: String,
    pub(crate) force: bool,
}

/// The object that `config` makes where there is none yet.
pub(crate) fn create(r: &'static Resource, config: &Value, manager: &Manager) -> Value {
    let mut object = config.clone();
    let owned = vec![entry(r, manager, "Apply", &fields(r, "", config))];
    meta::metadata_mut(&mut object).insert("managedFields".into(), json!(owned));
    object
}

/// The new state of `live` after `manager` applied `config`.
pub(crate) fn apply(
    r: &'static Resource,
    live: &Value,
    config: &Value,
    manager: &Manager,
) -> Result<Value, Status> {
    let mut owned = owners(live);
    if owned.is_empty() {
        let earlier = Manager {
            name: "before-first-apply".into(),
            subresource: String::new(),
            force: false,
        };
        owned.push(entry(r, &earlier, "Update", &fields(r, "", live)));
    }
    let mine = |e: &Value| is_of(e, manager, "Apply");
    let before = owned.iter().position(mine).map(|at| owned.remove(at));

    let wanted = fields(r, "", config);
    let mut new = live.clone();
    super::strategic::merge_applied(r, &mut new, config);
    let changed = differing(&wanted, live, &new);
    let conflicts: Vec<_> = owned
        .iter()
        .filter(|e| !is_empty(&common(&changed, &e["fieldsV1"])))
        .map(|e| conflict(e, &common(&changed, &e["fieldsV1"])))
        .collect();
    if !conflicts.is_empty() && !manager.force {
        return Err(refused(&conflicts));
    }
    for other in &mut owned {
        other["fieldsV1"] = without(&other["fieldsV1"], &changed);
    }
    if let Some(before) = &before {
        let mut dropped = without(&before["fieldsV1"], &wanted);
        for other in &owned {
            dropped = without(&dropped, &other["fieldsV1"]);
        }
        remove(&mut new, &dropped);
    }
    owned.retain(|e| !is_empty(&e["fieldsV1"]));
    // An apply that changes nothing must not even change a timestamp.
    let unchanged = before.filter(|b| b["fieldsV1"] == wanted && is_empty(&changed));
    owned.push(unchanged.unwrap_or_else(|| entry(r, manager, "Apply", &wanted)));
    owned.sort_by_key(|e| {
        let time = e["time"].as_str().map(str::to_owned);
        (e["operation"] != "Apply", time)
    });
    meta::metadata_mut(&mut new).insert("managedFields".into(), json!(owned));
    Ok(new)
}

/// After a write that is no apply: what it changed now belongs to `manager`.
pub(crate) fn take_over(r: &'static Resource, old: &Value, new: &mut Value, manager: &Manager) {
    let mut owned = owners(old);
    if owned.is_empty() {
        meta::metadata_mut(new).remove("managedFields");
        return;
    }
    let (before, after) = (fields(r, "", old), fields(r, "", new));
    let gone = without(&before, &after);
    let changed = differing(&after, old, new);
    for other in &mut owned {
        other["fieldsV1"] = without(&without(&other["fieldsV1"], &gone), &changed);
    }
    if !is_empty(&changed) {
        let mine = |e: &&mut Value| is_of(e, manager, "Update");
        if let Some(entry) = owned.iter_mut().find(mine) {
            unite(&mut entry["fieldsV1"], &changed);
        } else {
            owned.push(entry(r, manager, "Update", &changed));
        }
    }
    owned.retain(|e| !is_empty(&e["fieldsV1"]));
    meta::metadata_mut(new).insert("managedFields".into(), json!(owned));
}

fn owners(object: &Value) -> Vec<Value> {
    object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// Whether an entry is this manager's.
fn is_of(entry: &Value, manager: &Manager, operation: &str) -> bool {
    entry["manager"] == *manager.name
        && entry["operation"] == operation
        && entry["subresource"].as_str().unwrap_or_default() == manager.subresource
}

fn entry(r: &'static Resource, manager: &Manager, operation: &str, fields: &Value) -> Value {
    let mut entry = json!({
        "manager": manager.name,
        "operation": operation,
        "apiVersion": r.api_version(),
        "time": meta::now(),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    });
    if !manager.subresource.is_empty() {
        entry["subresource"] = json!(manager.subresource);
    }
    entry
}

fn conflict(entry: &Value, fields: &Value) -> Value {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    let manager = text("manager");
    let subresource = match text("subresource") {
        "" => String::new(),
        subresource => format!(" with subresource {subresource:?}"),
    };
    let using = match text("operation") {
        "Update" => format!(" using {}", text("apiVersion")),
        _ => String::new(),
    };
    let mut paths = Vec::new();
    leaves(fields, String::new(), &mut paths);
    json!({
        "reason": "FieldManagerConflict",
        "message": format!("conflict with {manager:?}{subresource}{using}"),
        "field": paths.join(", "),
    })
}

fn refused(conflicts: &[Value]) -> Status {
    let list: Vec<_> = conflicts
        .iter()
        .map(|c| {
            let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("message"), text("field"))
        })
        .collect();
    let message = format!(
        "Apply failed with {} conflict{}: {}",
        list.len(),
        if list.len() == 1 { "" } else { "s" },
        list.join("; ")
    );
    let mut status = Status::new(409, "Conflict", message);
    status.details = Some(Box::new(json!({"causes": conflicts})));
    status
}

/// The fields of `value` as a `fieldsV1` tree: `f:` for a field, `k:` for an item of a keyed
/// list, `v:` for an element of a set; a leaf is an empty object.
fn fields(r: &'static Resource, name: &str, value: &Value) -> Value {
    let mut tree = Map::new();
    for (key, child) in value.as_object().into_iter().flatten() {
        let top = name.is_empty() && matches!(key.as_str(), "apiVersion" | "kind");
        if child.is_null() || top || (name == "metadata" && UNOWNED.contains(&key.as_str())) {
            continue;
        }
        let below = match (child, lists::kind(r, name, key)) {
            (Value::Object(_), _) => fields(r, key, child),
            (Value::Array(items), ListKind::Set) => items
                .iter()
                .map(|i| (format!("v:{i}"), json!({})))
                .collect(),
            (Value::Array(items), ListKind::Keyed(by)) => items
                .iter()
                .map(|i| {
                    let mut item = fields(r, "item", i);
                    item["."] = json!({});
                    (format!("k:{}", json!({by: i[by]})), item)
                })
                .collect(),
            _ => json!({}),
        };
        let container = child.is_object() && !is_empty(&below);
        // metadata and spec are groupings; an empty one is nobody's.
        if container || !child.is_object() || !name.is_empty() {
            tree.insert(format!("f:{key}"), below);
        }
    }
    Value::Object(tree)
}

fn is_empty(tree: &Value) -> bool {
    tree.as_object().is_none_or(Map::is_empty)
}

/// What the step of a tree leads to in an object.
fn child<'a>(value: &'a Value, step: &str) -> &'a Value {
    match step.split_at_checked(2) {
        Some(("f:", field)) => &value[field],
        Some(("k:" | "v:", _)) => item_at(value, step).map_or(&Value::Null, |at| &value[at]),
        _ => &Value::Null,
    }
}

fn item_at(list: &Value, step: &str) -> Option<usize> {
    let items = list.as_array()?;
    let wanted: Value = serde_json::from_str(step.get(2..)?).ok()?;
    if step.starts_with("v:") {
        return items.iter().position(|i| *i == wanted);
    }
    let (key, value) = wanted.as_object()?.iter().next()?;
    items.iter().position(|i| i[key] == *value)
}

/// The leaves of `tree` whose values differ between two objects.
fn differing(tree: &Value, old: &Value, new: &Value) -> Value {
    let mut result = Map::new();
    for (step, below) in tree.as_object().into_iter().flatten() {
        if step == "." {
            continue;
        }
        let (before, after) = (child(old, step), child(new, step));
        if is_empty(below) {
            if before != after {
                result.insert(step.clone(), json!({}));
            }
        } else {
            let inner = differing(below, before, after);
            if !is_empty(&inner) {
                result.insert(step.clone(), inner);
            }
        }
    }
    Value::Object(result)
}

fn common(a: &Value, b: &Value) -> Value {
    let mut result = Map::new();
    for (step, below) in a.as_object().into_iter().flatten() {
        let Some(other) = b.get(step) else { continue };
        if is_empty(below) || is_empty(other) {
            result.insert(step.clone(), json!({}));
        } else {
            let inner = common(below, other);
            if !is_empty(&inner) {
                result.insert(step.clone(), inner);
            }
        }
    }
    Value::Object(result)
}

/// `a` minus the leaves of `b`.
fn without(a: &Value, b: &Value) -> Value {
    let mut result = Map::new();
    for (step, below) in a.as_object().into_iter().flatten() {
        match b.get(step) {
            None => {
                result.insert(step.clone(), below.clone());
            }
            Some(other) if !is_empty(below) && !is_empty(other) => {
                let inner = without(below, other);
                if !is_empty(&inner) {
                    result.insert(step.clone(), inner);
                }
            }
            Some(_) => {}
        }
    }
    Value::Object(result)
}

fn unite(into: &mut Value, from: &Value) {
    for (step, below) in from.as_object().into_iter().flatten() {
        let inner = meta::object_mut(into)
            .entry(step)
            .or_insert_with(|| json!({}));
        unite(inner, below);
    }
}

/// Removes the leaves of `tree` from an object; list items go when they are owned as such.
fn remove(object: &mut Value, tree: &Value) {
    for (step, below) in tree.as_object().into_iter().flatten() {
        let whole = is_empty(below) || below.get(".").is_some();
        match step.split_at_checked(2) {
            Some(("f:", field)) => {
                let Some(map) = object.as_object_mut() else {
                    continue;
                };
                if whole {
                    map.remove(field);
                } else if let Some(inner) = map.get_mut(field) {
                    remove(inner, below);
                    let emptied = match inner {
                        Value::Object(fields) => fields.is_empty(),
                        Value::Array(items) => items.is_empty(),
                        _ => false,
                    };
                    if emptied {
                        map.remove(field);
                    }
                }
            }
            Some(("k:" | "v:", _)) => {
                let Some(at) = item_at(object, step) else {
                    continue;
                };
                if whole {
                    if let Some(items) = object.as_array_mut() {
                        items.remove(at);
                    }
                } else {
                    remove(&mut object[at], below);
                }
            }
            _ => {}
        }
    }
}

fn leaves(tree: &Value, path: String, into: &mut Vec<String>) {
    if is_empty(tree) {
        into.push(path);
        return;
    }
    for (step, below) in tree.as_object().into_iter().flatten() {
        let step = match step.split_at_checked(2) {
            Some(("f:", field)) => format!(".{field}"),
            Some(("k:", key)) => format!("[{}]", key_text(key)),
            Some((_, value)) => format!("[={value}]"),
            None => continue,
        };
        leaves(below, format!("{path}{step}"), into);
    }
}

/// `{"type":"Ready"}` as `type="Ready"`.
fn key_text(key: &str) -> String {
    let key: Value = serde_json::from_str(key).unwrap_or_default();
    let parts = key.as_object().into_iter().flatten();
    let parts: Vec<_> = parts
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    parts.join(",")
}
