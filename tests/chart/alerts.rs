//! The alerts: that they fire when they ought to, for what there is, and are explained.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::Promtool;

use crate::helm::{Helm, NAMESPACE, Objects, RELEASE, chart_dir};
use crate::promql::{Known, selectors};

const ON: &str = "prometheusRule.enabled=true";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// All rules of the alerts' file.
fn alerts() -> Vec<Value> {
    let text = fs::read_to_string(chart_dir().join("files/alerts.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    rules(&file)
}

fn rules(spec: &Value) -> Vec<Value> {
    let groups = spec["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn names(rules: &[Value]) -> Vec<&str> {
    rules.iter().map(|rule| rule["alert"].as_str().unwrap()).collect()
}

/// A directory with the rules as the chart renders them, as Prometheus reads them.
fn written(objects: &Objects) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let rules = &objects.only("PrometheusRule")["spec"];
    fs::write(dir.path().join("rules.yaml"), rules.to_string()).unwrap();
    dir
}

#[test]
fn alerts_fire_only_when_they_should() {
    let (Some(helm), Some(promtool)) = (Helm::find(), Promtool::find()) else {
        return;
    };
    let dir = written(&helm.render(&[ON]));
    let tests = dir.path().join("alerts.yaml");
    let text = read("tests/chart/alerts.yaml");
    fs::write(&tests, &text).unwrap();
    for name in names(&alerts()) {
        let cases = text.matches(&format!("alertname: {name}\n")).count();
        assert!(cases >= 2, "{name} has to fire and to be quiet");
    }
    let said = promtool.run(["test".as_ref(), "rules".as_ref(), tests.as_os_str()], "");
    assert!(said.as_ref().is_ok_and(|said| said.contains("SUCCESS")), "{said:?}");
}

#[test]
fn alerts_use_existing_metrics_and_labels() {
    let known = Known::new();
    let events = read("docs/events.md");
    let states = read("docs/status.md");
    for alert in alerts() {
        let expr = alert["expr"].as_str().unwrap();
        let labels = known.assert_mentions(expr);
        let description = alert["annotations"]["description"].as_str().unwrap();
        for (_, rest) in description
            .match_indices("$labels.")
            .map(|(at, it)| description.split_at(at + it.len()))
        {
            let label = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap();
            assert!(labels.contains(label), "{expr} has no label {label}");
        }
        for (metric, asked) in selectors(expr) {
            for (label, values) in asked {
                let page = match (metric.as_str(), label.as_str()) {
                    ("local_volume_provisioner_unhealthy_persistentvolume", "reason") => &events,
                    (_, "state") => &states,
                    _ => continue,
                };
                for value in values.split('|') {
                    assert!(page.contains(&format!("`{value}`")), "no {label} {value}");
                }
            }
        }
    }
}

#[test]
fn each_alert_names_the_problem_the_place_and_the_remedy() {
    let page = read("docs/alerts.md");
    let alerts = alerts();
    for alert in &alerts {
        let name = alert["alert"].as_str().unwrap();
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}");
        let annotations = &alert["annotations"];
        let summary = annotations["summary"].as_str().unwrap();
        assert!(summary.ends_with('.'), "{name}: {summary}");
        let description = annotations["description"].as_str().unwrap();
        // The controller for lost nodes is on whichever node.
        let place = match name {
            "LocalVolumeNodeCleanupFailing" => "{{ or $labels.pod $labels.instance }}",
            "LocalVolumeNodeCleanupNotSynced" => "{{ $labels.job }}",
            _ => "{{ or $labels.node $labels.instance }}",
        };
        assert!(description.contains(place), "{name}");
        let section = format!("\n## {name}\n\n{summary} _{severity}_");
        assert!(page.contains(&section), "docs/alerts.md lacks {section:?}");
    }
    let explained: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(explained, names(&alerts));
}

#[test]
fn the_rule_is_made_when_asked_for_and_as_asked_for() {
    let helm = or_skip!(Helm::find());
    assert!(helm.render(&[]).names("PrometheusRule").is_empty());
    let objects = helm.render(&[ON]);
    let rule = objects.only("PrometheusRule");
    assert_eq!(rule["metadata"]["name"], format!("{RELEASE}-local-volume-provisioner"));
    assert_eq!(rule["metadata"]["namespace"], NAMESPACE);
    let all = rules(&rule["spec"]);
    let alerts = alerts();
    assert_eq!(names(&all), names(&alerts));
    for (rendered, alert) in all.iter().zip(&alerts) {
        let runbook = &rendered["annotations"]["runbook_url"];
        assert!(runbook.is_null(), "a relative link leads nowhere: {runbook}");
        // Nothing in the texts was taken for Helm's.
        assert_eq!(rendered["annotations"]["description"], alert["annotations"]["description"]);
        assert_eq!(rendered["expr"], alert["expr"]);
    }

    let values = json!({ "prometheusRule": {
        "enabled": "yes",
        "namespace": "monitoring",
        "additionalLabels": { "release": "prometheus" },
        "interval": "2m",
        "runbookUrl": "https://example.com/alerts",
        "disabled": ["LocalVolumeDataLeft", "LocalVolumeEventsFailing"],
        "additionalRules": [{ "record": "node:ready", "expr": "local_volume_provisioner_ready" }],
    } });
    let objects = helm.render_values(&values);
    let rule = objects.only("PrometheusRule");
    assert_eq!(rule["metadata"]["namespace"], "monitoring");
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    let some = rules(&rule["spec"]);
    assert_eq!(some.len(), alerts.len() - 2 + 1);
    let url = some[0]["annotations"]["runbook_url"].as_str().unwrap();
    assert_eq!(url, "https://example.com/alerts#localvolumeprovisionerdown");
    assert_eq!(some.last().unwrap()["record"], "node:ready");
    for group in rule["spec"]["groups"].as_array().unwrap() {
        assert_eq!(group["interval"], "2m");
    }
}

/// An unknown name would disable nothing, unnoticed.
#[test]
fn only_alerts_that_exist_can_be_disabled() {
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(chart_dir().join("values.schema.json")).unwrap())
            .unwrap();
    let known = &schema["properties"]["prometheusRule"]["properties"]["disabled"]["items"]["enum"];
    assert_eq!(*known, json!(names(&alerts())));
    let helm = or_skip!(Helm::find());
    let said = helm.refusal(&[ON, "prometheusRule.disabled={LocalVolumeDataLost}"]);
    assert!(said.contains("/prometheusRule/disabled/0"), "{said}");
}
