//! The metrics: those of the Go provisioner under its names, labels and types, and ours.
//!
//! One struct of handles, registered into a registry that is passed around: no globals. Gauges that
//! describe the present are set from the whole state at once, so that what is gone does not linger.
//! What each is called and means is in `families`, of which `docs/metrics.md` is made.

use std::time::Duration;

use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, HistogramVec, IntCounter, IntGauge, IntGaugeVec, Registry,
};

use crate::process_metrics::{self, ProcessMetrics};

mod families;
pub mod family;
pub mod maker;
pub mod series;
#[cfg(test)]
mod tests;

use families as f;
use family::Family;
use maker::Maker;

/// The buckets of all histograms of the Go provisioner, in seconds.
const COMPAT_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// Further ones for what takes minutes or hours, which those cannot tell apart: to wipe a large disk.
const LONG_BUCKETS: [f64; 8] = [
    30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0,
];

/// All handles.
#[derive(Debug)]
#[allow(missing_docs, reason = "each has its help text in `families`")]
pub struct Metrics {
    pub registry: Registry,
    pub capacity_bytes: GaugeVec,
    pub discovery_total: CounterVec,
    pub discovery_duration: HistogramVec,
    pub delete_total: CounterVec,
    pub delete_failed_total: CounterVec,
    pub delete_duration: HistogramVec,
    pub requests_total: CounterVec,
    pub requests_failed_total: CounterVec,
    pub requests_duration: HistogramVec,
    pub proctable_running: IntGauge,
    pub proctable_succeeded: IntGauge,
    pub proctable_failed: IntGauge,
    pub ready: IntGauge,
    pub volumes: IntGaugeVec,
    pub skipped_entries: IntGaugeVec,
    pub unhealthy: IntGaugeVec,
    pub cleanup_waiting: IntGauge,
    pub cleanup_waiting_seconds: GaugeVec,
    pub cleanup_stalled_seconds: GaugeVec,
    pub cleanup_failed_attempts: IntGaugeVec,
    pub cleanup_progress: GaugeVec,
    pub cleanup_bytes_total: Counter,
    pub cleanup_data_left_total: CounterVec,
    pub loop_duration: HistogramVec,
    pub loop_last_success: Gauge,
    pub config_last_reload_successful: IntGauge,
    pub config_last_reload_timestamp: Gauge,
    pub watch_restarts_total: CounterVec,
    pub missing_permission: IntGaugeVec,
    pub events_failed_total: IntCounter,
    families: Vec<&'static Family>,
}

impl Metrics {
    /// Makes all metrics, registered and at zero.
    ///
    /// # Errors
    /// When two have one name.
    pub fn new() -> prometheus::Result<Self> {
        let mut make = Maker::default();
        let compat = || COMPAT_BUCKETS.to_vec();
        let long = [&COMPAT_BUCKETS[..], &LONG_BUCKETS[..]].concat();
        // In this order the page has them, too.
        let mut metrics = Self {
            capacity_bytes: make.gauges(&f::PERSISTENTVOLUME_CAPACITY_BYTES)?,
            discovery_total: make.counters(&f::PERSISTENTVOLUME_DISCOVERY_TOTAL)?,
            discovery_duration: make
                .histograms(&f::PERSISTENTVOLUME_DISCOVERY_DURATION_SECONDS, compat())?,
            delete_total: make.counters(&f::PERSISTENTVOLUME_DELETE_TOTAL)?,
            delete_failed_total: make.counters(&f::PERSISTENTVOLUME_DELETE_FAILED_TOTAL)?,
            delete_duration: make.histograms(&f::PERSISTENTVOLUME_DELETE_DURATION_SECONDS, long)?,
            requests_total: make.counters(&f::APISERVER_REQUESTS_TOTAL)?,
            requests_failed_total: make.counters(&f::APISERVER_REQUESTS_FAILED_TOTAL)?,
            requests_duration: make
                .histograms(&f::APISERVER_REQUESTS_DURATION_SECONDS, compat())?,
            proctable_running: make.int_gauge(&f::PROCTABLE_RUNNING)?,
            proctable_succeeded: make.int_gauge(&f::PROCTABLE_SUCCEEDED)?,
            proctable_failed: make.int_gauge(&f::PROCTABLE_FAILED)?,
            ready: make.int_gauge(&f::READY)?,
            volumes: make.int_gauges(&f::VOLUMES)?,
            skipped_entries: make.int_gauges(&f::SKIPPED_ENTRIES)?,
            unhealthy: make.int_gauges(&f::UNHEALTHY_PERSISTENTVOLUME)?,
            cleanup_waiting: make.int_gauge(&f::CLEANUP_WAITING)?,
            cleanup_waiting_seconds: make.gauges(&f::CLEANUP_WAITING_SECONDS)?,
            cleanup_stalled_seconds: make.gauges(&f::CLEANUP_STALLED_SECONDS)?,
            cleanup_failed_attempts: make.int_gauges(&f::CLEANUP_FAILED_ATTEMPTS)?,
            cleanup_progress: make.gauges(&f::CLEANUP_PROGRESS_RATIO)?,
            cleanup_bytes_total: make.counter(&f::CLEANUP_BYTES_TOTAL)?,
            cleanup_data_left_total: make.counters(&f::CLEANUP_DATA_LEFT_TOTAL)?,
            loop_duration: make.histograms(&f::LOOP_DURATION_SECONDS, compat())?,
            loop_last_success: make.gauge(&f::LOOP_LAST_SUCCESS_TIMESTAMP_SECONDS)?,
            config_last_reload_successful: make.int_gauge(&f::CONFIG_LAST_RELOAD_SUCCESSFUL)?,
            config_last_reload_timestamp: make.gauge(&f::CONFIG_LAST_RELOAD_TIMESTAMP_SECONDS)?,
            watch_restarts_total: make.counters(&f::WATCH_RESTARTS_TOTAL)?,
            missing_permission: make.int_gauges(&f::MISSING_PERMISSION)?,
            events_failed_total: make.int_counter(&f::EVENTS_FAILED_TOTAL)?,
            registry: Registry::new(),
            families: Vec::new(),
        };
        make_build_info(&mut make)?;
        make.register(&process_metrics::FAMILIES, ProcessMetrics::new()?)?;
        (metrics.registry, metrics.families) = make.finish();
        metrics.begin_at_zero();
        Ok(metrics)
    }

    /// All families, with or without series so far.
    #[must_use]
    pub fn families(&self) -> &[&'static Family] {
        &self.families
    }

    /// A counter that is first seen at 1 has not increased, as far as Prometheus can tell.
    fn begin_at_zero(&self) {
        for mode in ["Filesystem", "Block"] {
            for by in ["process", "job"] {
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

    /// Takes in which rights are missing: resource, verb, and whether it is.
    pub fn set_missing(
        &self,
        seen: impl IntoIterator<Item = ((&'static str, &'static str), bool)>,
    ) {
        for ((resource, verb), missing) in seen {
            self.missing_permission
                .with_label_values(&[resource, verb])
                .set(missing.into());
        }
    }

    /// Counts a request that creates or deletes a PV.
    pub fn request(&self, method: &str, took: Duration, failed: bool) {
        self.requests_total.with_label_values(&[method]).inc();
        self.requests_duration
            .with_label_values(&[method])
            .observe(took.as_secs_f64());
        if failed {
            self.requests_failed_total
                .with_label_values(&[method])
                .inc();
        }
    }
}

/// The same in every program of ours: which build runs here.
///
/// # Errors
/// When there is one already.
pub fn make_build_info(make: &mut Maker) -> prometheus::Result<()> {
    let revision = option_env!("LVP_REVISION").unwrap_or("unknown");
    make.int_gauges(&f::BUILD_INFO)?
        .with_label_values(&[env!("CARGO_PKG_VERSION"), revision])
        .set(1);
    Ok(())
}

/// The `capacity` label of the deletion histogram: steps of 500 GiB, rounded up.
#[must_use]
pub fn capacity_step(bytes: u64) -> String {
    const STEP: u64 = 500 << 30;
    format!("{}G", bytes.div_ceil(STEP) * 500)
}
