use serde_json::{Value, json};

use super::*;

mod claims;

fn local_volume() -> Value {
    json!({
        "metadata": {"name": "local-pv-1"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "volumeMode": "Filesystem",
            "storageClassName": "fast",
            "local": {"path": "/mnt/fast/a"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
                ]}
            ]}},
        },
    })
}

fn claim() -> Value {
    json!({
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeMode": "Filesystem",
        },
    })
}

/// `object` with the value at a JSON pointer replaced; null removes it.
fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(key);
    } else {
        parent.insert(key.to_owned(), value);
    }
    object
}

fn faults(r: &'static Resource, object: &Value) -> String {
    let mut causes = Vec::new();
    metadata(r, object, &mut causes);
    create(r, object, &mut causes);
    causes
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

fn change_faults(r: &'static Resource, old: &Value, new: &Value) -> String {
    let mut causes = Vec::new();
    update(r, old, new, &mut causes);
    causes
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn volumes() {
    let r = &resource::PERSISTENT_VOLUMES;
    assert_eq!(faults(r, &local_volume()), "");
    for (pointer, value, fault) in [
        (
            "/spec/capacity",
            json!(null),
            "spec.capacity: Required value",
        ),
        (
            "/spec/capacity/storage",
            json!("0"),
            "must be greater than zero",
        ),
        (
            "/spec/capacity/iops",
            json!("5"),
            "spec.capacity: Unsupported value",
        ),
        (
            "/spec/accessModes",
            json!([]),
            "spec.accessModes: Required value",
        ),
        (
            "/spec/accessModes",
            json!(["RWO"]),
            "spec.accessModes: Unsupported value: \"RWO\"",
        ),
        (
            "/spec/accessModes",
            json!(["ReadWriteOncePod", "ReadWriteOnce"]),
            "may not use ReadWriteOncePod with other access modes",
        ),
        (
            "/spec/local",
            json!(null),
            "spec: Required value: must specify a volume type",
        ),
        (
            "/spec/hostPath",
            json!({"path": "/x"}),
            "may not specify more than 1 volume type",
        ),
        (
            "/spec/local/path",
            json!(""),
            "spec.local.path: Required value",
        ),
        (
            "/spec/local/path",
            json!("/mnt/../etc"),
            "must not contain '..'",
        ),
        (
            "/spec/nodeAffinity",
            json!(null),
            "Local volume requires node affinity",
        ),
        (
            "/spec/nodeAffinity/required/nodeSelectorTerms",
            json!([]),
            "must have at least one node selector term",
        ),
        (
            "/spec/nodeAffinity/required/nodeSelectorTerms",
            json!([{"matchExpressions": [{"key": "a", "operator": "In"}]}]),
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            "/spec/volumeMode",
            json!("Tape"),
            "spec.volumeMode: Unsupported value: \"Tape\"",
        ),
        (
            "/spec/persistentVolumeReclaimPolicy",
            json!("Burn"),
            "Unsupported value: \"Burn\"",
        ),
        (
            "/spec/storageClassName",
            json!("No_Class"),
            "a lowercase RFC 1123 subdomain",
        ),
        (
            "/metadata/name",
            json!("Local_PV"),
            "metadata.name: Invalid value: \"Local_PV\"",
        ),
        (
            "/metadata/name",
            json!("a..b"),
            "metadata.name: Invalid value",
        ),
        (
            "/metadata/name",
            json!("a".repeat(254)),
            "must be no more than 253 characters",
        ),
        (
            "/metadata/name",
            json!(null),
            "name or generateName is required",
        ),
        (
            "/metadata/labels",
            json!({"a/b/c": "x"}),
            "metadata.labels: Invalid value: \"a/b/c\"",
        ),
        (
            "/metadata/labels",
            json!({"k": "has space"}),
            "a valid label must be",
        ),
        (
            "/metadata/labels",
            json!({"k": "v".repeat(64)}),
            "no more than 63 bytes",
        ),
        (
            "/metadata/annotations",
            json!({"-a": ""}),
            "metadata.annotations: Invalid value",
        ),
        (
            "/metadata/annotations",
            json!({"a": "x".repeat(262_144)}),
            "may not be more than 262144",
        ),
        (
            "/metadata/finalizers",
            json!(["mine"]),
            "neither a standard finalizer name",
        ),
        (
            "/metadata/ownerReferences",
            json!([{"kind": "Node"}]),
            "must not be empty",
        ),
    ] {
        let found = faults(r, &with(local_volume(), pointer, value.clone()));
        assert!(found.contains(fault), "{pointer} = {value}: {found:?}");
    }
}

#[test]
fn good_names_and_labels_pass() {
    let r = &resource::PERSISTENT_VOLUMES;
    for (pointer, value) in [
        ("/metadata/name", json!("a.b-c.1")),
        (
            "/metadata/labels",
            json!({"kubernetes.io/hostname": "Node_1.x", "empty": ""}),
        ),
        (
            "/metadata/annotations",
            json!({"Example.com/Upper": "any text, even ü"}),
        ),
        (
            "/metadata/finalizers",
            json!(["kubernetes.io/pv-protection", "orphan"]),
        ),
    ] {
        assert_eq!(
            faults(r, &with(local_volume(), pointer, value)),
            "",
            "{pointer}"
        );
    }
    let role = json!({"metadata": {"name": "system:node"}});
    assert_eq!(faults(&resource::CLUSTER_ROLES, &role), "");
    let namespace = json!({"metadata": {"name": "a.b"}});
    assert_ne!(faults(&resource::NAMESPACES, &namespace), "");
}

#[test]
fn what_may_change_in_a_volume() {
    let r = &resource::PERSISTENT_VOLUMES;
    let old = local_volume();
    for (pointer, value) in [
        ("/spec/capacity/storage", json!("2Gi")),
        ("/spec/storageClassName", json!("slow")),
        ("/spec/accessModes", json!(["ReadOnlyMany"])),
        ("/spec/persistentVolumeReclaimPolicy", json!("Retain")),
        ("/spec/claimRef", json!({"name": "anything"})),
    ] {
        assert_eq!(
            change_faults(r, &old, &with(old.clone(), pointer, value)),
            "",
            "{pointer}"
        );
    }
    for (pointer, value, fault) in [
        (
            "/spec/local/path",
            json!("/mnt/b"),
            "spec.persistentvolumesource: Forbidden",
        ),
        ("/spec/volumeMode", json!("Block"), "field is immutable"),
        (
            "/spec/nodeAffinity/required/nodeSelectorTerms",
            json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]),
            "nodeAffinity: Invalid value",
        ),
    ] {
        let found = change_faults(r, &old, &with(old.clone(), pointer, value));
        assert!(found.contains(fault), "{pointer}: {found}");
    }
    let bare = with(
        with(old.clone(), "/spec/local", json!(null)),
        "/spec/nodeAffinity",
        json!(null),
    );
    let bare = with(bare, "/spec/nfs", json!({"server": "s", "path": "/"}));
    let pinned = with(
        bare.clone(),
        "/spec/nodeAffinity",
        old["spec"]["nodeAffinity"].clone(),
    );
    assert_eq!(
        change_faults(r, &bare, &pinned),
        "",
        "node affinity can be set once"
    );
}

#[test]
fn jobs_and_classes() {
    let template = json!({"spec": {
        "containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"
    }});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let r = &resource::JOBS;
    assert_eq!(faults(r, &job), "");
    let always = with(
        job.clone(),
        "/spec/template/spec/restartPolicy",
        json!("Always"),
    );
    assert!(faults(r, &always).contains("spec.template.spec.restartPolicy: Required value"));
    let image = with(job.clone(), "/spec/template/spec/containers", json!([]));
    assert!(change_faults(r, &job, &image).contains("spec.template: Invalid value"));
    let suspended = with(job.clone(), "/spec/suspend", json!(true));
    assert_eq!(change_faults(r, &job, &suspended), "");

    let r = &resource::STORAGE_CLASSES;
    let class =
        json!({"metadata": {"name": "fast"}, "provisioner": "kubernetes.io/no-provisioner"});
    assert_eq!(faults(r, &class), "");
    let late = with(
        class.clone(),
        "/volumeBindingMode",
        json!("WaitForFirstConsumer"),
    );
    assert_eq!(faults(r, &late), "");
    assert!(change_faults(r, &class, &late).contains("volumeBindingMode: Invalid value"));
    assert!(faults(r, &with(class, "/provisioner", json!(null))).contains("provisioner: Required"));
}

#[test]
fn what_does_not_decode() {
    let r = &resource::PERSISTENT_VOLUMES;
    for (pointer, value) in [
        ("/spec/capacity/storage", json!("10GB")),
        ("/spec/capacity/storage", json!({})),
        ("/spec/capacity", json!([])),
        ("/metadata/labels", json!({"a": 1})),
        ("/metadata/finalizers", json!("x")),
        ("/metadata/name", json!(7)),
        ("/spec", json!("x")),
    ] {
        let status = types(r, &with(local_volume(), pointer, value.clone())).unwrap_err();
        assert_eq!(status.code, 400, "{pointer} = {value}");
    }
    assert_eq!(types(r, &local_volume()), Ok(()));
}
