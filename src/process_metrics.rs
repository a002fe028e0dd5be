//! `process_*`, as every Go program shows them.
#![allow(
    clippy::cast_precision_loss,
    reason = "every value of a metric is a floating-point number"
)]

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Opts};

/// Reads `/proc/self` when it is scraped.
#[derive(Debug)]
pub struct ProcessMetrics {
    cpu_seconds: prometheus::Counter,
    gauges: [(Gauge, Reading); 5],
}

type Reading = fn(&procfs::process::Process) -> Option<f64>;

impl ProcessMetrics {
    /// Makes the metrics.
    ///
    /// # Errors
    /// When a name is malformed.
    pub fn new() -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str, reading: Reading| {
            Gauge::with_opts(Opts::new(name, help)).map(|gauge| (gauge, reading))
        };
        Ok(Self {
            cpu_seconds: prometheus::Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?,
            gauges: [
                gauge(
                    "process_resident_memory_bytes",
                    "Resident memory size in bytes.",
                    |process| {
                        let pages = process.stat().ok()?.rss;
                        Some(pages as f64 * procfs::page_size() as f64)
                    },
                )?,
                gauge(
                    "process_virtual_memory_bytes",
                    "Virtual memory size in bytes.",
                    |process| Some(process.stat().ok()?.vsize as f64),
                )?,
                gauge(
                    "process_open_fds",
                    "Number of open file descriptors.",
                    |process| Some(process.fd_count().ok()? as f64),
                )?,
                gauge(
                    "process_max_fds",
                    "Maximum number of open file descriptors.",
                    |process| match process.limits().ok()?.max_open_files.soft_limit {
                        procfs::process::LimitValue::Value(limit) => Some(limit as f64),
                        procfs::process::LimitValue::Unlimited => Some(f64::MAX),
                    },
                )?,
                gauge(
                    "process_start_time_seconds",
                    "Start time of the process since unix epoch in seconds.",
                    |process| {
                        let since_boot = process.stat().ok()?.starttime as f64
                            / procfs::ticks_per_second() as f64;
                        Some(procfs::boot_time_secs().ok()? as f64 + since_boot)
                    },
                )?,
            ],
        })
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = self.gauges.iter().flat_map(|(gauge, _)| gauge.desc());
        self.cpu_seconds.desc().into_iter().chain(gauges).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if let Ok(process) = procfs::process::Process::myself() {
            if let Ok(stat) = process.stat() {
                let now = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
                self.cpu_seconds
                    .inc_by((now - self.cpu_seconds.get()).max(0.0));
            }
            for (gauge, reading) in &self.gauges {
                if let Some(value) = reading(&process) {
                    gauge.set(value);
                }
            }
        }
        let gauges = self.gauges.iter().flat_map(|(gauge, _)| gauge.collect());
        self.cpu_seconds
            .collect()
            .into_iter()
            .chain(gauges)
            .collect()
    }
}
