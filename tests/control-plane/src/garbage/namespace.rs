//! A namespace that is deleted takes everything in it along, and goes when it is empty.

use serde_json::json;

use super::{Target, delete};
use crate::{
    controllers::{Context, SyncError, object::Key},
    meta,
    resource::{self, NAMESPACES},
    store::Part,
};

/// Deletes what is left in a namespace that is terminating or gone.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let namespace = cx.read(&NAMESPACES, key)?;
    if namespace.as_ref().is_some_and(|namespace| !meta::is_terminating(namespace)) {
        cx.garbage.emptying.remove(&key.name);
        return Ok(());
    }
    for &resource in resource::all().iter().filter(|r| r.namespaced) {
        for stored in cx.store.shelf(resource, Some(&key.name)).items {
            let object = stored.value();
            if !meta::is_terminating(&object) {
                delete(cx, &Target { resource, key: Key::of(&object) }, &object)?;
            }
        }
    }
    // Otherwise the end of the last object brings the namespace back here.
    if cx.store.is_empty(&key.name) {
        cx.garbage.emptying.remove(&key.name);
        if let Some(namespace) = namespace {
            let mut new = (*namespace).clone();
            new["spec"]["finalizers"] = json!([]);
            cx.update(&NAMESPACES, new, Part::Main)?;
        }
    }
    Ok(())
}
