//! What a DELETE does: the object goes, or it stays as terminating until its finalizers are gone
//! or, for a pod on a node, until its kubelet says that it has stopped.

use serde_json::{Value, json};

use crate::{
    meta,
    resource::{self, Resource},
    status::Status,
    store::DeleteOptions,
};

/// Kept on an owner until its dependents are gone (`propagationPolicy: Foreground`).
pub const FOREGROUND: &str = "foregroundDeletion";
/// Kept on an owner until its dependents have forgotten it (`propagationPolicy: Orphan`).
pub const ORPHAN: &str = "orphan";

/// Seconds that a pod gets to stop by default.
const DEFAULT_GRACE: i64 = 30;

/// What becomes of the object.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It is terminating already and nothing changes.
    Stays,
    /// It is marked as terminating, or its time to stop got shorter.
    Terminates(Value),
    /// It is removed.
    Goes(Value),
}

pub(crate) fn decide(
    r: &'static Resource,
    object: &Value,
    options: &DeleteOptions,
) -> Result<Fate, Status> {
    check_preconditions(r, object, options)?;
    let mut new = object.clone();
    let grace = grace_period(r, object, options);
    let was_terminating = meta::is_terminating(object);
    add_propagation_finalizer(r, &mut new, options)?;

    let metadata = meta::metadata_mut(&mut new);
    let earlier = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    if !was_terminating || earlier.is_some_and(|earlier| grace < earlier) {
        metadata.insert("deletionTimestamp".into(), json!(meta::in_seconds(grace)));
        metadata.insert("deletionGracePeriodSeconds".into(), json!(grace));
    }
    if !was_terminating && r.generation {
        let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
        metadata.insert("generation".into(), json!(generation + 1));
    }
    if r == &resource::NAMESPACES {
        meta::child_mut(&mut new, "status").insert("phase".into(), json!("Terminating"));
    }
    Ok(if is_finished(r, &new) {
        // An object that never was terminating does not look so in its last event either, but for a
        // pod, which has a time to stop, if only none.
        let marked = was_terminating || r == &resource::PODS;
        Fate::Goes(if marked { new } else { object.clone() })
    } else if new == *object {
        Fate::Stays
    } else {
        Fate::Terminates(new)
    })
}

/// Whether nothing holds a terminating object any more.
pub(crate) fn is_finished(r: &'static Resource, object: &Value) -> bool {
    let held_by_namespace_controller = r == &resource::NAMESPACES
        && object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    meta::is_terminating(object)
        && meta::finalizers(object).next().is_none()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !held_by_namespace_controller
}

fn check_preconditions(
    r: &Resource,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let version = object["metadata"]["resourceVersion"].as_str();
    let version = version.unwrap_or_default();
    let [uid, changed] = ["deleted and then recreated", "modified"];
    let checks = [
        ("UID", &options.uid, meta::uid(object), uid),
        ("ResourceVersion", &options.resource_version, version, changed),
    ];
    for (what, wanted, found, happened) in checks {
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record \
                 ({found}). The object might have been {happened}"
            );
            return Err(Status::not_the_one(r, meta::name(object), &why));
        }
    }
    Ok(())
}

/// Only pods stop gracefully, and only those that may be running somewhere.
fn grace_period(r: &'static Resource, object: &Value, options: &DeleteOptions) -> i64 {
    let phase = object["status"]["phase"].as_str().unwrap_or_default();
    let runs = r == &resource::PODS
        && object["spec"]["nodeName"].as_str().is_some_and(|n| !n.is_empty())
        && !matches!(phase, "Succeeded" | "Failed");
    if !runs {
        return 0;
    }
    let wanted = options.grace_period_seconds;
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64();
    wanted.or(own).unwrap_or(DEFAULT_GRACE).max(0)
}

fn add_propagation_finalizer(
    r: &'static Resource,
    object: &mut Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    // Jobs were born before garbage collection, and keep the old default.
    let default = if r == &resource::JOBS { "Orphan" } else { "Background" };
    let (wanted, other) = match options.propagation_policy.as_deref().unwrap_or(default) {
        "Background" => (None, [FOREGROUND, ORPHAN]),
        "Foreground" => (Some(FOREGROUND), [ORPHAN, ORPHAN]),
        "Orphan" => (Some(ORPHAN), [FOREGROUND, FOREGROUND]),
        unknown => {
            let why = format!(
                "propagationPolicy: Unsupported value: {unknown:?}: supported values: \"Foreground\", \
                 \"Background\", \"Orphan\", \"nil\""
            );
            return Err(Status::invalid_options("DeleteOptions", why));
        }
    };
    // What an earlier deletion, or the object's owner, has decided holds unless said otherwise.
    let decided = meta::finalizers(object).any(|f| f == FOREGROUND || f == ORPHAN);
    if options.propagation_policy.is_none() && (decided || meta::is_terminating(object)) {
        return Ok(());
    }
    let mut finalizers: Vec<_> =
        meta::finalizers(object).filter(|f| !other.contains(f)).map(str::to_owned).collect();
    if let Some(wanted) = wanted
        && !finalizers.iter().any(|f| f == wanted)
    {
        finalizers.push(wanted.to_owned());
    }
    let metadata = meta::metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), json!(finalizers));
    }
    Ok(())
}
