//! `process_*`, as every Go program shows them.
#![allow(
    clippy::cast_precision_loss,
    reason = "every value of a metric is a floating-point number"
)]

use procfs::ProcResult;
use procfs::net::DeviceStatus;
use procfs::process::{Limit, LimitValue, Process};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

/// Name and help, in the order of [`read`]. A name with `_total` is a counter, others are gauges.
const FAMILIES: [(&str, &str); 9] = [
    ("process_cpu_seconds_total", "User and system CPU time."),
    ("process_network_receive_bytes_total", "Bytes received."),
    ("process_network_transmit_bytes_total", "Bytes sent."),
    ("process_resident_memory_bytes", "Resident memory."),
    ("process_virtual_memory_bytes", "Virtual memory."),
    ("process_virtual_memory_max_bytes", "Virtual memory limit."),
    ("process_open_fds", "Open file descriptors."),
    ("process_max_fds", "Limit of open file descriptors."),
    ("process_start_time_seconds", "Start of the process."),
];

/// The values of all families.
fn read() -> ProcResult<[f64; 9]> {
    let process = Process::myself()?;
    let (stat, limits) = (process.stat()?, process.limits()?);
    let ticks = procfs::ticks_per_second() as f64;
    let interfaces = process.dev_status()?;
    let bytes = |of: fn(&DeviceStatus) -> u64| interfaces.values().map(of).sum::<u64>() as f64;
    // No limit is the largest number there is, as in the Go program.
    let limit = |limit: &Limit| match limit.soft_limit {
        LimitValue::Value(limit) => limit as f64,
        LimitValue::Unlimited => u64::MAX as f64,
    };
    Ok([
        (stat.utime + stat.stime) as f64 / ticks,
        bytes(|interface| interface.recv_bytes),
        bytes(|interface| interface.sent_bytes),
        stat.rss as f64 * procfs::page_size() as f64,
        stat.vsize as f64,
        limit(&limits.max_address_space),
        process.fd_count()? as f64,
        limit(&limits.max_open_files),
        procfs::boot_time_secs()? as f64 + stat.starttime as f64 / ticks,
    ])
}

/// Reads `/proc/self` when it is scraped.
#[derive(Debug)]
pub struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let families = FAMILIES.into_iter().zip(read().into_iter().flatten());
        let collected = families.filter_map(|(family, value)| collected(family, value).ok());
        collected.flatten().collect()
    }
}

fn collected((name, help): (&str, &str), value: f64) -> prometheus::Result<Vec<MetricFamily>> {
    if name.ends_with("_total") {
        let counter = Counter::new(name, help)?;
        counter.inc_by(value);
        return Ok(counter.collect());
    }
    let gauge = Gauge::new(name, help)?;
    gauge.set(value);
    Ok(gauge.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_families_have_a_value_here() {
        let collected = ProcessMetrics.collect();
        let names: Vec<_> = collected.iter().map(MetricFamily::name).collect();
        assert_eq!(names, FAMILIES.map(|(name, _)| name));
        for family in &collected {
            let metric = &family.get_metric()[0];
            let value = metric.get_gauge().get_value() + metric.get_counter().get_value();
            // CPU time comes in hundredths, and a namespace may have no network.
            let may_be_zero = family.name().ends_with("_total");
            assert!(may_be_zero || value > 0.0, "{}", family.name());
        }
    }
}
