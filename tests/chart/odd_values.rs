//! Values in odd shapes: what YAML makes of them, names that collide, what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use crate::compat::mounts;
use crate::helm::{Helm, chart_dir, named};

/// The chart's own volumes conflict with no class or further volume, whatever its name.
#[test]
fn volumes_of_any_name_can_be_added() {
    let helm = or_skip!(Helm::find());
    let names = ["udev", "kubelet-pods", "dev", "config"];
    let class = |name| json!({ "name": format!("provisioner-{name}"), "hostDir": "/mnt/a", "namePattern": name });
    let volume = |name| json!({ "name": name, "emptyDir": { "medium": "Memory" } });
    let objects = helm.render_values(&json!({
        "classes": names.map(class),
        "additionalVolumes": names.map(volume),
    }));
    let volumes = objects.pod()["volumes"].as_array().unwrap();
    let all: BTreeSet<_> = volumes.iter().map(|volume| volume["name"].as_str()).collect();
    assert_eq!(all.len(), volumes.len(), "{volumes:#?}");
    assert!(names.iter().all(|name| all.contains(&Some(name))));
}

/// YAML would take what is behind a hash for a comment.
#[test]
fn a_directory_may_have_any_name() {
    let helm = or_skip!(Helm::find());
    let dirs = [
        ("a", "/mnt/a #b"),
        ("b", "/mnt/a: b"),
        ("c", "/mnt/\"a\""),
        ("d", "/mnt/'a'"),
        ("e", "/mnt/ä\\"),
    ];
    let kubelet_dir = dirs.map(|(_, dir)| dir).concat();
    let objects = helm.render_values(&json!({
        "classes": dirs.map(|(name, dir)| json!({ "name": name, "hostDir": dir })),
        "kubeletDir": kubelet_dir,
        "nodeIsolation": { "enabled": true },
    }));
    let args = objects.container()["args"].as_array().unwrap();
    assert!(args.contains(&json!(format!("--kubelet-dir={kubelet_dir}"))));
    let policy = objects.get("ValidatingAdmissionPolicy", "lvp-local-volume-provisioner-volumes");
    let allowed = named(&policy["spec"]["variables"], "hostDirs");
    let allowed: Value = serde_json::from_str(allowed["expression"].as_str().unwrap()).unwrap();
    for (name, dir) in dirs {
        let volumes = &objects.pod()["volumes"];
        assert_eq!(named(volumes, name)["hostPath"]["path"], dir);
        assert_eq!(objects.setting("storageClassMap")[name]["hostDir"], dir);
        assert_eq!(allowed[name], format!("{dir}/"));
    }
}

/// To YAML, some names are numbers or truths.
#[test]
fn names_stay_text() {
    let helm = or_skip!(Helm::find());
    for name in ["123", "true", "1e3", "null"] {
        let values = json!({
            "nameOverride": name,
            "fullnameOverride": name,
            "classes": [{ "name": name, "hostDir": "/mnt/a", "storageClass": true }],
            "priorityClassName": name,
            "serviceMonitor": { "enabled": true, "namespace": name },
            "networkPolicy": { "enabled": true },
            "uninstall": { "enabled": false },
            "nodeIsolation": { "enabled": true },
            "removeNodeNotReadyTaint": true,
        });
        // Every field is one that Kubernetes would take: see `Objects`.
        let objects = helm.render_values(&values);
        for kind in ["DaemonSet", "StorageClass", "Service", "ServiceMonitor", "NetworkPolicy"] {
            assert_eq!(objects.only(kind)["metadata"]["name"], name, "{kind}");
        }
        assert_eq!(objects.pod()["serviceAccountName"], name);
        assert_eq!(objects.pod()["priorityClassName"], name);
        assert_eq!(named(&objects.pod()["volumes"], name)["hostPath"]["path"], "/mnt/a");
        let mut values = values;
        values["uninstall"]["enabled"] = json!(true);
        let objects = helm.render_values(&values);
        let uninstall = format!("{name}-uninstall");
        let role = objects.get("Role", &uninstall);
        assert_eq!(role["rules"][0]["resourceNames"], json!([name]));
    }
    let objects = helm.template_as("123", "7", &[], &[]).unwrap();
    let labels = &objects.only("DaemonSet")["spec"]["selector"]["matchLabels"];
    assert_eq!(labels["app.kubernetes.io/instance"], "123");
    assert_eq!(objects.only("DaemonSet")["metadata"]["namespace"], "7");
}

/// Two classes may split one directory by `namePattern`; Kubernetes refuses two volumes at one path.
#[test]
fn a_directory_that_classes_share_is_mounted_once() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render(&[
        "classes[0].name=a,classes[0].hostDir=/mnt/disks,classes[0].namePattern=a*",
        "classes[1].name=b,classes[1].hostDir=/mnt/disks/,classes[1].namePattern=b*",
        "classes[2].name=devices,classes[2].hostDir=/dev,classes[2].namePattern=nvme*",
    ]);
    let paths: Vec<&str> =
        mounts(objects.container()).into_iter().map(|(_, path, ..)| path).collect();
    for path in ["/mnt/disks", "/dev"] {
        assert_eq!(paths.iter().filter(|other| **other == path).count(), 1, "{paths:?}");
    }
    let classes = objects.setting("storageClassMap");
    assert_eq!(classes.as_object().unwrap().len(), 3);
}

/// Services and Jobs have the shortest names, and no two objects of a kind may have the same.
#[test]
fn a_long_name_is_truncated_and_stays_unique() {
    let helm = or_skip!(Helm::find());
    let long = format!("fullnameOverride={}", "x".repeat(63));
    let features = "serviceMonitor.enabled=true,nodeIsolation.enabled=true,removeNodeNotReadyTaint=true,operatorRole.create=true";
    let objects = helm.render(&[features, &long]);
    let mut seen = BTreeSet::new();
    for object in &objects.0 {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 63, "{name}");
        assert!(seen.insert((object["kind"].as_str(), name)), "{name}");
    }
    assert_eq!(objects.only("DaemonSet")["metadata"]["name"], "x".repeat(63));
}

/// The other chart took whatever YAML makes of them.
#[test]
fn quoted_truths_are_what_they_say() {
    let helm = or_skip!(Helm::find());
    let values = |word: &str| {
        json!({
            "hostPID": word,
            "privileged": word,
            "mountDevVolume": word,
            "rbac": { "create": word },
            "serviceAccount": { "create": word },
            "serviceMonitor": { "enabled": word },
            "minResyncPeriod": "",
        })
    };
    for (word, is) in [("true", true), ("Yes", true), ("false", false), ("no", false)] {
        let objects = helm.render_values(&values(word));
        let host_pid = objects.pod()["hostPID"].as_bool();
        assert_eq!(host_pid.unwrap_or_default(), is, "{word}");
        assert_eq!(objects.container()["securityContext"]["privileged"], is, "{word}");
        let has_dev = mounts(objects.container()).iter().any(|(_, path, ..)| *path == "/dev");
        assert_eq!(has_dev, is, "{word}");
        assert_eq!(!objects.names("ClusterRole").is_empty(), is, "{word}");
        assert_eq!(!objects.names("ServiceAccount").is_empty(), is, "{word}");
        assert_eq!(!objects.names("Service").is_empty(), is, "{word}");
        assert_eq!(objects.config().get("minResyncPeriod"), None);
    }
}

/// `key:` with nothing behind it takes the chart's default away, and nothing must come of that.
#[test]
fn a_key_without_a_value_is_as_good_as_none() {
    let helm = or_skip!(Helm::find());
    let chart: Value =
        serde_saphyr::from_str(&fs::read_to_string(chart_dir().join("values.yaml")).unwrap())
            .unwrap();
    let keys = chart.as_object().unwrap().keys();
    let none = keys.filter(|key| !["classes", "image"].contains(&key.as_str()));
    let none: BTreeMap<_, _> = none.map(|key| (key, Value::Null)).collect();
    let (objects, default) = (helm.render_values(&json!(none)), helm.render(&[]));
    assert_eq!(objects.0.len(), default.0.len());
    for (object, expected) in objects.0.iter().zip(&default.0) {
        let mut expected = expected.clone();
        // Without these, the defaults of the program and of Kubernetes hold.
        if let Some(data) = expected.get_mut("data").and_then(Value::as_object_mut) {
            data.remove("minResyncPeriod");
        }
        for (place, key) in
            [("/spec", "minReadySeconds"), ("/spec/template/spec", "priorityClassName")]
        {
            let place = expected.pointer_mut(place);
            if let Some(map) = place.and_then(Value::as_object_mut) {
                map.remove(key);
            }
        }
        let containers = expected.pointer_mut("/spec/template/spec/containers");
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            let container = container.as_object_mut().unwrap();
            container.remove("imagePullPolicy");
            container.remove("resources");
        }
        assert_eq!(*object, expected);
    }
}
