//! What Prometheus scrapes, against the list of what the Go provisioner has.

use std::collections::{BTreeMap, BTreeSet};

use support::Promtool;

use super::http::eventful;

/// A family: its name, its type, its labels, each with the values that may occur (all, if there are none).
type Known = (&'static str, &'static str, &'static [(&'static str, &'static [&'static str])]);

const MODES: &[&str] = &["Filesystem", "Block"];
const MODES_OF_PATHS: &[&str] = &["Filesystem", "Block", "unknown"];
const TYPES: &[&str] = &["process", "job"];
const METHODS: &[&str] = &["create", "delete"];

/// The series of the Go provisioner, which dashboards and alerts are made of, without their prefix.
const OF_THE_GO_PROGRAM: [Known; 12] = [
    ("persistentvolume_capacity_bytes", "gauge", &[("mode", MODES)]),
    ("persistentvolume_discovery_total", "counter", &[("mode", MODES)]),
    ("persistentvolume_discovery_duration_seconds", "histogram", &[("mode", MODES)]),
    ("persistentvolume_delete_total", "counter", &[("mode", MODES_OF_PATHS), ("type", TYPES)]),
    (
        "persistentvolume_delete_failed_total",
        "counter",
        &[("mode", MODES_OF_PATHS), ("type", TYPES)],
    ),
    (
        "persistentvolume_delete_duration_seconds",
        "histogram",
        &[
            ("capacity", &["500G"]),
            ("cleanup_command", &["/scripts/quick_reset.sh"]),
            ("mode", MODES),
            ("type", TYPES),
        ],
    ),
    ("apiserver_requests_total", "counter", &[("method", METHODS)]),
    ("apiserver_requests_failed_total", "counter", &[("method", METHODS)]),
    ("apiserver_requests_duration_seconds", "histogram", &[("method", METHODS)]),
    ("proctable_running", "gauge", &[]),
    ("proctable_succeeded", "gauge", &[]),
    ("proctable_failed", "gauge", &[]),
];

/// Those that every Go program has.
const OF_THE_PROCESS: [(&str, &str); 9] = [
    ("process_cpu_seconds_total", "counter"),
    ("process_network_receive_bytes_total", "counter"),
    ("process_network_transmit_bytes_total", "counter"),
    ("process_open_fds", "gauge"),
    ("process_max_fds", "gauge"),
    ("process_resident_memory_bytes", "gauge"),
    ("process_virtual_memory_bytes", "gauge"),
    ("process_virtual_memory_max_bytes", "gauge"),
    ("process_start_time_seconds", "gauge"),
];

/// The upper bounds of the buckets of all its histograms, as it spells them.
const BUCKETS: [&str; 12] =
    ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];

const OURS: [Known; 16] = [
    ("ready", "gauge", &[]),
    ("volumes", "gauge", &[("class", &[]), ("state", &[])]),
    ("skipped_entries", "gauge", &[("class", &[]), ("reason", &["NotADirectoryOrBlockDevice"])]),
    ("cleanup_waiting", "gauge", &[]),
    ("cleanup_failed_attempts", "gauge", &[("path", &["/mnt/disks/raw/disk"]), ("pv", &[])]),
    ("cleanup_bytes_total", "counter", &[]),
    ("cleanup_data_left_total", "counter", &[("class", &[])]),
    ("loop_duration_seconds", "histogram", &[]),
    ("loop_last_success_timestamp_seconds", "gauge", &[]),
    ("config_last_reload_successful", "gauge", &[]),
    ("config_last_reload_timestamp_seconds", "gauge", &[]),
    ("events_failed_total", "counter", &[]),
    ("build_info", "gauge", &[("revision", &[]), ("version", &[])]),
    // Only where there is a value.
    (
        "cleanup_waiting_seconds",
        "gauge",
        &[("path", &[]), ("pv", &[]), ("reason", &["Permit", "InUse", "Job"])],
    ),
    ("missing_permission", "gauge", &[("resource", &[]), ("verb", &[])]),
    ("watch_restarts_total", "counter", &[("resource", &[])]),
];

/// What Prometheus makes of one family.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// The families of a scrape. What Prometheus would make of it wrongly is a failure.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut help) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            rest.split_once(' ').unwrap().1.clone_into(&mut help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            name.clone_into(&mut current);
            let family = Family {
                kind: kind.to_owned(),
                help: std::mem::take(&mut help),
                labels: BTreeMap::new(),
            };
            assert!(families.insert(current.clone(), family).is_none(), "{name} twice");
        } else {
            assert!(line.starts_with(&current), "{line:?} is not of {current}");
            let family = families.get_mut(&current).unwrap();
            for (name, value) in labels(line) {
                family.labels.entry(name).or_default().insert(value);
            }
        }
    }
    families
}

/// The labels of a line; none of the values here has a quote in it.
fn labels(line: &str) -> impl Iterator<Item = (String, String)> {
    let inner = line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
    inner.trim_end_matches('"').split("\",").filter_map(|pair| {
        let (name, value) = pair.split_once("=\"")?;
        Some((name.to_owned(), value.to_owned()))
    })
}

fn assert_known(found: &BTreeMap<String, Family>, (name, kind, labels): Known) {
    let name = format!("local_volume_provisioner_{name}");
    let Some(family) = found.get(&name) else {
        panic!("no {name} in {found:#?}");
    };
    assert_eq!(family.kind, kind, "{name}");
    assert!(!family.help.is_empty(), "{name} has no help");
    let names: Vec<_> = family.labels.keys().filter(|label| *label != "le").collect();
    let expected: Vec<_> = labels.iter().map(|(label, _)| *label).collect();
    assert_eq!(names, expected, "{name}");
    for (label, allowed) in labels.iter().filter(|(_, allowed)| !allowed.is_empty()) {
        for value in &family.labels[*label] {
            assert!(allowed.contains(&value.as_str()), "{name}: {label}={value}");
        }
    }
}

#[test]
fn metrics_have_the_names_types_and_labels_of_the_go_program() {
    let (stage, _device, mut provisioner) = or_skip!(eventful());
    let text = stage.eventually("the failure shows", || {
        let (code, text) = provisioner.http_get("/metrics").unwrap();
        (code == 200 && text.contains("CleaningFailed")).then_some(text)
    });
    let found = families(&text);
    for known in OF_THE_GO_PROGRAM {
        assert_known(&found, known);
        if known.1 == "histogram" {
            let le = &found[&format!("local_volume_provisioner_{}", known.0)].labels["le"];
            assert!(BUCKETS.iter().all(|bucket| le.contains(*bucket)), "{le:?}");
        }
    }
    for (name, kind) in OF_THE_PROCESS {
        let family = &found[name];
        assert!(family.kind == kind && family.labels.is_empty(), "{name}");
    }
    for known in OURS {
        let present = found.contains_key(&format!("local_volume_provisioner_{}", known.0));
        if present
            || !["cleanup_waiting_seconds", "missing_permission", "watch_restarts_total"]
                .contains(&known.0)
        {
            assert_known(&found, known);
        }
    }
    for line in [
        "persistentvolume_delete_failed_total{mode=\"Block\",type=\"process\"} 1",
        "persistentvolume_discovery_total{mode=\"Filesystem\"} 2",
        "persistentvolume_delete_total{mode=\"Filesystem\",type=\"process\"} 1",
        "apiserver_requests_failed_total{method=\"create\"} 1",
        "persistentvolume_capacity_bytes{mode=\"Filesystem\"} 20971520",
        "persistentvolume_capacity_bytes{mode=\"Block\"} 33554432",
        "persistentvolume_delete_duration_seconds_count{capacity=\"500G\",cleanup_command=\"/scripts/quick_reset.sh\",mode=\"Filesystem\",type=\"process\"} 1",
        "proctable_failed 1",
        "skipped_entries{class=\"FAST\",reason=\"NotADirectoryOrBlockDevice\"} 1",
        "volumes{class=\"FAST\",state=\"Available\"} 1",
        "volumes{class=\"RAW\",state=\"CleaningFailed\"} 1",
    ] {
        let line = line.replace("FAST", &stage.named("fast")).replace("RAW", &stage.named("raw"));
        let line = format!("local_volume_provisioner_{line}");
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

/// It also knows the conventions of names, units and help.
#[test]
fn promtool_accepts_a_scrape() {
    let promtool = or_skip!(Promtool::find());
    let (_stage, _device, mut provisioner) = or_skip!(eventful());
    let (_, text) = provisioner.http_get("/metrics").unwrap();
    assert_eq!(promtool.run(["check", "metrics"], &text), Ok(String::new()));
    // Otherwise it would have a series.
    let wrong = "# TYPE lvp_things_total gauge\nlvp_things_total 1\n";
    assert!(promtool.run(["check", "metrics"], wrong).is_err());
}
