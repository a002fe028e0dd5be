//! Strategic merge patch: a merge patch that merges keyed lists item by item and knows the
//! directives `$patch`, `$retainKeys` and `$deleteFromPrimitiveList/…`. `$setElementOrder/…` is ignored:
//! the items of the patch come in the order in which it has them.

use serde_json::{Map, Value};

use super::lists::{self, ListKind};
use crate::{meta, resource::Resource};

/// Applies `patch` to `object`.
pub(super) fn merge(r: &'static Resource, object: &mut Value, patch: &Value) {
    if let Some(patch) = patch.as_object() {
        merge_object(r, "", meta::object_mut(object), patch);
    }
}

fn merge_object(
    r: &'static Resource,
    name: &str,
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => target.clear(),
        Some("delete") => return target.clear(),
        _ => {}
    }
    if let Some(keep) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| keep.iter().any(|k| k == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Some(gone)) =
                (target.get_mut(field), value.as_array())
            {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(fields) if fields.get("$patch").is_some_and(|p| p == "delete") => {
                target.remove(key);
            }
            Value::Object(fields) => {
                let child = target.entry(key).or_insert(Value::Null);
                merge_object(r, key, meta::object_mut(child), fields);
            }
            Value::Array(items) => {
                let child = target.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                let kind = lists::kind(r, name, key);
                let before = child.as_array().cloned().unwrap_or_default();
                merge_list(r, kind, child, items);
                if let Value::Array(merged) = child
                    && kind != ListKind::Atomic
                {
                    reorder(kind, merged, &before, items);
                }
            }
            plain => {
                target.insert(key.clone(), plain.clone());
            }
        }
    }
}

fn merge_list(r: &'static Resource, kind: ListKind, target: &mut Value, patch: &[Value]) {
    let Value::Array(items) = target else {
        *target = Value::Array(patch.to_vec());
        return;
    };
    match kind {
        ListKind::Atomic => *items = patch.to_vec(),
        ListKind::Set => {
            for item in patch {
                if !items.contains(item) {
                    items.push(item.clone());
                }
            }
        }
        ListKind::Keyed(key) => {
            if patch.iter().any(|item| item["$patch"] == "replace") {
                items.clear();
            }
            for item in patch {
                merge_item(r, key, items, item);
            }
        }
    }
}

fn merge_item(r: &'static Resource, key: &'static str, items: &mut Vec<Value>, item: &Value) {
    let Some(fields) = item.as_object() else {
        return;
    };
    if fields.get("$patch").is_some_and(|p| p == "replace") && !fields.contains_key(key) {
        return;
    }
    let found = lists::position(items, key, item);
    if fields.get("$patch").is_some_and(|p| p == "delete") {
        if let Some(found) = found {
            items.remove(found);
        }
        return;
    }
    let at = found.unwrap_or_else(|| {
        items.push(Value::Object(Map::new()));
        items.len() - 1
    });
    merge_object(r, "", meta::object_mut(&mut items[at]), fields);
}

/// Items named in `order` come in that order. Between them stand the others, each before the first
/// of those that it was before earlier on.
fn reorder(kind: ListKind, items: &mut Vec<Value>, before: &[Value], order: &[Value]) {
    let place = |list: &[Value], item: &Value| match kind {
        ListKind::Keyed(key) => lists::position(list, key, item),
        ListKind::Set | ListKind::Atomic => list.iter().position(|o| o == item),
    };
    let (mut named, others): (Vec<_>, Vec<_>) =
        items.drain(..).partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let mut others = others.into_iter().peekable();
    for item in named {
        let earlier = place(before, &item);
        let precedes = |other: &Value| place(before, other) < earlier;
        while let Some(other) = others.next_if(|other| precedes(other)) {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others);
}
