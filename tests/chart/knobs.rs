//! Values that pass a setting on to an object.

use serde_json::json;

use crate::helm::{Helm, chart_dir};

#[test]
fn each_value_arrives_at_its_place() {
    let helm = or_skip!(Helm::find());
    let env = json!([{ "name": "RUST_BACKTRACE", "value": "1" }]);
    let pod = "/spec/template/spec";
    let container = "/spec/template/spec/containers/0";
    let relabel = json!([{ "action": "labeldrop", "regex": "x" }]);
    for (values, kind, place, expected) in [
        (
            json!({ "terminationGracePeriodSeconds": 0 }),
            "DaemonSet",
            format!("{pod}/terminationGracePeriodSeconds"),
            json!(0),
        ),
        (
            json!({ "extraArgs": ["--release-quiet-period=1m"] }),
            "DaemonSet",
            format!("{container}/args/2"),
            json!("--release-quiet-period=1m"),
        ),
        (
            json!({ "additionalArgs": ["--v=2"], "extraArgs": ["--v=1"] }),
            "DaemonSet",
            format!("{container}/args/3"),
            json!("--v=2"),
        ),
        (json!({ "extraEnv": env }), "DaemonSet", format!("{container}/env/7"), env[0].clone()),
        (
            json!({ "commonLabels": { "team": "storage" } }),
            "ConfigMap",
            "/metadata/labels/team".into(),
            json!("storage"),
        ),
        (
            json!({ "commonLabels": { "team": "storage" } }),
            "DaemonSet",
            "/spec/template/metadata/labels/team".into(),
            json!("storage"),
        ),
        (
            json!({ "commonLabels": { "team": "storage" }, "podLabels": { "team": "disks" } }),
            "DaemonSet",
            "/spec/template/metadata/labels/team".into(),
            json!("disks"),
        ),
        (
            json!({ "commonLabels": { "team": "storage" }, "nodeCleanup": { "enabled": true } }),
            "Deployment",
            "/spec/template/metadata/labels/team".into(),
            json!("storage"),
        ),
        (
            json!({ "commonLabels": { "team": "storage" } }),
            "Job",
            "/spec/template/metadata/labels/team".into(),
            json!("storage"),
        ),
        (json!({ "hostPID": true }), "DaemonSet", format!("{pod}/hostPID"), json!(true)),
        (
            json!({ "serviceAccount": { "annotations": { "a": "b" } } }),
            "ServiceAccount",
            "/metadata/annotations/a".into(),
            json!("b"),
        ),
        (
            json!({ "podMonitor": { "enabled": true, "scrapeTimeout": "5s" } }),
            "PodMonitor",
            "/spec/podMetricsEndpoints/0/scrapeTimeout".into(),
            json!("5s"),
        ),
        (
            json!({ "serviceMonitor": { "enabled": true, "metricRelabelings": relabel } }),
            "ServiceMonitor",
            "/spec/endpoints/0/metricRelabelings".into(),
            relabel.clone(),
        ),
        (
            json!({ "extraObjects": ["kind: Service\nmetadata: { name: '{{ .Release.Name }}' }"] }),
            "Service",
            "/metadata/name".into(),
            json!("lvp"),
        ),
    ] {
        let objects = helm.render_values(&values);
        let of_kind = || objects.0.iter().filter(|object| object["kind"] == kind);
        let found = of_kind().find_map(|object| object.pointer(&place));
        assert_eq!(found, Some(&expected), "{values}: {place}");
    }
}

/// A selector cannot be changed.
#[test]
fn common_labels_are_in_no_selector() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render_values(&json!({
        "commonLabels": { "team": "storage" },
        "nodeCleanup": { "enabled": true, "podLabels": { "team": "storage" } },
        "networkPolicy": { "enabled": true },
        "uninstall": { "enabled": false },
    }));
    for object in &objects.0 {
        let selectors = ["/spec/selector", "/spec/podSelector"].map(|path| object.pointer(path));
        for selector in selectors.into_iter().flatten() {
            let labels = selector["matchLabels"].as_object().unwrap();
            assert!(!labels.contains_key("team"), "{labels:?}");
        }
    }
}

/// Without a class, pods start and no directory for volumes is created on a node.
#[test]
fn bare_installation_has_no_class() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render_values(&json!({ "classes": [] }));
    assert_eq!(objects.setting("storageClassMap"), json!({}));
    assert!(objects.names("StorageClass").is_empty());
    let volumes = objects.pod()["volumes"].as_array().unwrap();
    let names = volumes.iter().map(|volume| volume["name"].as_str().unwrap());
    assert!(names.clone().all(|name| name.starts_with("provisioner-")));
}

#[test]
fn the_image_is_a_text_or_a_map() {
    let helm = or_skip!(Helm::find());
    let version = env!("CARGO_PKG_VERSION");
    let digest = format!("sha256:{}", "0".repeat(64));
    for (image, expected) in [
        (json!("example.com/a:{{ .Chart.AppVersion }}"), format!("example.com/a:{version}")),
        (
            json!({ "registry": "example.com" }),
            format!("example.com/local-volume-provisioner:{version}"),
        ),
        (json!({ "repository": "lvp", "tag": "dev" }), "lvp:dev".into()),
        (
            json!({ "registry": "example.com:5000/", "tag": "dev", "digest": digest }),
            format!("example.com:5000/local-volume-provisioner@{digest}"),
        ),
    ] {
        let objects = helm.render_values(&json!({ "image": image }));
        assert_eq!(objects.container()["image"], *expected, "{image}");
    }
    for (image, expected) in [
        (json!("lvp:dev"), "lvp:dev".into()),
        (json!({}), format!("r.example.com/local-volume-provisioner:{version}")),
        (json!(null), format!("r.example.com/local-volume-provisioner:{version}")),
        (
            json!({ "registry": "example.com", "repository": "disks/lvp", "tag": "dev" }),
            "r.example.com/disks/lvp:dev".into(),
        ),
    ] {
        let global = json!({ "imageRegistry": "r.example.com/" });
        let objects = helm.render_values(&json!({ "image": image, "global": global }));
        assert_eq!(objects.container()["image"], *expected, "{image}");
    }
    helm.refusal_of(&json!({ "image": { "tags": "dev" } }));
}

#[test]
fn a_storage_class_has_its_settings() {
    let helm = or_skip!(Helm::find());
    let storage_class = json!({
        "isDefaultClass": true,
        "mountOptions": ["noatime"],
        "allowVolumeExpansion": true,
        "annotations": { "a": "b" },
        "labels": { "c": "d" },
    });
    let class = json!({ "name": "fast", "hostDir": "/fast", "storageClass": storage_class });
    let objects = helm.render_values(&json!({ "classes": [class] }));
    let made = objects.get("StorageClass", "fast");
    assert_eq!(made["mountOptions"], json!(["noatime"]));
    assert_eq!(made["allowVolumeExpansion"], true);
    assert_eq!(
        made["metadata"]["annotations"],
        json!({ "a": "b", "storageclass.kubernetes.io/is-default-class": "true" })
    );
    assert_eq!(made["metadata"]["labels"]["c"], "d");
}

#[test]
fn a_directory_is_created_unless_that_is_refused() {
    let helm = or_skip!(Helm::find());
    for (create, expected) in [
        (json!("yes"), "DirectoryOrCreate"),
        (json!(true), "DirectoryOrCreate"),
        (json!("no"), "Directory"),
    ] {
        let class = json!({ "name": "fast", "hostDir": "/fast", "createHostDir": create });
        let objects = helm.render_values(&json!({ "classes": [class] }));
        let volume = crate::helm::named(&objects.pod()["volumes"], "fast");
        assert_eq!(volume["hostPath"]["type"], expected, "{create}");
    }
}

#[test]
fn openshift_lets_the_pods_use_their_constraints() {
    let helm = or_skip!(Helm::find());
    let used = |sets: &[&str]| {
        let objects = helm.render(sets);
        let rules = objects.0.iter().flat_map(|object| {
            let rules = object["rules"].as_array().cloned().unwrap_or_default();
            rules.into_iter()
        });
        let of_scc = rules.filter(|rule| rule["resources"][0] == "securitycontextconstraints");
        let mut names: Vec<_> = of_scc.map(|rule| rule["resourceNames"][0].clone()).collect();
        names.sort_by_key(ToString::to_string);
        names
    };
    assert!(used(&[]).is_empty());
    let all = ["openshift.enabled=true", "nodeCleanup.enabled=true"];
    assert_eq!(used(&all), ["nonroot-v2", "nonroot-v2", "privileged"]);
    assert!(used(&[all[0], "openshift.scc=own"]).contains(&json!("own")));
}

#[test]
fn a_comment_precedes_each_value() {
    let text = std::fs::read_to_string(chart_dir().join("values.yaml")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    for pair in lines.windows(2) {
        let is_key =
            pair[1].trim_start_matches([' ', '-']).contains(": ") || pair[1].ends_with(':');
        let is_value = is_key && !pair[1].trim_start().starts_with('#');
        // Parts of a default, not of the chart.
        let is_inner = ["cpu:", "memory:", "grafana_dashboard:"];
        if is_value && !is_inner.iter().any(|key| pair[1].trim_start().starts_with(key)) {
            assert!(pair[0].trim_start().starts_with('#'), "{}", pair[1]);
        }
    }
}
