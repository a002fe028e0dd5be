//! The garbage collector: objects go when all their owners are gone, and an owner that is deleted
//! in the foreground waits for them.

pub(crate) mod namespace;
#[cfg(test)]
mod tests;

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    controllers::{
        Change, Context, SyncError,
        object::{Key, has_finalizer, items, remove_finalizer, text},
    },
    deletion::{FOREGROUND, ORPHAN},
    meta,
    resource::{self, NAMESPACES, Resource},
    store::{DeleteOptions, EventKind, Part},
};

/// An object of any type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    resource: &'static Resource,
    key: Key,
}

impl Ord for Target {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |target: &Self| (target.resource.group, target.resource.plural);
        order(self).cmp(&order(other)).then_with(|| self.key.cmp(&other.key))
    }
}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Who owns what.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    /// Dependents by the UID of an owner.
    dependents: HashMap<Arc<str>, BTreeSet<Target>>,
    /// Namespaces that wait for their content to go.
    emptying: HashSet<Arc<str>>,
}

impl Garbage {
    fn dependents(&self, owner: &Value) -> impl Iterator<Item = &Target> {
        self.dependents.get(meta::uid(owner)).into_iter().flatten()
    }
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    items(&object["metadata"]["ownerReferences"])
}

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    let Change { kind, resource, object, previous } = change;
    let (gone, target) = (*kind == EventKind::Deleted, Target { resource, key: Key::of(object) });
    if *resource == &NAMESPACES && (gone || meta::is_terminating(object)) {
        cx.garbage.emptying.insert(Arc::clone(&target.key.name));
        cx.queues.namespaces.add(target.key.clone());
    }
    if gone {
        // Its last object's end, not each one's, brings the namespace back.
        let namespace = &target.key.namespace;
        if cx.garbage.emptying.contains(namespace) && cx.store.is_empty(namespace) {
            cx.queues.namespaces.add(Key::cluster(&target.key.namespace));
        }
        for dependent in cx.garbage.dependents(object) {
            cx.queues.garbage.add(dependent.clone());
        }
    }
    let propagates = has_finalizer(object, FOREGROUND) || has_finalizer(object, ORPHAN);
    if !gone && propagates && meta::is_terminating(object) {
        cx.queues.garbage.add(target.clone());
    }
    let before = previous.as_ref().map(|previous| &previous["metadata"]["ownerReferences"]);
    let after = &object["metadata"]["ownerReferences"];
    if !gone && before.unwrap_or(&Value::Null) == after {
        return;
    }
    for owner in before.into_iter().flat_map(items) {
        // It may be the one that its owner waits for.
        if let Some(owner) = resolve(owner, &target.key.namespace) {
            cx.queues.garbage.add(owner);
        }
        let uid = text(&owner["uid"]);
        if let Some(dependents) = cx.garbage.dependents.get_mut(uid) {
            dependents.remove(&target);
            if dependents.is_empty() {
                cx.garbage.dependents.remove(uid);
            }
        }
    }
    if !gone {
        for owner in items(after) {
            let uid = text(&owner["uid"]).into();
            cx.garbage.dependents.entry(uid).or_default().insert(target.clone());
        }
        if items(after).next().is_some() {
            cx.queues.garbage.add(target);
        }
    }
}

/// Does what is due for one object, as an owner that waits and as a dependent.
pub(crate) fn sync(cx: &mut Context, target: &Target) -> Result<(), SyncError> {
    let Some(object) = cx.read(target.resource, &target.key)? else {
        return Ok(());
    };
    if meta::is_terminating(&object) && has_finalizer(&object, FOREGROUND) {
        return delete_dependents(cx, target, &object);
    }
    if meta::is_terminating(&object) && has_finalizer(&object, ORPHAN) {
        return orphan_dependents(cx, target, &object);
    }
    let mut present = Vec::new();
    for owner in owners(&object) {
        if exists(cx, owner, &target.key)? {
            present.push(owner.clone());
        }
    }
    let all = owners(&object).count();
    if all == present.len() {
        return Ok(());
    }
    if present.is_empty() {
        return delete(cx, target, &object);
    }
    let mut new = (*object).clone();
    new["metadata"]["ownerReferences"] = present.into();
    cx.update(target.resource, new, Part::Main)?;
    Ok(())
}

/// Whether an owner exists. One that cannot be looked up counts as there: what is not understood
/// is not deleted.
fn exists(cx: &Context, owner: &Value, dependent: &Key) -> Result<bool, SyncError> {
    let Some(Target { resource, key }) = resolve(owner, &dependent.namespace) else {
        return Ok(true);
    };
    let found = cx.read(resource, &key)?;
    Ok(found.is_some_and(|found| meta::uid(&found) == text(&owner["uid"])))
}

/// The object that an owner reference means; a namespaced owner is in the dependent's namespace.
fn resolve(owner: &Value, namespace: &str) -> Option<Target> {
    let resource = resource::all()
        .iter()
        .find(|r| owner["kind"] == r.kind && owner["apiVersion"] == r.api_version())?;
    let name = text(&owner["name"]);
    match (resource.namespaced, namespace) {
        (false, _) => Some(Target { resource, key: Key::cluster(name) }),
        (true, "") => None,
        (true, namespace) => Some(Target { resource, key: Key::new(namespace, name) }),
    }
}

fn delete_dependents(cx: &mut Context, owner: &Target, object: &Value) -> Result<(), SyncError> {
    let mut blocked = false;
    for dependent in cx.garbage.dependents(object).cloned().collect::<Vec<_>>() {
        let Some(found) = cx.read(dependent.resource, &dependent.key)? else {
            continue;
        };
        let Some(reference) = owners(&found).find(|owner| owner["uid"] == meta::uid(object)) else {
            continue;
        };
        let blocks = reference["blockOwnerDeletion"] == true;
        if !meta::is_terminating(&found) {
            delete(cx, &dependent, &found)?;
        }
        blocked |= blocks && cx.read(dependent.resource, &dependent.key)?.is_some();
    }
    if blocked { Ok(()) } else { finish(cx, owner, object, FOREGROUND) }
}

fn orphan_dependents(cx: &mut Context, owner: &Target, object: &Value) -> Result<(), SyncError> {
    for dependent in cx.garbage.dependents(object).cloned().collect::<Vec<_>>() {
        let Some(found) = cx.read(dependent.resource, &dependent.key)? else {
            continue;
        };
        let rest: Vec<_> =
            owners(&found).filter(|owner| owner["uid"] != meta::uid(object)).cloned().collect();
        let mut new = (*found).clone();
        new["metadata"]["ownerReferences"] = rest.into();
        cx.update(dependent.resource, new, Part::Main)?;
    }
    finish(cx, owner, object, ORPHAN)
}

fn finish(
    cx: &mut Context,
    owner: &Target,
    object: &Value,
    finalizer: &str,
) -> Result<(), SyncError> {
    let mut new = object.clone();
    remove_finalizer(&mut new, finalizer);
    cx.update(owner.resource, new, Part::Main)?;
    Ok(())
}

/// Deletes exactly this object, and what it owns after it.
fn delete(cx: &Context, target: &Target, object: &Value) -> Result<(), SyncError> {
    let options = DeleteOptions {
        propagation_policy: Some("Background".to_owned()),
        ..DeleteOptions::default()
    };
    cx.delete(target.resource, object, options)
}
