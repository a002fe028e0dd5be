//! Values files written for the other provisioner's chart: each key has its effect.

use serde_json::{Value, json};

use crate::helm::{Helm, NAMESPACE, Objects, named};

/// Every key at once, object by object.
#[test]
fn every_key_has_its_effect_on_the_daemon_set() {
    let Some(helm) = Helm::find() else { return };
    let objects = helm.render_file("everything.yaml", &[]);
    let daemon_set = objects.only("DaemonSet");
    assert_eq!(daemon_set["metadata"]["name"], "disks");
    assert_eq!(daemon_set["metadata"]["namespace"], NAMESPACE);
    let selector = json!({
        "app.kubernetes.io/name": "local-static-provisioner",
        "app.kubernetes.io/instance": "lvp",
    });
    let spec = &daemon_set["spec"];
    assert_eq!(spec["selector"]["matchLabels"], selector);
    assert_eq!(
        spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
        "30%"
    );
    let labels = &spec["template"]["metadata"]["labels"];
    assert_eq!(labels["team"], "storage");
    for (label, value) in selector.as_object().unwrap() {
        assert_eq!(&labels[label], value);
    }
    assert_eq!(
        spec["template"]["metadata"]["annotations"]["example.com/owner"],
        "storage"
    );

    let pod = objects.pod();
    for (field, expected) in [
        ("serviceAccountName", json!("disk-account")),
        ("imagePullSecrets", json!([{ "name": "registry" }])),
        ("priorityClassName", json!("system-node-critical")),
        ("hostPID", json!(true)),
        (
            "nodeSelector",
            json!({ "disks": "local", "kubernetes.io/os": "linux" }),
        ),
        (
            "tolerations",
            json!([
                { "key": "dedicated", "operator": "Equal", "value": "database", "effect": "NoSchedule" },
                { "key": "example.com/disks-missing", "operator": "Exists" },
            ]),
        ),
    ] {
        assert_eq!(pod[field], expected, "{field}");
    }
    let term = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        [0]["matchExpressions"][0];
    assert_eq!(*term, json!({ "key": "disks", "operator": "Exists" }));
    assert_eq!(pod["initContainers"][0]["image"], "example.com/format:1");

    let container = objects.container();
    for (field, expected) in [
        ("image", json!("example.com/disks:lvp")),
        ("imagePullPolicy", json!("Always")),
        (
            "ports",
            json!([{ "name": "metrics", "containerPort": 8080 }]),
        ),
        ("resources", json!({ "limits": { "memory": "64Mi" } })),
        (
            "livenessProbe",
            json!({ "tcpSocket": { "port": "metrics" }, "initialDelaySeconds": 60 }),
        ),
        (
            "readinessProbe",
            json!({ "httpGet": { "path": "/healthz", "port": "metrics" }, "periodSeconds": 7 }),
        ),
        (
            "startupProbe",
            json!({ "httpGet": { "path": "/healthz", "port": "metrics" }, "failureThreshold": 30 }),
        ),
        // The map wins over `privileged: false`.
        (
            "securityContext",
            json!({ "privileged": true, "runAsGroup": 5, "readOnlyRootFilesystem": true }),
        ),
    ] {
        assert_eq!(container[field], expected, "{field}");
    }
    let env = |name: &str| &named(&container["env"], name)["value"];
    assert_eq!(env("KUBECONFIG"), "/etc/kubernetes/admin.conf");
    assert_eq!(env("JOB_CONTAINER_IMAGE"), "example.com/disks:lvp");
    assert_eq!(env("JOB_IMAGE_PULL_SECRETS"), "registry");
}

#[test]
fn the_environment_says_where_the_pod_runs() {
    let Some(helm) = Helm::find() else { return };
    let objects = helm.render(&[]);
    let env = &objects.container()["env"];
    for (name, field) in [
        ("MY_NODE_NAME", "spec.nodeName"),
        ("MY_NAMESPACE", "metadata.namespace"),
        ("POD_NAME", "metadata.name"),
        ("POD_UID", "metadata.uid"),
    ] {
        assert_eq!(
            named(env, name)["valueFrom"]["fieldRef"]["fieldPath"],
            field
        );
    }
    let names = env.as_array().unwrap().iter().map(|env| &env["name"]);
    assert!(names.clone().all(|name| name != "KUBECONFIG"));
}

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
fn what_is_mounted() {
    let Some(helm) = Helm::find() else { return };
    let objects = helm.render_file("everything.yaml", &[]);
    let mounted = mounts(objects.container());
    let (raw, ..) = mounted[2];
    assert_eq!(
        mounted,
        [
            (
                "provisioner-config",
                "/etc/provisioner/config",
                "None",
                true
            ),
            ("fast", "/fast", "HostToContainer", false),
            (raw, "/mnt/raw", "HostToContainer", false),
            (
                "provisioner-kubelet-pods",
                "/var/lib/kubelet/pods",
                "HostToContainer",
                true
            ),
            (
                "provisioner-kubelet-plugins",
                "/var/lib/kubelet/plugins",
                "HostToContainer",
                true
            ),
            ("provisioner-udev", "/run/udev/data", "None", true),
            ("scripts", "/my-scripts", "None", false),
        ]
    );
    // "raw.block" can be a class but no volume.
    assert!(raw.starts_with("class-") && raw.len() <= 63, "{raw}");
    let volumes = &objects.pod()["volumes"];
    for (name, path) in [
        ("fast", "/mnt/fast"),
        (raw, "/mnt/raw"),
        ("provisioner-kubelet-pods", "/var/lib/kubelet/pods"),
        ("provisioner-kubelet-plugins", "/var/lib/kubelet/plugins"),
        ("provisioner-udev", "/run/udev/data"),
    ] {
        let expected = json!({ "path": path, "type": "DirectoryOrCreate" });
        assert_eq!(named(volumes, name)["hostPath"], expected);
    }
    assert_eq!(
        named(volumes, "provisioner-config")["configMap"]["name"],
        "disks-config"
    );
    assert_eq!(named(volumes, "scripts")["configMap"]["name"], "my-scripts");

    // mountDevVolume is true where nobody says otherwise, and the kubelet can live elsewhere.
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

    // Without privileges, devices are looked at and no more.
    let objects = helm.render(&["privileged=false"]);
    let mounted = mounts(objects.container());
    assert!(mounted.contains(&("provisioner-dev", "/dev", "None", true)));
}

#[test]
fn storage_classes_are_made_when_asked_for() {
    let Some(helm) = Helm::find() else { return };
    let objects = helm.render_file("everything.yaml", &[]);
    assert_eq!(objects.names("StorageClass"), ["fast", "raw.block"]);
    let fast = objects.get("StorageClass", "fast");
    for (field, expected) in [
        ("provisioner", json!("example.com/local")),
        ("reclaimPolicy", json!("Retain")),
        ("volumeBindingMode", json!("WaitForFirstConsumer")),
        (
            "allowedTopologies",
            json!([{ "matchLabelExpressions": [{ "key": "kubernetes.io/hostname", "values": ["node-1"] }] }]),
        ),
    ] {
        assert_eq!(fast[field], expected, "{field}");
    }
    assert_eq!(
        fast["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"],
        "true"
    );
    let raw = objects.get("StorageClass", "raw.block");
    assert_eq!(raw["provisioner"], "kubernetes.io/no-provisioner");
    assert_eq!(raw["reclaimPolicy"], "Delete");
    assert_eq!(raw["metadata"].get("annotations"), None);
    // Text is run through tpl.
    assert_eq!(
        raw["allowedTopologies"][0]["matchLabelExpressions"][0]["values"][0],
        "lvp"
    );
    assert!(helm.render(&[]).names("StorageClass").is_empty());
    for off in ["false", "null"] {
        let off = format!("classes[0].name=a,classes[0].hostDir=/a,classes[0].storageClass={off}");
        assert!(helm.render(&[&off]).names("StorageClass").is_empty());
    }
    // Text of a template's making is no template in a list.
    let braces = json!([{ "matchLabelExpressions": [{ "key": "x", "values": ["{{ x"] }] }]);
    let class = |storage_class: Value| {
        json!({ "classes": [{
            "name": "a",
            "hostDir": "/a",
            "storageClass": storage_class,
            "allowedTopologies": braces,
        }] })
    };
    for asked in [
        json!(true),
        json!("true"),
        json!("Yes"),
        json!({ "reclaimPolicy": "Delete" }),
    ] {
        let objects = helm.render_values(&class(asked));
        assert_eq!(objects.only("StorageClass")["allowedTopologies"], braces);
    }
    for no in ["false", "no"] {
        let objects = helm.render_values(&class(json!(no)));
        assert!(objects.names("StorageClass").is_empty());
    }
}

#[test]
fn metrics_are_scraped_when_asked_for() {
    let Some(helm) = Helm::find() else { return };
    let objects = helm.render_file("everything.yaml", &[]);
    let selector = &objects.only("DaemonSet")["spec"]["selector"]["matchLabels"];
    let service = objects.only("Service");
    // As the other chart calls it: who scrapes it by name goes on.
    assert_eq!(service["metadata"]["name"], "disks");
    assert_eq!(&service["spec"]["selector"], selector);
    assert_eq!(
        service["spec"]["ports"],
        json!([{ "name": "metrics", "port": 8080, "targetPort": "metrics" }])
    );
    let monitor = objects.only("ServiceMonitor");
    assert_eq!(monitor["metadata"]["namespace"], "monitoring");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(
        monitor["spec"]["namespaceSelector"]["matchNames"],
        json!([NAMESPACE])
    );
    // It finds the Service, and nothing else of this release.
    let wanted = &monitor["spec"]["selector"]["matchLabels"];
    for (label, value) in wanted.as_object().unwrap() {
        assert_eq!(&service["metadata"]["labels"][label], value);
    }
    assert_eq!(
        monitor["spec"]["endpoints"],
        json!([{
            "port": "metrics",
            "interval": "30s",
            // Ours, which the alerts need, and the one of the file, which wins.
            "relabelings": [
                { "sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node" },
                { "sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node" },
            ],
        }])
    );

    let quiet = helm.render(&[]);
    assert!(quiet.names("Service").is_empty() && quiet.names("ServiceMonitor").is_empty());
    let plain = helm.render(&["serviceMonitor.enabled=true"]);
    let monitor = plain.only("ServiceMonitor");
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["interval"], "10s");
    assert_eq!(endpoint["relabelings"][0]["targetLabel"], "node");
    assert_eq!(monitor["metadata"]["namespace"], NAMESPACE);
}

#[test]
fn every_object_is_called_by_the_full_name() {
    let Some(helm) = Helm::find() else { return };
    let features = "serviceMonitor.enabled=true,networkPolicy.enabled=true,\
        nodeIsolation.enabled=true,removeNodeNotReadyTaint=true,\
        prometheusRule.enabled=true,dashboard.enabled=true";
    for (set, expected) in [
        ("", "lvp-local-volume-provisioner"),
        ("nameOverride=disks", "lvp-disks"),
        ("nameOverride=lvp", "lvp"),
        ("fullnameOverride=my-disks", "my-disks"),
    ] {
        for object in &helm.render(&[features, set]).0 {
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

#[test]
fn probes_ask_healthz_unless_told_otherwise() {
    let Some(helm) = Helm::find() else { return };
    let objects = helm.render(&[]);
    let healthz = json!({ "path": "/healthz", "port": "metrics" });
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(objects.container()[probe]["httpGet"], healthz, "{probe}");
    }
    assert_eq!(objects.container().get("startupProbe"), None);
}

/// A pod has to be replaced by what the running program cannot take over, and by nothing else.
#[test]
fn pods_roll_for_what_a_reload_cannot_apply() {
    let Some(helm) = Helm::find() else { return };
    let render = |sets: &[&str]| helm.render(sets);
    let template = |objects: &Objects| objects.only("DaemonSet")["spec"]["template"].clone();
    let config = |objects: &Objects| objects.only("ConfigMap")["data"].clone();
    let one = ["classes[0].name=a", "classes[0].hostDir=/mnt/a"];
    let before = render(&one);
    let with = |more: &[&str]| render(&[&one, more].concat());
    for reloaded in [
        &["maxConcurrentCleanups=2"][..],
        &["pauseCleaning=true"],
        &["labelsForPV.tier=fast"],
        &["useNodeNameOnly=true"],
        &["classes[0].namePattern=x*"],
        &["classes[0].cleanMethod=zero"],
        &["classes[0].name=a", "classes[0].volumeMode=Block"],
        // A second class of the same disks.
        &["classes[1].name=b", "classes[1].hostDir=/mnt/a"],
    ] {
        let after = with(reloaded);
        assert_ne!(config(&after), config(&before), "{reloaded:?}");
        assert_eq!(template(&after), template(&before), "{reloaded:?}");
    }
    for rolled in [
        &["classes[1].name=b", "classes[1].hostDir=/mnt/b"][..],
        &["classes[0].hostDir=/mnt/b"],
        &["classes[0].mountDir=/elsewhere"],
        &["kubeletDir=/data/kubelet"],
    ] {
        assert_ne!(template(&with(rolled)), template(&before), "{rolled:?}");
    }
    for elsewhere in [
        "rbac.create=false",
        "serviceMonitor.enabled=true",
        "prometheusRule.enabled=true",
        "dashboard.enabled=true",
        "networkPolicy.enabled=true",
    ] {
        assert_eq!(
            template(&with(&[elsewhere])),
            template(&before),
            "{elsewhere}"
        );
    }
}
