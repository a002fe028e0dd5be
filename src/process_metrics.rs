//! `process_*`, as every Go program shows them.
#![allow(
    clippy::cast_precision_loss,
    reason = "every value of a metric is a floating-point number"
)]

use procfs::ProcResult;
use procfs::process::{LimitValue, Process};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

/// Name and help, in the order of [`read`]. A name with `_total` is a counter, others are gauges.
const FAMILIES: [(&str, &str); 9] = [
    (
        "process_cpu_seconds_total",
        "User and system CPU time spent, in seconds.",
    ),
    (
        "process_network_receive_bytes_total",
        "Bytes received over the network, by all processes of the pod.",
    ),
    (
        "process_network_transmit_bytes_total",
        "Bytes sent over the network, by all processes of the pod.",
    ),
    (
        "process_resident_memory_bytes",
        "Resident memory, in bytes.",
    ),
    ("process_virtual_memory_bytes", "Virtual memory, in bytes."),
    (
        "process_virtual_memory_max_bytes",
        "Limit of the virtual memory, in bytes.",
    ),
    ("process_open_fds", "Open file descriptors."),
    ("process_max_fds", "Limit of the open file descriptors."),
    (
        "process_start_time_seconds",
        "When the process started, in seconds since 1970.",
    ),
];

/// The values of all families; without IP statistics, none of the network's.
fn read() -> ProcResult<[Option<f64>; 9]> {
    let process = Process::myself()?;
    let (stat, limits) = (process.stat()?, process.limits()?);
    let ticks = procfs::ticks_per_second() as f64;
    let started = procfs::boot_time_secs()? as f64 + stat.starttime as f64 / ticks;
    let netstat = std::fs::read_to_string("/proc/self/net/netstat").unwrap_or_default();
    Ok([
        Some((stat.utime + stat.stime) as f64 / ticks),
        octets(&netstat, "InOctets"),
        octets(&netstat, "OutOctets"),
        Some(stat.rss as f64 * procfs::page_size() as f64),
        Some(stat.vsize as f64),
        Some(limit(&limits.max_address_space.soft_limit)),
        Some(process.fd_count()? as f64),
        Some(limit(&limits.max_open_files.soft_limit)),
        Some(started),
    ])
}

/// No limit is the largest number there is, as in the Go program.
fn limit(limit: &LimitValue) -> f64 {
    match limit {
        LimitValue::Value(limit) => *limit as f64,
        LimitValue::Unlimited => u64::MAX as f64,
    }
}

/// A counter of our network namespace. The file has two lines for each protocol: names, and values.
fn octets(netstat: &str, name: &str) -> Option<f64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|found| found == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// Reads `/proc/self` when it is scraped.
#[derive(Debug)]
pub struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let values = read().unwrap_or_default();
        let families = FAMILIES.iter().zip(values);
        let collected = families.filter_map(|(family, value)| collected(*family, value?).ok());
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
    fn octets_are_found_by_the_name_of_their_column() {
        let text = "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: X InOctets OutOctets\nIpExt: 3 4 5\n";
        assert_eq!(octets(text, "InOctets"), Some(4.0));
        assert_eq!(octets(text, "OutOctets"), Some(5.0));
        assert_eq!(octets(text, "Absent"), None);
        assert_eq!(octets("", "InOctets"), None);
    }

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
