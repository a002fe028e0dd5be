//! The conditions in the status of an object.

use serde_json::{Value, json};

use super::object::{items, list_mut, text};
use crate::meta;

/// The condition of this type, if it is true.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"]).find(|c| c["type"] == kind && c["status"] == "True")
}

/// Sets the condition of this type, unless it says the same already. `true` if it changed.
pub(crate) fn set_condition(
    object: &mut Value,
    kind: &str,
    truth: bool,
    reason: &str,
    message: &str,
) -> bool {
    let truth = if truth { "True" } else { "False" };
    let conditions = list_mut(meta::child_mut(object, "status"), "conditions");
    let present = conditions.iter_mut().find(|present| present["type"] == kind);
    let since = match &present {
        Some(same)
            if [&same["status"], &same["reason"], &same["message"]].map(text)
                == [truth, reason, message] =>
        {
            return false;
        }
        Some(other) if other["status"] == truth => other["lastTransitionTime"].clone(),
        _ => meta::now().into(),
    };
    let mut condition = json!({"type": kind, "status": truth, "lastTransitionTime": since});
    for (key, value) in [("reason", reason), ("message", message)] {
        if !value.is_empty() {
            condition[key] = value.into();
        }
    }
    match present {
        Some(present) => *present = condition,
        None => conditions.push(condition),
    }
    true
}
