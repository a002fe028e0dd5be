//! The metrics: those of the Go provisioner under its names, labels and types, and ours.
//!
//! One struct of handles, registered into a registry that is passed around: no globals. Gauges that
//! describe the present are set from the whole state at once, so that what is gone does not linger.

use std::time::Duration;

use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntGauge,
    IntGaugeVec, Opts, Registry, core::Collector, exponential_buckets,
};

use crate::process_metrics::ProcessMetrics;

const PREFIX: &str = "local_volume_provisioner";

/// All handles.
#[derive(Debug)]
#[allow(missing_docs, reason = "each has its help text where it is made")]
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
    pub cleanup_waiting: IntGauge,
    pub cleanup_progress: GaugeVec,
    pub cleanup_bytes_total: Counter,
    pub cleanup_data_left_total: CounterVec,
    pub volumes: IntGaugeVec,
    pub skipped_entries: IntGaugeVec,
    pub unhealthy: IntGaugeVec,
    pub loop_duration: HistogramVec,
    pub loop_last_success: Gauge,
    pub config_last_reload_successful: IntGauge,
    pub config_last_reload_timestamp: Gauge,
    pub watch_restarts_total: CounterVec,
    pub missing_permission: IntGaugeVec,
    pub events_failed_total: IntCounter,
}

/// Makes and registers. Registration fails only for a name that is taken or malformed, which a test
/// would show, so every metric is unconditional.
struct Maker(Registry);

impl Maker {
    fn add<C: Collector + Clone + 'static>(
        &self,
        collector: prometheus::Result<C>,
    ) -> prometheus::Result<C> {
        let collector = collector?;
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn name(name: &str) -> String {
        format!("{PREFIX}_{name}")
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<CounterVec> {
        self.add(CounterVec::new(Opts::new(Self::name(name), help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        self.add(GaugeVec::new(Opts::new(Self::name(name), help), labels))
    }

    fn int_gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(Self::name(name), help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<Gauge> {
        self.add(Gauge::new(Self::name(name), help))
    }

    fn int_gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.add(IntGauge::new(Self::name(name), help))
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: Vec<f64>,
    ) -> prometheus::Result<HistogramVec> {
        let opts = HistogramOpts::new(Self::name(name), help).buckets(buckets);
        self.add(HistogramVec::new(opts, labels))
    }
}

impl Metrics {
    /// Makes all metrics, registered and at zero.
    ///
    /// # Errors
    /// When two have one name.
    #[allow(clippy::too_many_lines, reason = "a list")]
    pub fn new() -> prometheus::Result<Self> {
        let make = Maker(Registry::new());
        let quick = exponential_buckets(0.005, 2.0, 14)?;
        let deletion = ["mode", "type", "capacity", "cleanup_command"];
        let metrics = Self {
            capacity_bytes: make.gauges(
                "persistentvolume_capacity_bytes",
                "Total bytes of all volumes that were seen, by volume mode of the class.",
                &["mode"],
            )?,
            discovery_total: make.counters(
                "persistentvolume_discovery_total",
                "PersistentVolumes created, by volume mode of the class.",
                &["mode"],
            )?,
            discovery_duration: make.histograms(
                "persistentvolume_discovery_duration_seconds",
                "Time from the start of a pass to the creation of a PersistentVolume.",
                &["mode"],
                quick.clone(),
            )?,
            delete_total: make.counters(
                "persistentvolume_delete_total",
                "PersistentVolumes cleaned and released, by what the path is and by how it was cleaned.",
                &["mode", "type"],
            )?,
            delete_failed_total: make.counters(
                "persistentvolume_delete_failed_total",
                "Cleanups that failed.",
                &["mode", "type"],
            )?,
            delete_duration: make.histograms(
                "persistentvolume_delete_duration_seconds",
                "Time from the start of a cleanup to the release of the PersistentVolume.",
                &deletion,
                exponential_buckets(0.01, 3.0, 14)?,
            )?,
            requests_total: make.counters(
                "apiserver_requests_total",
                "Requests to create or delete PersistentVolumes.",
                &["method"],
            )?,
            requests_failed_total: make.counters(
                "apiserver_requests_failed_total",
                "Requests to create or delete PersistentVolumes that failed.",
                &["method"],
            )?,
            requests_duration: make.histograms(
                "apiserver_requests_duration_seconds",
                "Duration of requests to create or delete PersistentVolumes.",
                &["method"],
                quick.clone(),
            )?,
            proctable_running: make.int_gauge("proctable_running", "Cleanups at work.")?,
            proctable_succeeded: make.int_gauge(
                "proctable_succeeded",
                "Finished cleanups whose PersistentVolume has not gone yet.",
            )?,
            proctable_failed: make.int_gauge("proctable_failed", "Cleanups that failed and will be tried again.")?,
            cleanup_waiting: make.int_gauge(
                "cleanup_waiting",
                "Cleanups that wait for a permit or for somebody to let go of the volume.",
            )?,
            cleanup_progress: make.gauges(
                "cleanup_progress_ratio",
                "Part of the bytes that are wiped, of cleanups whose end is known.",
                &["pv"],
            )?,
            cleanup_bytes_total: make
                .add(Counter::new(Maker::name("cleanup_bytes_total"), "Bytes wiped on devices."))?,
            cleanup_data_left_total: make.counters(
                "cleanup_data_left_total",
                "Raw devices that were reset without a discard: the next tenant can read them.",
                &["class"],
            )?,
            volumes: make.int_gauges("volumes", "Volumes, by class and state.", &["class", "state"])?,
            skipped_entries: make.int_gauges(
                "skipped_entries",
                "Entries of the discovery directories that are not offered, by class and reason.",
                &["class", "reason"],
            )?,
            unhealthy: make.int_gauges(
                "unhealthy_persistentvolume",
                "1 for each PersistentVolume that something is the matter with.",
                &["pv", "reason"],
            )?,
            loop_duration: make.histograms(
                "loop_duration_seconds",
                "Duration of one pass of the main loop.",
                &[],
                quick,
            )?,
            loop_last_success: make.gauge(
                "loop_last_success_timestamp_seconds",
                "When the last pass of the main loop ended.",
            )?,
            config_last_reload_successful: make.int_gauge(
                "config_last_reload_successful",
                "Whether the configuration that was read last is valid.",
            )?,
            config_last_reload_timestamp: make.gauge(
                "config_last_reload_timestamp_seconds",
                "When the configuration was last read.",
            )?,
            watch_restarts_total: make.counters(
                "watch_restarts_total",
                "Watches that broke and were started again.",
                &["resource"],
            )?,
            missing_permission: make.int_gauges(
                "missing_permission",
                "1 for each right that the API server denied, 0 once it is granted.",
                &["resource", "verb"],
            )?,
            events_failed_total: make.add(IntCounter::new(
                Maker::name("events_failed_total"),
                "Events that could not be written.",
            ))?,
            registry: make.0.clone(),
        };
        let build = make.int_gauges(
            "build_info",
            "1; the program's version is in the labels.",
            &["version", "revision"],
        )?;
        build
            .with_label_values(&[
                env!("CARGO_PKG_VERSION"),
                option_env!("LVP_REVISION").unwrap_or("unknown"),
            ])
            .set(1);
        metrics
            .registry
            .register(Box::new(ProcessMetrics::new()?))?;
        Ok(metrics)
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

/// The `capacity` label of the deletion histogram: steps of 500 GiB, rounded up.
#[must_use]
pub fn capacity_step(bytes: u64) -> String {
    const STEP: u64 = 500 << 30;
    format!("{}G", bytes.div_ceil(STEP).max(1) * 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_metrics_can_be_registered_side_by_side() {
        let metrics = Metrics::new().unwrap();
        metrics.request("create", Duration::from_millis(3), true);
        let names: Vec<_> = metrics
            .registry
            .gather()
            .iter()
            .map(|family| family.name().to_owned())
            .collect();
        assert!(names.contains(&"local_volume_provisioner_apiserver_requests_failed_total".into()));
        assert!(
            names
                .iter()
                .all(|name| name.starts_with(PREFIX) || name.starts_with("process_"))
        );
    }

    #[test]
    fn capacity_is_labelled_in_steps_of_500_gib() {
        for (gib, step) in [
            (0, "500G"),
            (1, "500G"),
            (500, "500G"),
            (501, "1000G"),
            (1200, "1500G"),
        ] {
            assert_eq!(capacity_step(gib << 30), step, "{gib} GiB");
        }
    }
}
