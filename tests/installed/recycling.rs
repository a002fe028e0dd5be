//! Volumes of every kind are offered, used, and offered again without a trace of their last user.

use serde_json::{Value, json};

use crate::cluster::USERS;
use crate::disks::{entries, is_on_device};
use crate::jobs::{self, use_volume};
use crate::{Cluster, Disks, Release, disks::MIB};

const SECRET: &str = "what the first tenant wrote";

/// A StatefulSet whose pods print what they find in their volumes, and then write to them.
fn stateful_set(name: &str, class: &str, replicas: usize) -> Value {
    let script = format!(
        "ls -A /data | grep -v lost+found; echo '{SECRET}' >/data/secret && mkdir /data/dir && \
         echo more >/data/dir/file && sync && echo written && sleep 1000"
    );
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": name, "namespace": USERS },
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "main", "image": "test/busybox:1", "imagePullPolicy": "Never",
                        "command": ["sh", "-c", script],
                        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                    }],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": {
                    "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Mi" } },
                },
            }],
        },
    })
}

/// Runs a StatefulSet until each of its pods has written; what they found.
fn use_volumes(cluster: &Cluster, name: &str, class: &str, replicas: usize) -> Vec<String> {
    cluster.apply(&stateful_set(name, class, replicas));
    let pods = (0..replicas).map(|number| format!("{name}-{number}"));
    pods.map(|pod| {
        cluster.eventually(&format!("pod {pod} has written"), || {
            let said = cluster.logs(&pod);
            said.strip_suffix("written\n").map(str::to_owned)
        })
    })
    .collect()
}

fn delete_with_claims(cluster: &Cluster, name: &str, replicas: usize) {
    cluster.delete("statefulset", name, &[]);
    for number in 0..replicas {
        cluster.delete_claim(&format!("data-{name}-{number}"));
    }
}

#[test]
fn a_stateful_set_after_another_finds_clean_filesystems() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("stateful");
    let volumes = [
        disks.filesystem("shared", "ext4", "ext4", 32 * MIB),
        disks.filesystem("shared", "xfs", "xfs", 320 * MIB),
        disks.bind("shared", "bind"),
        disks.tmpfs("shared", "tmpfs"),
    ];
    let release = Release::over(&cluster, &disks, "shared", json!({}));
    let first = cluster.available("shared", volumes.len());

    let found = use_volumes(&cluster, "first", "shared", volumes.len());
    assert!(found.iter().all(String::is_empty), "{found:?}");
    for volume in &volumes {
        assert_eq!(entries(volume), ["dir", "secret"], "{volume:?}");
    }
    delete_with_claims(&cluster, "first", volumes.len());
    for pv in &first {
        cluster.recycled(pv);
    }
    for volume in &volumes {
        assert!(entries(volume).is_empty(), "{volume:?}: {:?}", entries(volume));
    }

    let found = use_volumes(&cluster, "second", "shared", volumes.len());
    assert!(found.iter().all(String::is_empty), "{found:?}");
    delete_with_claims(&cluster, "second", volumes.len());
    cluster.available("shared", volumes.len());
    drop(release);
}

#[test]
fn the_next_pod_with_a_raw_device_reads_no_data_of_the_last_one() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("raw");
    let device = disks.device("raw", "disk", 64 * MIB);
    let settings = json!({ "volumeMode": "Block" });
    let _release = Release::over(&cluster, &disks, "raw", settings);
    let first = cluster.available("raw", 1).remove(0);

    cluster.claim("first", "raw", "Block");
    let write = format!(
        "for at in 0 1000 40000 131000; do echo '{SECRET}' | \
         dd of=/dev/data bs=512 seek=$at conv=notrunc,fsync 2>/dev/null || exit 1; done"
    );
    cluster.run_pod("writer", "first", "Block", &write);
    assert!(is_on_device(&device, SECRET.as_bytes()), "it was written");
    cluster.delete_claim("first");
    cluster.recycled(&first);
    assert!(!is_on_device(&device, SECRET.as_bytes()));

    cluster.claim("second", "raw", "Block");
    let read = format!("if grep -q '{SECRET}' /dev/data; then echo leaked; else echo clean; fi");
    let said = cluster.run_pod("reader", "second", "Block", &read);
    assert_eq!(said, "clean\n");
}

#[test]
fn a_device_that_the_kubelet_formats_is_cleaned_and_formatted_again() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("formatted");
    let device = disks.device("formatted", "disk", 64 * MIB);
    let settings = json!({ "fsType": "ext4" });
    let _release = Release::over(&cluster, &disks, "formatted", settings);
    let first = cluster.available("formatted", 1).remove(0);

    use_volume(&cluster, "formatted", "Filesystem", &device);
    cluster.recycled(&first);
    assert!(!is_on_device(&device, jobs::SECRET.as_bytes()));
    // The kubelet formats it again: no mount of the old filesystem is in its way.
    use_volume(&cluster, "formatted", "Filesystem", &device);
}
