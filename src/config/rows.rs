//! A configuration as rows of text, for people: what is in force, key by key.

use super::{Class, Cleaner, Config, duration};

/// A key and its value; empty where there is none.
pub type Row = (&'static str, String);

impl Config {
    /// Every key but `storageClassMap`, with its value in force.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        // Every field by name: a new one cannot be forgotten here.
        let Config {
            classes: _,
            node_labels_for_pv,
            labels_for_pv,
            use_job_for_cleaning,
            job_tolerations,
            min_resync_period,
            use_node_name_only,
            set_pv_owner_ref,
            remove_node_not_ready_taint,
            provisioner_not_ready_node_taint_key,
            pause_cleaning,
            protect_released_data,
            max_concurrent_cleanups,
        } = self;
        let labels: Vec<String> = labels_for_pv
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        vec![
            ("nodeLabelsForPV", node_labels_for_pv.join(", ")),
            ("labelsForPV", labels.join(", ")),
            ("useJobForCleaning", use_job_for_cleaning.to_string()),
            ("jobTolerations", each_as_json(job_tolerations)),
            ("minResyncPeriod", duration::format(*min_resync_period)),
            ("useNodeNameOnly", use_node_name_only.to_string()),
            ("setPVOwnerRef", set_pv_owner_ref.to_string()),
            (
                "removeNodeNotReadyTaint",
                remove_node_not_ready_taint.to_string(),
            ),
            (
                "provisionerNotReadyNodeTaintKey",
                provisioner_not_ready_node_taint_key.clone(),
            ),
            ("pauseCleaning", pause_cleaning.to_string()),
            ("protectReleasedData", protect_released_data.to_string()),
            ("maxConcurrentCleanups", max_concurrent_cleanups.to_string()),
        ]
    }
}

impl Class {
    /// Every key, with its value in force.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let Class {
            name: _,
            host_dir,
            mount_dir,
            cleaner,
            cleanup_timeout,
            trim,
            volume_mode,
            access_mode,
            fs_type,
            name_pattern,
            selector,
            weak_identity,
            discovery_policy,
            missing_volume_policy,
        } = self;
        let cleaner = match cleaner {
            Cleaner::Method(method) => ("cleanMethod", method.to_string()),
            Cleaner::Command(words) => ("blockCleanerCommand", format!("{words:?}")),
        };
        let cleanup_timeout = cleanup_timeout.map(duration::format);
        vec![
            ("hostDir", host_dir.to_string()),
            ("mountDir", mount_dir.to_string()),
            cleaner,
            ("cleanupTimeout", cleanup_timeout.unwrap_or_default()),
            ("trim", trim.to_string()),
            ("volumeMode", volume_mode.to_string()),
            ("accessMode", access_mode.to_string()),
            ("fsType", fs_type.clone().unwrap_or_default()),
            ("namePattern", name_pattern.to_string()),
            ("selector", each_as_json(selector)),
            ("weakIdentity", weak_identity.to_string()),
            ("discoveryPolicy", discovery_policy.to_string()),
            ("missingVolumePolicy", missing_volume_policy.to_string()),
        ]
    }
}

/// Objects of the API, in its own notation.
fn each_as_json<T: serde::Serialize>(items: &[T]) -> String {
    let texts: Vec<String> = items
        .iter()
        .map(|item| serde_json::to_string(item).unwrap_or_else(|error| error.to_string()))
        .collect();
    texts.join(", ")
}
