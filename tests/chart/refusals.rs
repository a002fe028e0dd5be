//! Values that the chart refuses with a sentence: which key, which value, and what to set instead.

use serde_json::{Value, json};

use crate::helm::Helm;

/// The values with one class, `a` in `/mnt/a`, and these keys of it.
fn class(keys: Value) -> Value {
    let mut class = json!({ "name": "a", "hostDir": "/mnt/a" });
    class
        .as_object_mut()
        .unwrap()
        .extend(keys.as_object().unwrap().clone());
    json!({ "classes": [class] })
}

/// Adds keys to values.
fn with(mut values: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    values.as_object_mut().unwrap().extend(more);
    values
}

fn two_classes(keys: [(&str, &str, &str); 2]) -> Value {
    let class = |(name, key, value): (&str, &str, &str)| json!({ "name": name, "hostDir": "/mnt/a", key: value });
    json!({ "classes": keys.map(class) })
}

/// The values, and what the sentence contains.
fn refused() -> Vec<(Value, &'static [&'static str])> {
    let on = || json!({ "enabled": true });
    let unprivileged = || json!({ "privileged": false });
    let tolerations = || json!([{ "key": "disks", "operator": "Foo" }]);
    let max_surge =
        |value: Value| json!({ "updateStrategy": { "rollingUpdate": { "maxSurge": value } } });
    vec![
        (
            json!({ "image": null }),
            &[
                "image: none is set",
                "docs/image.md",
                "image: local-volume-provisioner:0.1.0",
            ],
        ),
        (
            json!({ "image": { "tag": "1", "registry": "" } }),
            &["image: none is set"],
        ),
        (
            json!({ "image": "registry.k8s.io/sig-storage/local-volume-provisioner:v2.8.0" }),
            &[
                "image: registry.k8s.io/sig-storage/",
                "the Go provisioner's",
                "image: local-volume-provisioner:0.1.0",
            ],
        ),
        (
            json!({ "image": { "registry": "mirror.example.com/k8s", "repository": "sig-storage/local-volume-provisioner" } }),
            &["image: mirror.example.com/k8s/sig-storage/"],
        ),
        (
            json!({ "image": "{{ .Values.global.registry }}/sig-storage/local-volume-provisioner", "global": { "registry": "b" } }),
            &["image: b/sig-storage/"],
        ),
        (
            json!({ "image": "quay.io/external_storage/local-volume-provisioner-arm64:v2.3.4" }),
            &["the Go provisioner's"],
        ),
        (
            json!({ "classes": null }),
            &["classes: null", "classes: []"],
        ),
        (
            two_classes([("a", "namePattern", "x"), ("a", "namePattern", "y")]),
            &["two classes are called \"a\"", "a name of its own"],
        ),
        (
            json!({ "classes": [
                { "name": "a", "hostDir": "/mnt/a" },
                { "name": "b", "hostDir": "/mnt/b", "mountDir": "/mnt/a/" },
            ] }),
            &["the mountDir /mnt/a is given to two hostDirs, /mnt/a and /mnt/b"],
        ),
        (
            two_classes([("a", "volumeMode", "Block"), ("b", "namePattern", "*")]),
            &[
                "\"a\" and \"b\" both have the hostDir /mnt/a and the namePattern \"*\"",
                "another hostDir or namePattern",
            ],
        ),
        (
            two_classes([
                ("a", "namePattern", "nvme*, sd*"),
                ("b", "namePattern", "sd*,hd*"),
            ]),
            &["namePattern \"sd*\""],
        ),
        (
            class(json!({ "namePattern": "x,[a-" })),
            &["class \"a\" has the namePattern \"[a-\"", "sd[a-f]"],
        ),
        (
            class(json!({ "namePattern": "[]" })),
            &["namePattern \"[]\""],
        ),
        (
            class(json!({ "namePattern": "[^]" })),
            &["namePattern \"[^]\""],
        ),
        (class(json!({ "namePattern": "\\[a][" })), &["namePattern"]),
        (class(json!({ "namePattern": "[a\\]" })), &["namePattern"]),
        (class(json!({ "namePattern": "a\\" })), &["namePattern"]),
        (
            class(json!({ "hostDir": "/mnt/.." })),
            &["class \"a\" has the hostDir /,", "set hostDir"],
        ),
        (
            class(json!({ "hostDir": "/var/lib/kubelet/" })),
            &[
                "hostDir /var/lib/kubelet,",
                "kubelet's directory /var/lib/kubelet",
                "set hostDir",
            ],
        ),
        (
            with(
                class(json!({ "hostDir": "/data/kubelet/pods" })),
                json!({ "kubeletDir": "/data/kubelet" }),
            ),
            &["hostDir /data/kubelet/pods"],
        ),
        (
            with(class(json!({ "volumeMode": "Block" })), unprivileged()),
            &[
                "privileged: false",
                "class \"a\" (volumeMode: Block)",
                "set privileged to true",
            ],
        ),
        (
            with(
                class(json!({ "volumeMode": "Block" })),
                json!({ "securityContext": unprivileged() }),
            ),
            &["privileged: false"],
        ),
        (
            with(class(json!({ "fsType": "xfs" })), unprivileged()),
            &[
                "privileged: false",
                "fsType \"xfs\" of class \"a\"",
                "remove fsType",
            ],
        ),
        (
            class(json!({ "cleanMethod": "zero", "blockCleanerCommand": ["/scripts/dd_zero.sh"] })),
            &[
                "class \"a\" has a cleanMethod and a blockCleanerCommand",
                "keep one",
            ],
        ),
        (
            max_surge(json!(1)),
            &["updateStrategy", "maxSurge 1", "maxUnavailable"],
        ),
        (max_surge(json!("10%")), &["maxSurge 10%"]),
        (
            json!({ "tolerations": tolerations() }),
            &[
                "tolerations: the operator \"Foo\" of key \"disks\"",
                "Exists or Equal",
            ],
        ),
        (
            json!({ "nodeCleanup": { "enabled": true, "tolerations": tolerations() } }),
            &["nodeCleanup.tolerations: the operator \"Foo\""],
        ),
        (
            json!({ "serviceMonitor": on(), "podMonitor": on() }),
            &["podMonitor", "serviceMonitor", "to false"],
        ),
        (
            json!({ "prometheusRule": { "enabled": true, "runbookUrl": "docs/alerts.md" } }),
            &["prometheusRule: runbookUrl \"docs/alerts.md\"", "https://"],
        ),
        (
            json!({ "enableWindows": true }),
            &["enableWindows: this provisioner runs on Linux nodes only"],
        ),
        (json!({ "enableWindows": "yes" }), &["enableWindows"]),
        (
            json!({ "classes": [], "nodeCleanup": on() }),
            &[
                "nodeCleanup: there is no class",
                "nodeCleanup.storageClassNames",
            ],
        ),
    ]
}

#[test]
fn value_is_refused_with_key_value_and_remedy() {
    let helm = or_skip!(Helm::find());
    for (values, parts) in refused() {
        let said = helm.refusal_of(&values);
        for part in parts {
            assert!(said.contains(part), "{values}: no {part:?} in {said}");
        }
    }
}

/// What is next to a refused value.
#[test]
fn similar_values_are_accepted() {
    let helm = or_skip!(Helm::find());
    let operators =
        json!([{ "key": "a", "operator": "Equal" }, { "operator": "Exists" }, { "key": "b" }]);
    for values in [
        json!({ "image": "registry.example.com/local-volume-provisioner:0.1.0" }),
        json!({ "image": "example.com/my-sig-storage/local-volume-provisioner:0.1.0" }),
        json!({ "classes": [] }),
        class(json!({ "namePattern": "sd[a-f],[^^],[a^],\\[,[\\]],]" })),
        class(json!({ "hostDir": "/var/lib/kubelet-disks" })),
        class(json!({ "hostDir": "/mnt/a", "volumeMode": "Block" })),
        with(
            class(json!({ "volumeMode": "Filesystem", "fsType": null })),
            json!({ "privileged": false }),
        ),
        two_classes([("a", "namePattern", "nvme*"), ("b", "namePattern", "sd*")]),
        json!({ "updateStrategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 2 } } }),
        json!({ "updateStrategy": { "type": "OnDelete" } }),
        json!({ "tolerations": operators, "nodeCleanup": { "enabled": true, "tolerations": operators } }),
    ] {
        helm.render_values(&values);
    }
}
