//! The families against the registry, and the page that is made of them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::node_cleanup::metrics::SHARED;
use crate::node_cleanup::metrics::families::FAMILIES as OF_NODE_CLEANUP;

use super::family::{Family, Origin};
use super::{Metrics, capacity_step};

const PREFIX: &str = "local_volume_provisioner_";

#[test]
fn all_metrics_can_be_registered_side_by_side() {
    let metrics = Metrics::new().unwrap();
    metrics.request("create", Duration::from_millis(3), true);
    let gathered = metrics.registry.gather();
    let names: BTreeSet<_> = metrics.families().iter().map(|it| it.name).collect();
    assert_eq!(names.len(), metrics.families().len(), "one twice");
    for family in &gathered {
        assert!(names.contains(family.name()), "{}", family.name());
    }
    let has = |name: &str| gathered.iter().any(|family| family.name() == name);
    assert!(has(
        "local_volume_provisioner_apiserver_requests_failed_total"
    ));
    assert!(has("process_cpu_seconds_total"));
}

#[test]
fn names_and_help_are_as_the_conventions_have_them() {
    let metrics = Metrics::new().unwrap();
    let prefixes = [PREFIX, "process_", "local_volume_node_cleanup_"];
    for family in metrics.families().iter().chain(&OF_NODE_CLEANUP) {
        let Family { name, kind, .. } = family;
        let known = prefixes.iter().any(|prefix| name.starts_with(prefix));
        assert!(known, "{name}");
        assert_eq!(
            name.ends_with("_total"),
            kind.as_str() == "counter",
            "{name} is a {}",
            kind.as_str()
        );
        let help = family.help;
        assert!(
            help.ends_with('.') && !help.contains(['\n', '`']),
            "{name}: {help}"
        );
        assert!(
            family.advice.ends_with('.') || name.starts_with("process_"),
            "{name} says not what to do"
        );
    }
}

#[test]
fn a_counter_is_there_before_it_counts() {
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
fn capacity_is_labelled_in_steps_of_500_gib() {
    for (gib, step) in [
        (0, "0G"),
        (1, "500G"),
        (500, "500G"),
        (501, "1000G"),
        (1200, "1500G"),
    ] {
        assert_eq!(capacity_step(gib << 30), step, "{gib} GiB");
    }
}

/// With `WRITE=1` in the environment this test writes the page anew.
#[test]
fn the_page_has_all_metrics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let expected = page(Metrics::new().unwrap().families());
    if std::env::var_os("WRITE").is_some() {
        std::fs::write(path, expected).unwrap();
    } else {
        assert!(
            std::fs::read_to_string(path).unwrap() == expected,
            "docs/metrics.md is out of date: run WRITE=1 cargo test --lib the_page_has_all_metrics"
        );
    }
}

fn page(families: &[&Family]) -> String {
    let (process, own): (Vec<&Family>, Vec<_>) = families
        .iter()
        .partition(|family| family.name.starts_with("process_"));
    let (compat, ours): (Vec<&Family>, Vec<_>) = own
        .iter()
        .partition(|family| family.origin == Origin::Compat);
    let mut page = String::from(HEAD);
    page += "\n## Those of the Go provisioner\n\n\
        With the same names, types and labels, and at least the same buckets, so that dashboards and alerts go on.\n";
    for family in compat {
        describe(family, &mut page);
    }
    page += "\n## Ours\n";
    for family in ours {
        describe(family, &mut page);
    }
    page += "\n## Of node-cleanup\n\n\
        The [controller for lost nodes](node-cleanup.md) has metrics of its own, which begin with `local_volume_node_cleanup_`. The\n\
        first four are those of the Go project's program. These of the provisioner it has too, under its own prefix:\n";
    let shared = SHARED.map(|name| format!("`{name}`"));
    writeln!(page, "{}.", shared.join(", ")).unwrap();
    for family in OF_NODE_CLEANUP {
        describe(family, &mut page);
    }
    page += "\n## Of the process\n\n\
        As every Go program has them, without labels. What only the Go runtime has (`go_*`) there is not.\n\n\
        | name | type | unit | |\n|---|---|---|---|\n";
    for family in process {
        let (name, kind) = (family.name, family.kind.as_str());
        let unit = family.unit().unwrap_or_default();
        writeln!(page, "| `{name}` | {kind} | {unit} | {} |", family.help).unwrap();
    }
    page
}

const HEAD: &str = "\
<!-- Made of src/metrics by WRITE=1 cargo test --lib the_page_has_all_metrics: change that, not this. -->
# Metrics

At `/metrics` of each pod (`--metrics-path`). All names begin with `local_volume_provisioner_`, which is left out in the
text, unless they begin with `process_` or belong to `node-cleanup`. [Monitoring](monitoring.md) says how to collect them,
and [alerts](alerts.md) what to be woken for.
";

fn describe(family: &Family, page: &mut String) {
    let short = family.name.trim_start_matches(PREFIX);
    let short = short.trim_start_matches("local_volume_");
    let unit = family.unit().map(|unit| format!(", {unit}"));
    write!(
        page,
        "\n### {short}\n\n`{}`: {}{}. {}\n",
        family.name,
        family.kind.as_str(),
        unit.unwrap_or_default(),
        family.help
    )
    .unwrap();
    if !family.labels.is_empty() {
        page.push('\n');
    }
    for label in family.labels {
        writeln!(page, "- `{}`: {}", label.name, label.values).unwrap();
    }
    writeln!(page, "\n_What to do:_ {}", family.advice).unwrap();
}
