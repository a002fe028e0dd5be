//! The dashboard: that Grafana finds it, and that its panels show what there is.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use support::Promtool;

use crate::helm::{Helm, NAMESPACE, chart_dir};
use crate::promql::Known;

const ON: &str = "dashboard.enabled=true";

fn dashboard() -> Value {
    let text = fs::read_to_string(chart_dir().join("files/dashboard.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// Each expression of each panel, with the panel's title and the legend.
fn expressions(dashboard: &Value) -> Vec<(&str, &str, &str)> {
    let panels = list(dashboard, "panels");
    let targets = panels.flat_map(|panel| list(panel, "targets").map(move |it| (panel, it)));
    targets
        .map(|(panel, target)| {
            (
                panel["title"].as_str().unwrap(),
                target["expr"].as_str().unwrap(),
                target["legendFormat"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}

#[test]
fn grafana_finds_the_dashboard() {
    let helm = or_skip!(Helm::find());
    let name = "lvp-local-volume-provisioner-dashboard";
    assert!(!helm.render(&[]).names("ConfigMap").contains(&name));
    let objects = helm.render(&[ON]);
    let map = objects.get("ConfigMap", name);
    assert_eq!(map["metadata"]["namespace"], NAMESPACE);
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(map["metadata"].get("annotations"), None);
    let data = map["data"]["local-volume-provisioner.json"].as_str().unwrap();
    let rendered: Value = serde_json::from_str(data).unwrap();
    assert_eq!(rendered, dashboard());

    let values = json!({ "dashboard": {
        "enabled": true,
        "namespace": "monitoring",
        "labels": { "grafana_dashboard": null, "dashboards": "yes" },
        "annotations": { "grafana_folder": "Storage" },
    } });
    let objects = helm.render_values(&values);
    let metadata = &objects.get("ConfigMap", name)["metadata"];
    assert_eq!(metadata["namespace"], "monitoring");
    assert_eq!(metadata["annotations"]["grafana_folder"], "Storage");
    assert_eq!(metadata["labels"]["dashboards"], "yes");
    assert_eq!(metadata["labels"].get("grafana_dashboard"), None);
}

#[test]
fn panels_show_metrics_that_exist() {
    let known = Known::new();
    for (title, expr, legend) in expressions(&dashboard()) {
        let labels = known.assert_mentions(expr);
        for part in legend.split("{{").skip(1) {
            let label = part.split("}}").next().unwrap();
            assert!(labels.contains(label), "{title}: {label}");
        }
    }
}

/// As the expressions of recording rules they are checked without a server.
#[test]
fn promtool_accepts_all_expressions() {
    let promtool = or_skip!(Promtool::find());
    let dashboard = dashboard();
    let rules: Vec<_> = expressions(&dashboard)
        .into_iter()
        .enumerate()
        .map(
            |(at, (_, expr, _))| json!({ "record": format!("panel_{at}"), "expr": in_force(expr) }),
        )
        .collect();
    let count = rules.len();
    let file = tempfile::NamedTempFile::new().unwrap();
    let groups = json!({ "groups": [{ "name": "panels", "rules": rules }] });
    fs::write(file.path(), groups.to_string()).unwrap();
    let check = ["check".as_ref(), "rules".as_ref(), file.path().as_os_str()];
    let said = promtool.run(check, "").unwrap();
    assert!(said.contains(&format!("{count} rules found")), "{said}");
}

/// With all variables replaced, as Grafana does.
fn in_force(expr: &str) -> String {
    let expr = expr.replace("$__rate_interval", "5m");
    let expr = expr.replace("$node", ".*").replace("$class", ".*");
    assert!(!expr.contains('$'), "{expr}");
    expr
}

#[test]
fn the_json_is_one_that_grafana_keeps() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "local-volume-provisioner");
    assert!(dashboard["schemaVersion"].as_u64() >= Some(39));
    // What an export has of one installation only.
    for key in ["id", "__inputs", "iteration"] {
        assert_eq!(dashboard.get(key), None, "{key}");
    }
    let variables: Vec<_> = list(&dashboard["templating"], "list")
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(variables, ["datasource", "node", "class"]);
    let rows: Vec<_> = list(&dashboard, "panels")
        .filter(|panel| panel["type"] == "row")
        .map(|panel| panel["title"].as_str().unwrap())
        .collect();
    assert_eq!(rows, ["Fleet", "Volumes", "Cleanups", "API server", "Resources"]);

    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in list(&dashboard, "panels") {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let of = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(of("x") + of("w") <= 24, "{title}");
        for (x, y) in (of("x")..of("x") + of("w"))
            .flat_map(|x| (of("y")..of("y") + of("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert((x, y)), "{title} lies over another panel");
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            assert!(list(panel, "targets").count() > 0, "{title}");
        }
        let mut refs = BTreeSet::new();
        assert!(list(panel, "targets").all(|target| refs.insert(target["refId"].to_string())));
    }
}
