//! The metrics: those of the Go provisioner under its names, labels and types, and ours.
//!
//! The handles and their registry are one struct, not globals. Gauges of current state are reset and set from a whole
//! snapshot, so that a series ends with its object. No scrape sees them empty, since it runs on the same thread.
//! `docs/metrics.md` describes each metric; a test compares the two.

use std::time::Duration;

use prometheus::{
    Counter, CounterVec, DEFAULT_BUCKETS, Gauge, GaugeVec, HistogramVec, IntCounter, IntGauge,
    IntGaugeVec, Registry, register_counter_vec_with_registry as counter_vec,
    register_counter_with_registry as counter, register_gauge_vec_with_registry as gauge_vec,
    register_gauge_with_registry as gauge, register_histogram_vec_with_registry as histogram_vec,
    register_int_counter_with_registry as int_counter,
    register_int_gauge_vec_with_registry as int_gauge_vec,
    register_int_gauge_with_registry as int_gauge,
};

use crate::process_metrics::ProcessMetrics;

/// The `type` label of a cleanup by this process.
pub const BY_PROCESS: &str = "process";
/// The `type` label of a cleanup by a Job.
pub const BY_JOB: &str = "job";
/// The buckets of cleanups after the default ones, in seconds: to wipe a large disk takes hours.
const LONG_BUCKETS: [f64; 8] = [
    30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0,
];

/// Declares the handles, and registers each with its labels, name and help.
macro_rules! metrics {
    ($($field:ident: $type:ty = $register:ident($($argument:expr),*), $name:literal, $help:literal;)*) => {
        /// All handles.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "each has its help text")]
        pub struct Metrics {
            pub registry: Registry,
            $(pub $field: $type,)*
        }

        impl Metrics {
            fn register(registry: Registry) -> prometheus::Result<Self> {
                Ok(Self {
                    $($field: $register!($name, $help, $($argument,)* registry)?,)*
                    registry,
                })
            }
        }
    };
}
pub(crate) use metrics;

metrics! {
    capacity_bytes: GaugeVec = gauge_vec(&["mode"]),
        "local_volume_provisioner_persistentvolume_capacity_bytes",
        "Total bytes of all volumes that were seen, over all classes of a volume mode.";
    discovery_total: CounterVec = counter_vec(&["mode"]),
        "local_volume_provisioner_persistentvolume_discovery_total",
        "PersistentVolumes created.";
    discovery_duration: HistogramVec = histogram_vec(&["mode"], DEFAULT_BUCKETS.to_vec()),
        "local_volume_provisioner_persistentvolume_discovery_duration_seconds",
        "Time from the start of a pass to the creation of a PersistentVolume.";
    delete_total: CounterVec = counter_vec(&["mode", "type"]),
        "local_volume_provisioner_persistentvolume_delete_total",
        "PersistentVolumes whose volume was cleaned and that were released.";
    delete_failed_total: CounterVec = counter_vec(&["mode", "type"]),
        "local_volume_provisioner_persistentvolume_delete_failed_total",
        "Cleanups that failed, and PersistentVolumes whose cleanup or release was refused.";
    delete_duration: HistogramVec = histogram_vec(
        &["mode", "type", "capacity", "cleanup_command"], [&DEFAULT_BUCKETS[..], &LONG_BUCKETS].concat()),
        "local_volume_provisioner_persistentvolume_delete_duration_seconds",
        "Time from the start of a cleanup to the release of the PersistentVolume.";
    requests_total: CounterVec = counter_vec(&["method"]),
        "local_volume_provisioner_apiserver_requests_total",
        "Requests to create or delete PersistentVolumes.";
    requests_failed_total: CounterVec = counter_vec(&["method"]),
        "local_volume_provisioner_apiserver_requests_failed_total",
        "Requests to create or delete PersistentVolumes that failed.";
    requests_duration: HistogramVec = histogram_vec(&["method"], DEFAULT_BUCKETS.to_vec()),
        "local_volume_provisioner_apiserver_requests_duration_seconds",
        "Duration of requests to create or delete PersistentVolumes.";
    proctable_running: IntGauge = int_gauge(),
        "local_volume_provisioner_proctable_running",
        "Cleanups at work.";
    proctable_succeeded: IntGauge = int_gauge(),
        "local_volume_provisioner_proctable_succeeded",
        "Finished cleanups whose PersistentVolume has not gone yet.";
    proctable_failed: IntGauge = int_gauge(),
        "local_volume_provisioner_proctable_failed",
        "Cleanups that failed and will be tried again.";
    ready: IntGauge = int_gauge(),
        "local_volume_provisioner_ready",
        "1 if every class was read and every eligible volume has a PersistentVolume, else 0, as /ready says.";
    volumes: IntGaugeVec = int_gauge_vec(&["class", "state"]),
        "local_volume_provisioner_volumes",
        "Volumes, by class and state.";
    skipped_entries: IntGaugeVec = int_gauge_vec(&["class", "reason"]),
        "local_volume_provisioner_skipped_entries",
        "Entries of the discovery directories that are not offered, by class and reason.";
    unhealthy: IntGaugeVec = int_gauge_vec(&["pv", "path", "reason"]),
        "local_volume_provisioner_unhealthy_persistentvolume",
        "1 for each problem of a PersistentVolume.";
    cleanup_waiting: IntGauge = int_gauge(),
        "local_volume_provisioner_cleanup_waiting",
        "Cleanups that wait for a slot, or until the volume is no longer in use.";
    cleanup_waiting_seconds: GaugeVec = gauge_vec(&["pv", "path", "reason"]),
        "local_volume_provisioner_cleanup_waiting_seconds",
        "How long a cleanup has waited without a break.";
    cleanup_stalled_seconds: GaugeVec = gauge_vec(&["pv", "path"]),
        "local_volume_provisioner_cleanup_stalled_seconds",
        "How long a running cleanup has made no progress, in steps of 30 s; 0 while it does, and always for an external command.";
    cleanup_failed_attempts: IntGaugeVec = int_gauge_vec(&["pv", "path"]),
        "local_volume_provisioner_cleanup_failed_attempts",
        "How often in a row the cleanup of a PersistentVolume has failed; no series for one that has not.";
    cleanup_progress: GaugeVec = gauge_vec(&["pv"]),
        "local_volume_provisioner_cleanup_progress_ratio",
        "Part of the bytes that are wiped, while a device is cleaned by one of our own methods.";
    cleanup_bytes_total: Counter = counter(),
        "local_volume_provisioner_cleanup_bytes_total",
        "Bytes wiped on devices, counted every second, also those of cleanups that fail.";
    cleanup_data_left_total: CounterVec = counter_vec(&["class"]),
        "local_volume_provisioner_cleanup_data_left_total",
        "Raw devices that were reset without a discard, so that the next tenant can read what the last one wrote.";
    loop_duration: HistogramVec = histogram_vec(&[], DEFAULT_BUCKETS.to_vec()),
        "local_volume_provisioner_loop_duration_seconds",
        "Duration of one pass of the main loop.";
    loop_last_success: Gauge = gauge(),
        "local_volume_provisioner_loop_last_success_timestamp_seconds",
        "When the last pass of the main loop ended.";
    config_last_reload_successful: IntGauge = int_gauge(),
        "local_volume_provisioner_config_last_reload_successful",
        "1 if the configuration that was read last is in force, 0 if it is invalid.";
    config_last_reload_timestamp: Gauge = gauge(),
        "local_volume_provisioner_config_last_reload_timestamp_seconds",
        "When the configuration that is in force was read.";
    watch_restarts_total: CounterVec = counter_vec(&["resource"]),
        "local_volume_provisioner_watch_restarts_total",
        "Watches that broke and were started again.";
    missing_permission: IntGaugeVec = int_gauge_vec(&["resource", "verb"]),
        "local_volume_provisioner_missing_permission",
        "1 for each permission that the API server has just denied, 0 once it is granted.";
    protection: IntGaugeVec = int_gauge_vec(&["feature"]),
        "local_volume_provisioner_protection",
        "1 for each protection of volumes that is on, 0 if the pod does not give what it requires.";
    events_failed_total: IntCounter = int_counter(),
        "local_volume_provisioner_events_failed_total",
        "Events that could not be written.";
    build_info: IntGaugeVec = int_gauge_vec(&["version", "revision"]),
        "local_volume_provisioner_build_info",
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
            self.missing_permission
                .with_label_values(&[resource, verb])
                .set(why.is_some().into());
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
