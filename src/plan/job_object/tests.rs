//! The whole object, in the API's words.

use k8s_openapi::api::batch::v1::Job;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::config::{Class, from_files};
use crate::plan::tests::kit::{disk, volume};
use crate::types::VolumeMode;
use crate::view::{JobView, PvView};
use crate::wipe::method::Method;

fn class(settings: &Value) -> Arc<Class> {
    let mut class =
        json!({ "hostDir": "/mnt/raw", "mountDir": "/disks/raw", "volumeMode": "Block" });
    for (key, value) in settings.as_object().unwrap() {
        class[key] = value.clone();
    }
    let map = json!({ "raw": class }).to_string();
    let loaded = from_files(&BTreeMap::from([("storageClassMap".into(), map)])).unwrap();
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    Arc::clone(&loaded.config.classes["raw"])
}

fn order(settings: &Value) -> CleanOrder {
    let pv = serde_json::from_value(json!({
        "metadata": { "name": "local-pv-1a", "uid": "pv-uid" },
        "spec": {
            "local": { "path": "/mnt/raw/di$k" },
            "claimRef": { "namespace": "default", "name": "data", "uid": "claim-uid" },
        },
    }))
    .unwrap();
    let (pv, class) = (PvView::from_api(&pv), class(settings));
    CleanOrder {
        method: Method::of(VolumeMode::Block, &class.cleaner),
        pv,
        volume: volume(&class, "di$k", &disk(1)),
        job: None,
        cleaned_by: None,
        basis: 0,
        orphan_on: None,
        generation: 1,
    }
}

fn view(job: &Job) -> JobView {
    JobView::from_api(&serde_json::from_value(json!(job)).unwrap())
}

fn made(settings: &Value, tolerations: &Value, secrets: &[&str]) -> (CleanOrder, Job) {
    let order = order(settings);
    let terms = JobTerms {
        hostname: "host-1".into(),
        tolerations: serde_json::from_value(tolerations.clone()).unwrap(),
        image: "example.com/lvp:1".into(),
        state_directory: Some("/var/lib/marks".into()),
    };
    let source = JobSource {
        namespace: "storage".into(),
        image: None,
        pull_secrets: secrets.iter().map(ToString::to_string).collect(),
        has_udev: true,
        state_directory: None,
    };
    let now = Timestamp::now();
    let job = job(&order, &terms, &source, "v1:wwid=a", 4096, now);
    (order, serde_json::from_value(job).unwrap())
}

#[test]
fn job_matches_the_go_provisioners_and_names_the_expected_device() {
    let (order, job) =
        made(&json!({ "blockCleanerCommand": ["/scripts/shred.sh", "2"] }), &json!([]), &[]);
    let view = view(&job);
    assert!(view.is_for(&order.pv.tenancy()));
    let age = Timestamp::now().duration_since(view.created_at.unwrap());
    assert!(age.as_secs().abs() < 60, "{age}");
    let mut job = json!(job);
    let started = job["metadata"]["annotations"]["start-time"].take();
    assert_eq!(started.as_str().unwrap().split('.').nth(1).unwrap().len(), "123456789Z".len());
    let volumes = job["spec"]["template"]["spec"]["volumes"].take();
    let mounts = job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].take();
    let template = job["metadata"]["annotations"]["local-volume-provisioner/template"].take();
    assert_eq!(template.as_str().unwrap().len(), 16);
    // FNV-1a of "/mnt/raw/disks/raw", by another program.
    let name = "mount-afb78a2e";
    assert_eq!(
        volumes,
        json!([
            { "name": name, "hostPath": { "path": "/mnt/raw" } },
            { "name": "dev", "hostPath": { "path": "/dev" } },
            { "name": "udev", "hostPath": { "path": "/run/udev/data" } },
            { "name": "marks", "hostPath": { "path": "/var/lib/marks" } },
        ])
    );
    assert_eq!(
        mounts,
        json!([
            { "name": name, "mountPath": "/disks/raw", "mountPropagation": "HostToContainer" },
            { "name": "dev", "mountPath": "/dev" },
            { "name": "udev", "mountPath": "/run/udev/data", "readOnly": true },
            { "name": "marks", "mountPath": "/var/lib/marks", "readOnly": true },
        ])
    );
    let labels =
        json!({ "kubernetes.io/hostname": "host-1", "pv": "local-pv-1a", "pvuuid": "pv-uid" });
    assert_eq!(
        job,
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "cleanup-local-pv-1a",
                "namespace": "storage",
                "labels": labels,
                "annotations": {
                    "device": "/disks/raw/di$k",
                    "start-time": null,
                    "local-volume-provisioner/claim-uid": "claim-uid",
                    "local-volume-provisioner/identity": "v1:wwid=a",
                    "local-volume-provisioner/cleaner": "/scripts/shred.sh 2",
                    "local-volume-provisioner/template": null,
                },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "PersistentVolume", "name": "local-pv-1a", "uid": "pv-uid",
                }],
            },
            "spec": { "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "imagePullSecrets": [],
                    "tolerations": [],
                    "nodeSelector": { "kubernetes.io/hostname": "host-1" },
                    "restartPolicy": "OnFailure",
                    "terminationGracePeriodSeconds": 10,
                    "automountServiceAccountToken": false,
                    "volumes": null,
                    "containers": [{
                        "name": "cleaner",
                        "image": "example.com/lvp:1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/local-volume-provisioner", "job"],
                        "args": ["/scripts/shred.sh", "2"],
                        "env": [
                            { "name": "LOCAL_PV_BLKDEVICE", "value": "/disks/raw/di$$k" },
                            { "name": "LOCAL_PV_NAME", "value": "local-pv-1a" },
                            { "name": "LOCAL_PV_IDENTITY", "value": "v1:wwid=a" },
                            { "name": "LOCAL_PV_SIZE", "value": "4096" },
                            { "name": "LOCAL_PV_UID", "value": "pv-uid" },
                            { "name": "LOCAL_PV_CLASS", "value": "raw" },
                            { "name": "STATE_DIRECTORY", "value": "/var/lib/marks" },
                        ],
                        "securityContext": { "privileged": true },
                        "terminationMessagePath": "/termination-log",
                        "volumeMounts": null,
                    }],
                },
            } },
        })
    );
}

#[test]
fn job_follows_class_and_configuration() {
    let tolerations = json!([{ "key": "disks", "operator": "Exists" }]);
    for (timeout, seconds) in [("90s", 90), ("1500ms", 2), ("1ms", 1)] {
        let settings = json!({ "cleanMethod": "zero", "cleanupTimeout": timeout });
        let (_, job) = made(&settings, &tolerations, &["a", "b"]);
        let spec = &json!(job)["spec"];
        assert_eq!(spec["activeDeadlineSeconds"], seconds);
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["containers"][0]["args"], json!(["--method=zero"]));
        assert_eq!(pod["tolerations"], tolerations);
        assert_eq!(pod["imagePullSecrets"], json!([{ "name": "a" }, { "name": "b" }]));
    }
}

#[test]
fn a_directory_is_mounted_once() {
    let (_, job) = made(&json!({ "hostDir": "/dev", "mountDir": "/dev" }), &json!([]), &[]);
    let pod = &json!(job)["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let at_dev = mounts.iter().filter(|mount| mount["mountPath"] == "/dev");
    assert_eq!(at_dev.count(), 1);
}

#[test]
fn template_fingerprint_covers_everything_but_the_device() {
    let template = |settings: Value, tolerations: Value, secrets: &[&str]| {
        let (_, job) = made(&settings, &tolerations, secrets);
        view(&job).template.unwrap()
    };
    let zero = json!({ "cleanMethod": "zero" });
    let now = template(zero.clone(), json!([]), &[]);
    assert_eq!(now, template(zero.clone(), json!([]), &[]));
    let tolerations = json!([{ "key": "disks", "operator": "Exists" }]);
    for other in [
        template(zero.clone(), tolerations, &[]),
        template(zero, json!([]), &["a"]),
        template(json!({ "cleanMethod": "quick" }), json!([]), &[]),
    ] {
        assert_ne!(now, other);
    }
    let source = JobSource {
        namespace: "storage".into(),
        image: None,
        pull_secrets: Vec::new(),
        has_udev: true,
        state_directory: None,
    };
    let terms = |image: &str| JobTerms {
        hostname: "host-1".into(),
        tolerations: Vec::new(),
        image: image.into(),
        state_directory: Some("/var/lib/marks".into()),
    };
    let order = order(&json!({ "cleanMethod": "zero" }));
    let template = |image| fingerprint(&order, &terms(image), &source);
    assert_eq!(now, template("example.com/lvp:1"));
    assert_ne!(now, template("example.com/lvp:2"));
}
