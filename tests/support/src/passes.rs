//! The progress of a provisioner, as its `/status` reports it.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Two whole passes after the first look. The pass that is under way then does not count: it may have looked before.
#[derive(Debug, Default)]
pub struct TwoPasses {
    first: Option<u64>,
}

impl TwoPasses {
    /// The `/status` of this body, once they have ended and the last has seen a PV as new as `newest`.
    pub fn ended(&mut self, body: &str, newest: impl FnOnce() -> u64) -> Option<Value> {
        let status: Value = serde_json::from_str(body).ok()?;
        let number = status["pass"]["number"].as_u64()?;
        let seen: u64 = status["pass"]["resourceVersion"].as_str()?.parse().ok()?;
        status["classes"].as_array()?;
        let enough = number >= *self.first.get_or_insert(number) + 2 && seen >= newest();
        enough.then_some(status)
    }
}

/// The volumes of all classes in a `/status`.
pub fn volumes(status: &Value) -> impl Iterator<Item = &Value> {
    let classes = status["classes"].as_array().into_iter().flatten();
    classes.filter_map(|class| class["volumes"].as_array()).flatten()
}

/// Whether no cleanup runs. One that has only begun has not inspected anything yet.
pub fn is_at_rest(status: &Value) -> bool {
    volumes(status).all(|volume| {
        volume["state"] != "Cleaning" && volume["cleanup"]["waitingFor"] != "for a permit"
    })
}

/// Wakes the provisioner by a file in a discovery directory that is gone before it looks.
pub fn wake(directory: &Path) {
    let entry = directory.join(".wake-up");
    let _ = fs::write(&entry, "").and_then(|()| fs::remove_file(&entry));
}
