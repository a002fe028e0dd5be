//! Values files written for the Go provisioner's chart. What each of its keys becomes is in
//! `values/everything.rendered.yaml`, which `deploy.rs` compares.

use std::path::Path;

use serde_json::{Value, json};

use crate::helm::{Helm, Objects, named};

/// Each mount as (volume, path, propagation, read-only).
pub fn mounts(container: &Value) -> Vec<(&str, &str, &str, bool)> {
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    mounts
        .map(|mount| {
            (
                mount["name"].as_str().unwrap(),
                mount["mountPath"].as_str().unwrap(),
                mount["mountPropagation"].as_str().unwrap_or("None"),
                mount["readOnly"] == true,
            )
        })
        .collect()
}

#[test]
fn the_kubelets_directory_and_dev_are_mounted_as_configured() {
    let helm = or_skip!(Helm::find());
    // mountDevVolume is true by default, and the kubelet can have another directory.
    let objects = helm.render(&["kubeletDir=/data/kubelet/"]);
    let mounted = mounts(objects.container());
    assert!(mounted.contains(&("provisioner-dev", "/dev", "None", false)));
    let dev = json!({ "path": "/dev", "type": "Directory" });
    let volumes = &objects.pod()["volumes"];
    assert_eq!(named(volumes, "provisioner-dev")["hostPath"], dev);
    assert_eq!(
        named(volumes, "provisioner-kubelet-pods")["hostPath"]["path"],
        "/data/kubelet/pods"
    );
    let args = objects.container()["args"].as_array().unwrap();
    assert!(args.contains(&json!("--kubelet-dir=/data/kubelet")));

    // Without privileges, devices are only listed.
    let objects = helm.render(&["privileged=false"]);
    let mounted = mounts(objects.container());
    assert!(mounted.contains(&("provisioner-dev", "/dev", "None", true)));
}

/// Without a class that has links, those of earlier classes are removed at the start.
#[test]
fn directory_of_the_links_is_always_mounted() {
    let helm = or_skip!(Helm::find());
    let mount = ("provisioner-links", "/run/local-volume-provisioner", "None", false);
    for binding in [Value::Null, "path".into(), "disk".into()] {
        let class = json!({ "name": "a", "hostDir": "/a", "binding": binding });
        let objects = helm.render_values(&json!({ "classes": [class] }));
        assert!(mounts(objects.container()).contains(&mount), "{binding}");
        let volume = named(&objects.pod()["volumes"], mount.0);
        let expected = json!({ "path": mount.1, "type": "DirectoryOrCreate" });
        assert_eq!(volume["hostPath"], expected, "{binding}");
        let given = objects.setting("storageClassMap");
        assert_eq!(given["a"].get("binding").unwrap_or(&Value::Null), &binding);
    }
}

#[test]
fn termination_message_of_each_container_is_below_no_mount() {
    let helm = or_skip!(Helm::find());
    let odd = json!({
        "privileged": false,
        "nodeCleanup": { "enabled": true },
        "kubeletDir": "/run/kubelet",
        "classes": [
            { "name": "devices", "hostDir": "/dev" },
            { "name": "files", "hostDir": "/mnt/files", "mountDir": "/tmp" },
        ],
        "additionalVolumes": [{ "name": "run", "hostPath": { "path": "/run" } }],
        "additionalVolumeMounts": [{ "name": "run", "mountPath": "/run", "readOnly": true }],
    });
    for objects in [
        helm.render(&["nodeCleanup.enabled=true"]),
        helm.render(&["nodeCleanup.enabled=true", "privileged=false"]),
        helm.render_file("everything.yaml", &["nodeCleanup.enabled=true"]),
        helm.render_values(&odd),
    ] {
        let pods = objects.pods();
        let mut kinds: Vec<&str> = pods.iter().map(|(kind, _)| *kind).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["DaemonSet", "Deployment", "Job"]);
        for (kind, pod) in pods {
            for container in pod["containers"].as_array().unwrap() {
                let path = &container["terminationMessagePath"];
                assert_eq!(*path, "/termination-log", "{kind}");
                let mounts = container["volumeMounts"].as_array();
                for mount in mounts.into_iter().flatten() {
                    let above = Path::new(mount["mountPath"].as_str().unwrap());
                    assert!(!Path::new("/termination-log").starts_with(above), "{mount}");
                }
            }
        }
    }
}

#[test]
fn storage_classes_are_made_when_asked_for() {
    let helm = or_skip!(Helm::find());
    // Text of a template's making is no template in a list.
    let braces = json!([{ "matchLabelExpressions": [{ "key": "x", "values": ["{{ x"] }] }]);
    let class = |(name, storage_class): (&str, Value)| {
        json!({
            "name": name,
            "hostDir": format!("/{name}"),
            "storageClass": storage_class,
            "allowedTopologies": braces,
        })
    };
    let asked = [
        ("true", json!(true)),
        ("quoted", json!("true")),
        ("yes", json!("Yes")),
        ("map", json!({ "reclaimPolicy": "Delete" })),
    ];
    let not_asked = [
        ("false", json!(false)),
        ("null", json!(null)),
        ("quoted-false", json!("false")),
        ("no", json!("no")),
    ];
    let classes: Vec<_> = asked.clone().into_iter().chain(not_asked).map(class).collect();
    let objects = helm.render_values(&json!({ "classes": classes }));
    assert_eq!(objects.names("StorageClass"), asked.each_ref().map(|(name, _)| *name));
    for (name, _) in asked {
        assert_eq!(objects.get("StorageClass", name)["allowedTopologies"], braces);
    }
    assert_eq!(helm.render(&[]).names("StorageClass"), ["fast-disks"]);
}

#[test]
fn every_object_is_called_by_the_full_name() {
    let helm = or_skip!(Helm::find());
    let features = "serviceMonitor.enabled=true,networkPolicy.enabled=true,\
        nodeIsolation.enabled=true,removeNodeNotReadyTaint=true,\
        operatorRole.create=true,prometheusRule.enabled=true,dashboard.enabled=true";
    for (set, expected) in [
        ("", "lvp-local-volume-provisioner"),
        ("nameOverride=disks", "lvp-disks"),
        ("nameOverride=lvp", "lvp"),
        ("fullnameOverride=my-disks", "my-disks"),
    ] {
        let objects = helm.render(&[features, set]);
        let of_release = |object: &&Value| object["kind"] != "StorageClass";
        for object in objects.0.iter().filter(of_release) {
            let name = object["metadata"]["name"].as_str().unwrap();
            let rest = name.strip_prefix(expected);
            assert!(
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')),
                "{} {name} is not called {expected}",
                object["kind"]
            );
        }
    }
}

/// A pod has to be replaced by what the running program cannot take over, and by nothing else.
#[test]
fn pods_roll_for_changes_that_a_reload_cannot_apply() {
    let helm = or_skip!(Helm::find());
    let render = |sets: &[&str]| helm.render(sets);
    let template = |objects: &Objects| objects.only("DaemonSet")["spec"]["template"].clone();
    let config = |objects: &Objects| objects.only("ConfigMap")["data"].clone();
    let one = ["classes[0].name=a", "classes[0].hostDir=/mnt/a"];
    let before = render(&one);
    let with = |more: &[&str]| render(&[&one, more].concat());
    let reloaded = with(&[
        "maxConcurrentCleanups=2",
        "pauseCleaning=true",
        "labelsForPV.tier=fast",
        "useNodeNameOnly=true",
        "classes[0].namePattern=x*",
        "classes[0].cleanMethod=zero",
        "classes[0].volumeMode=Block",
        "classes[0].binding=disk",
        // A second class of the same disks.
        "classes[1].name=b",
        "classes[1].hostDir=/mnt/a",
    ]);
    assert_ne!(config(&reloaded), config(&before));
    assert_eq!(template(&reloaded), template(&before));
    for rolled in [
        &["classes[1].name=b", "classes[1].hostDir=/mnt/b"][..],
        &["classes[0].hostDir=/mnt/b"],
        &["classes[0].mountDir=/elsewhere"],
        &["kubeletDir=/data/kubelet"],
    ] {
        assert_ne!(template(&with(rolled)), template(&before), "{rolled:?}");
    }
    let elsewhere = with(&[
        "rbac.create=false",
        "serviceMonitor.enabled=true",
        "prometheusRule.enabled=true",
        "dashboard.enabled=true",
        "networkPolicy.enabled=true",
    ]);
    assert_eq!(template(&elsewhere), template(&before));
}
