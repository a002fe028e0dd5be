//! `process_*`, as every Go program shows them.
#![allow(
    clippy::cast_precision_loss,
    reason = "every value of a metric is a floating-point number"
)]

use procfs::process::{LimitValue, Process};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};

type Reading = fn(&Process) -> Option<f64>;

/// Name, help and source of each counter.
const COUNTERS: [(&str, &str, Reading); 3] = [
    (
        "process_cpu_seconds_total",
        "User and system CPU time spent, in seconds.",
        |process| {
            let stat = process.stat().ok()?;
            Some((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
        },
    ),
    (
        "process_network_receive_bytes_total",
        "Bytes received over the network, by all processes of the pod.",
        |_| octets("InOctets"),
    ),
    (
        "process_network_transmit_bytes_total",
        "Bytes sent over the network, by all processes of the pod.",
        |_| octets("OutOctets"),
    ),
];

/// Name, help and source of each gauge.
const GAUGES: [(&str, &str, Reading); 6] = [
    (
        "process_resident_memory_bytes",
        "Resident memory, in bytes.",
        |process| Some(process.stat().ok()?.rss as f64 * procfs::page_size() as f64),
    ),
    (
        "process_virtual_memory_bytes",
        "Virtual memory, in bytes.",
        |process| Some(process.stat().ok()?.vsize as f64),
    ),
    (
        "process_virtual_memory_max_bytes",
        "Limit of the virtual memory, in bytes.",
        |process| Some(limit(&process.limits().ok()?.max_address_space.soft_limit)),
    ),
    ("process_open_fds", "Open file descriptors.", |process| {
        Some(process.fd_count().ok()? as f64)
    }),
    (
        "process_max_fds",
        "Limit of the open file descriptors.",
        |process| Some(limit(&process.limits().ok()?.max_open_files.soft_limit)),
    ),
    (
        "process_start_time_seconds",
        "When the process started, in seconds since 1970.",
        |process| {
            let ticks = process.stat().ok()?.starttime as f64;
            let since_boot = ticks / procfs::ticks_per_second() as f64;
            Some(procfs::boot_time_secs().ok()? as f64 + since_boot)
        },
    ),
];

/// Reads `/proc/self` when it is scraped.
#[derive(Debug)]
pub struct ProcessMetrics {
    counters: Vec<(Counter, Reading)>,
    gauges: Vec<(Gauge, Reading)>,
}

impl ProcessMetrics {
    /// Makes the metrics.
    ///
    /// # Errors
    /// When a name is malformed.
    pub fn new() -> prometheus::Result<Self> {
        let counter = |(name, help, reading)| Ok((Counter::new(name, help)?, reading));
        let gauge = |(name, help, reading)| Ok((Gauge::new(name, help)?, reading));
        Ok(Self {
            counters: COUNTERS
                .into_iter()
                .map(counter)
                .collect::<prometheus::Result<_>>()?,
            gauges: GAUGES
                .into_iter()
                .map(gauge)
                .collect::<prometheus::Result<_>>()?,
        })
    }
}

/// No limit is the largest number there is, as in the Go program.
fn limit(limit: &LimitValue) -> f64 {
    match limit {
        LimitValue::Value(limit) => *limit as f64,
        LimitValue::Unlimited => u64::MAX as f64,
    }
}

/// A counter of our network namespace.
fn octets(name: &str) -> Option<f64> {
    parse_octets(
        &std::fs::read_to_string("/proc/self/net/netstat").ok()?,
        name,
    )
}

/// The file has two lines for each protocol: one of names, and one of values.
fn parse_octets(netstat: &str, name: &str) -> Option<f64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|found| found == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        let counters = self.counters.iter().flat_map(|(counter, _)| counter.desc());
        let gauges = self.gauges.iter().flat_map(|(gauge, _)| gauge.desc());
        counters.chain(gauges).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if let Ok(process) = Process::myself() {
            for (counter, reading) in &self.counters {
                if let Some(now) = reading(&process) {
                    counter.inc_by((now - counter.get()).max(0.0));
                }
            }
            for (gauge, reading) in &self.gauges {
                if let Some(value) = reading(&process) {
                    gauge.set(value);
                }
            }
        }
        let counters = self.counters.iter().flat_map(|(it, _)| it.collect());
        let gauges = self.gauges.iter().flat_map(|(it, _)| it.collect());
        counters.chain(gauges).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_found_by_the_name_of_their_column() {
        let text = "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: X InOctets OutOctets\nIpExt: 3 4 5\n";
        assert_eq!(parse_octets(text, "InOctets"), Some(4.0));
        assert_eq!(parse_octets(text, "OutOctets"), Some(5.0));
        assert_eq!(parse_octets(text, "Absent"), None);
        assert_eq!(parse_octets("", "InOctets"), None);
    }

    #[test]
    fn all_families_have_a_value_here() {
        let collected = ProcessMetrics::new().unwrap().collect();
        let names: Vec<_> = collected.iter().map(MetricFamily::name).collect();
        let known = COUNTERS.iter().chain(&GAUGES).map(|(name, ..)| *name);
        assert_eq!(names, known.collect::<Vec<_>>());
        for family in &collected {
            let metric = &family.get_metric()[0];
            let value = metric.get_gauge().get_value() + metric.get_counter().get_value();
            // CPU time comes in hundredths, and a namespace may have no network.
            let may_be_zero = family.name().ends_with("_total");
            assert!(may_be_zero || value > 0.0, "{}", family.name());
        }
    }
}
