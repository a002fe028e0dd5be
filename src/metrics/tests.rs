//! The registered metrics against `docs/metrics.md`, and against the conventions of Prometheus.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use prometheus::proto::{MetricFamily, MetricType};
use regex::Regex;

use super::{Metrics, capacity_step};
use crate::cluster::Permissions;
use crate::node_cleanup::metrics::Metrics as NodeCleanupMetrics;

const PREFIX: &str = "local_volume_provisioner_";
/// The files that register metrics. A family without any series is not gathered.
const SOURCES: [&str; 3] = [
    include_str!("../metrics.rs"),
    include_str!("../node_cleanup/metrics.rs"),
    include_str!("../process_metrics.rs"),
];

/// All families that have a series from the start.
fn gathered() -> Vec<MetricFamily> {
    let metrics = Metrics::new().unwrap();
    metrics.request("create", Duration::from_millis(3), true);
    let mut families = metrics.registry.gather();
    let of_node_cleanup = NodeCleanupMetrics::new().unwrap();
    families.extend(of_node_cleanup.gather(&metrics, &Permissions::default()));
    families
}

fn kind(family: &MetricFamily) -> &'static str {
    match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        _ => "histogram",
    }
}

#[test]
fn names_and_help_follow_the_conventions() {
    for family in gathered() {
        let (name, help) = (family.name(), family.help());
        let prefixes = [PREFIX, "process_", "local_volume_node_cleanup_"];
        assert!(prefixes.iter().any(|it| name.starts_with(it)), "{name}");
        assert_eq!(name.ends_with("_total"), kind(&family) == "counter", "{name}");
        let is_short = help.len() <= 160 && help.ends_with('.') && !help.contains(['\n', '`']);
        assert!(is_short, "{name}: {help}");
    }
}

#[test]
fn counters_exist_before_they_count() {
    let text = prometheus::TextEncoder::new()
        .encode_to_string(&Metrics::new().unwrap().registry.gather())
        .unwrap();
    for series in [
        "persistentvolume_delete_failed_total{mode=\"Block\",type=\"process\"} 0",
        "apiserver_requests_failed_total{method=\"delete\"} 0",
        "events_failed_total 0",
    ] {
        assert!(text.contains(&format!("\n{PREFIX}{series}\n")), "{series}");
    }
}

#[test]
fn capacity_label_has_steps_of_500_gib() {
    for (gib, step) in [(0, "0G"), (1, "500G"), (500, "500G"), (501, "1000G"), (1200, "1500G")] {
        assert_eq!(capacity_step(gib << 30), step, "{gib} GiB");
    }
}

#[test]
fn docs_list_all_metrics_and_no_others() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let registered = Regex::new(r#""((?:local_volume|process)_\w+[a-z])""#).unwrap();
    let described = Regex::new(r"(?m)^(?:\| )?`((?:local_volume|process)_\w+)`").unwrap();
    let names = |regex: &Regex, text: &str| -> BTreeSet<String> {
        regex.captures_iter(text).map(|it| it[1].to_owned()).collect()
    };
    assert_eq!(names(&registered, &SOURCES.concat()), names(&described, &page));
    let sections: Vec<_> = page.split("\n##").collect();
    for family in gathered() {
        let (name, kind, help) = (family.name(), kind(&family), family.help());
        let has = |section: &&&str| section.contains(&format!("`{name}`"));
        let Some(section) = sections.iter().find(has) else {
            // Those of the provisioner that node-cleanup shows under its own prefix.
            let is_shared = name.starts_with("local_volume_node_cleanup_");
            assert!(is_shared, "{name} is not on the page");
            continue;
        };
        assert!(section.contains(kind) && section.contains(help), "{name}");
        let series = family.get_metric().first().unwrap();
        for label in series.get_label() {
            let described = section.contains(&format!("- `{}`: ", label.name()));
            assert!(described, "{name}: {}", label.name());
        }
    }
}
