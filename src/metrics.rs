//! The metrics: those of the Go provisioner under its names, labels and types, and ours.
//!
//! The handles and their registry are one struct, not globals. Gauges of current state are reset and set from a whole
//! snapshot, so that a series ends with its object. No scrape sees them empty, since it runs on the same thread.
//! `docs/metrics.md` describes each metric; a test compares the two.

use std::time::Duration;

use prometheus::{
    Counter, CounterVec, DEFAULT_BUCKETS, Gauge, GaugeVec, HistogramVec, IntCounter, IntGauge,
    IntGaugeVec, Registry, register_counter_vec_with_registry as CounterVec,
    register_counter_with_registry as Counter, register_gauge_vec_with_registry as GaugeVec,
    register_gauge_with_registry as Gauge, register_histogram_vec_with_registry as HistogramVec,
    register_int_counter_with_registry as IntCounter,
    register_int_gauge_vec_with_registry as IntGaugeVec,
    register_int_gauge_with_registry as IntGauge,
};

use crate::process_metrics::ProcessMetrics;

/// The `type` label of a cleanup by this process.
pub const BY_PROCESS: &str = "process";
/// The `type` label of a cleanup by a Job.
pub const BY_JOB: &str = "job";
/// The buckets of cleanups after the default ones, in seconds: to wipe a large disk takes hours.
const LONG_BUCKETS: [f64; 8] = [30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0];

/// Declares the handles, and registers each with its labels, name and help. The macro that registers a type is imported
/// under the name of the type.
macro_rules! metrics {
    ($($field:ident: $type:ident($($argument:expr),*) = $name:literal, $help:literal;)*) => {
        /// All handles.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "each has its help text")]
        pub struct Metrics {
            pub registry: Registry,
            /// Held while series are reset and set, so that no scrape misses them.
            pub scrape: parking_lot::Mutex<()>,
            $(pub $field: $type,)*
        }

        impl Metrics {
            fn register(registry: Registry) -> prometheus::Result<Self> {
                Ok(Self {
                    $($field: $type!($name, $help, $($argument,)* registry)?,)*
                    registry,
                    scrape: parking_lot::Mutex::default(),
                })
            }
        }
    };
}
pub(crate) use metrics;

metrics! {
    capacity_bytes: GaugeVec(&["mode"]) = "local_volume_provisioner_persistentvolume_capacity_bytes",
        "Total bytes of all volumes that were seen, over all classes of a volume mode.";
    discovery_total: CounterVec(&["mode"]) = "local_volume_provisioner_persistentvolume_discovery_total",
        "PersistentVolumes created.";
    discovery_duration: HistogramVec(&["mode"]) =
        "local_volume_provisioner_persistentvolume_discovery_duration_seconds",
        "Time from the start of a pass to the creation of a PersistentVolume.";
    delete_total: CounterVec(&["mode", "type"]) = "local_volume_provisioner_persistentvolume_delete_total",
        "PersistentVolumes whose volume was cleaned and that were released.";
    delete_failed_total: CounterVec(&["mode", "type"]) =
        "local_volume_provisioner_persistentvolume_delete_failed_total",
        "Cleanups that failed, and PersistentVolumes whose cleanup or release was refused.";
    delete_duration: HistogramVec(
        &["mode", "type", "capacity", "cleanup_command"], [&DEFAULT_BUCKETS[..], &LONG_BUCKETS].concat()) =
        "local_volume_provisioner_persistentvolume_delete_duration_seconds",
        "Time from the start of a cleanup to the release of the PersistentVolume.";
    requests_total: CounterVec(&["method"]) = "local_volume_provisioner_apiserver_requests_total",
        "Requests to create or delete PersistentVolumes.";
    requests_failed_total: CounterVec(&["method"]) = "local_volume_provisioner_apiserver_requests_failed_total",
        "Requests to create or delete PersistentVolumes that failed.";
    requests_duration: HistogramVec(&["method"]) = "local_volume_provisioner_apiserver_requests_duration_seconds",
        "Duration of requests to create or delete PersistentVolumes.";
    proctable_running: IntGauge() = "local_volume_provisioner_proctable_running",
        "Running cleanups.";
    proctable_succeeded: IntGauge() = "local_volume_provisioner_proctable_succeeded",
        "Finished cleanups whose PersistentVolume has not gone yet.";
    proctable_failed: IntGauge() = "local_volume_provisioner_proctable_failed",
        "Cleanups that failed and will be tried again.";
    ready: IntGauge() = "local_volume_provisioner_ready",
        "1 if every class was read and every eligible volume has a PersistentVolume, else 0, as /ready says.";
    volumes: IntGaugeVec(&["class", "state"]) = "local_volume_provisioner_volumes",
        "Volumes, by class and state.";
    skipped_entries: IntGaugeVec(&["class", "reason"]) = "local_volume_provisioner_skipped_entries",
        "Entries of the discovery directories that are not offered, by class and reason.";
    disks_to_approve: IntGaugeVec(&["class"]) = "local_volume_provisioner_disks_to_approve",
        "Blank disks that wait until an operator approves that a class takes them in, by class.";
    unhealthy: IntGaugeVec(&["pv", "path", "reason"]) = "local_volume_provisioner_unhealthy_persistentvolume",
        "1 for each problem of a PersistentVolume.";
    cleanup_waiting: IntGauge() = "local_volume_provisioner_cleanup_waiting",
        "Cleanups that wait for a slot, or until the volume is no longer in use.";
    cleanup_waiting_seconds: GaugeVec(&["pv", "path", "reason"]) = "local_volume_provisioner_cleanup_waiting_seconds",
        "How long a cleanup has waited without a break.";
    cleanup_stalled_seconds: GaugeVec(&["pv", "path"]) = "local_volume_provisioner_cleanup_stalled_seconds",
        "How long a running cleanup has made no progress, in steps of 30 s; 0 while it does, and always for an external command.";
    cleanup_failed_attempts: IntGaugeVec(&["pv", "path"]) = "local_volume_provisioner_cleanup_failed_attempts",
        "How often in a row the cleanup of a PersistentVolume has failed; no series for one that has not.";
    cleanup_progress: GaugeVec(&["pv"]) = "local_volume_provisioner_cleanup_progress_ratio",
        "Part of the bytes that are wiped, while a device is cleaned by one of our own methods.";
    cleanup_bytes_total: Counter() = "local_volume_provisioner_cleanup_bytes_total",
        "Bytes wiped on devices, counted every second, also those of cleanups that fail.";
    cleanup_data_left_total: CounterVec(&["class"]) = "local_volume_provisioner_cleanup_data_left_total",
        "Raw devices that were reset without a discard, so that the next tenant can read what the last one wrote.";
    loop_duration: HistogramVec(&[]) = "local_volume_provisioner_loop_duration_seconds",
        "Duration of one pass of the main loop.";
    loop_last_success: Gauge() = "local_volume_provisioner_loop_last_success_timestamp_seconds",
        "When the last pass of the main loop ended.";
    config_last_reload_successful: IntGauge() = "local_volume_provisioner_config_last_reload_successful",
        "1 if the configuration that was read last is in force, 0 if it is invalid.";
    config_last_reload_timestamp: Gauge() = "local_volume_provisioner_config_last_reload_timestamp_seconds",
        "When the configuration that is in force was read.";
    watch_restarts_total: CounterVec(&["resource"]) = "local_volume_provisioner_watch_restarts_total",
        "Watches that broke and were started again.";
    missing_permission: IntGaugeVec(&["resource", "verb"]) = "local_volume_provisioner_missing_permission",
        "1 for each permission that the API server has just denied, 0 once it is granted.";
    protection: IntGaugeVec(&["feature"]) = "local_volume_provisioner_protection",
        "1 for each protection of volumes that is on, 0 if the pod does not give what it requires.";
    events_failed_total: IntCounter() = "local_volume_provisioner_events_failed_total",
        "Events that could not be written.";
    build_info: IntGaugeVec(&["version", "revision"]) = "local_volume_provisioner_build_info",
        "1; the program's version is in the labels.";
}

impl Metrics {
    /// Creates and registers all metrics.
    ///
    /// # Errors
    /// When two metrics have the same name.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        registry.register(Box::new(ProcessMetrics))?;
        let metrics = Self::register(registry)?;
        metrics.begin_at_zero();
        let revision = option_env!("LVP_REVISION").unwrap_or("unknown");
        let version = [env!("CARGO_PKG_VERSION"), revision];
        metrics.build_info.with_label_values(&version).set(1);
        Ok(metrics)
    }

    /// Creates the series of counters: Prometheus sees no increase in a counter that starts at 1.
    fn begin_at_zero(&self) {
        for mode in ["Filesystem", "Block"] {
            for by in [BY_PROCESS, BY_JOB] {
                self.delete_total.with_label_values(&[mode, by]);
                self.delete_failed_total.with_label_values(&[mode, by]);
            }
        }
        for method in ["create", "delete"] {
            for counter in [&self.requests_total, &self.requests_failed_total] {
                counter.with_label_values(&[method]);
            }
        }
    }

    /// Sets which permissions are missing: resource, verb, and whether it is missing.
    pub fn set_missing(
        &self,
        seen: impl IntoIterator<Item = ((&'static str, &'static str), Option<String>)>,
    ) {
        for ((resource, verb), why) in seen {
            let gauge = self.missing_permission.with_label_values(&[resource, verb]);
            gauge.set(why.is_some().into());
        }
    }

    /// Counts a request that creates or deletes a PV.
    pub fn request(&self, method: &str, took: Duration, failed: bool) {
        let labels = [method];
        self.requests_total.with_label_values(&labels).inc();
        let durations = self.requests_duration.with_label_values(&labels);
        durations.observe(took.as_secs_f64());
        if failed {
            self.requests_failed_total.with_label_values(&labels).inc();
        }
    }
}

/// The `capacity` label of the deletion histogram: steps of 500 GiB, rounded up.
pub fn capacity_step(bytes: u64) -> String {
    const STEP: u64 = 500 << 30;
    format!("{}G", bytes.div_ceil(STEP) * 500)
}

#[cfg(test)]
mod tests;
