//! Devices that are cleaned by Jobs: pods of the provisioner's image, which the kubelet runs.

use std::path::Path;

use serde_json::{Value, json};

use crate::cluster::{SYSTEM, name};
use crate::disks::{entries, is_on_device};
use crate::release::{TERMINATION_LOG, class};
use crate::{Cluster, Disks, Release, disks::MIB};

pub const SECRET: &str = "not for the next tenant";

/// The Job that cleans a PV's device.
pub fn job_name(pv: &Value) -> String {
    format!("cleanup-{}", name(pv))
}

fn job_of(cluster: &Cluster, pv: &Value) -> Option<Value> {
    cluster.get("job", &job_name(pv), Some(SYSTEM))
}

/// How often the cleaning of a PV's volume was begun, by its events: in the process, and by Jobs.
pub fn begun(cluster: &Cluster, pv: &Value) -> (u64, u64) {
    let events = cluster.eventually("an event tells of the cleaning", || {
        let events = cleaning_events(cluster, pv);
        (!events.is_empty()).then_some(events)
    });
    let mut begun = (0, 0);
    for event in events {
        let is_by_job = event["message"].as_str().unwrap_or_default().contains("by Job");
        let of = if is_by_job { &mut begun.1 } else { &mut begun.0 };
        *of += event["count"].as_u64().unwrap_or(1);
    }
    begun
}

/// The events about the cleaning of a PV's volume. A repeated one has a count.
fn cleaning_events(cluster: &Cluster, pv: &Value) -> Vec<Value> {
    let mut events = cluster.list("events", Some("default"));
    events.retain(|event| {
        event["reason"] == "VolumeDelete" && event["involvedObject"]["uid"] == pv["metadata"]["uid"]
    });
    events
}

/// Uses a volume, in which there is nothing, and releases it with the secret on its device.
pub fn use_volume(cluster: &Cluster, class: &str, mode: &str, device: &Path) {
    cluster.claim(class, class, mode);
    let write = match mode {
        "Block" => format!(
            "echo '{SECRET}' | dd of=/dev/data bs=1M seek=200 conv=notrunc,fsync 2>/dev/null"
        ),
        _ => format!("ls -A /data | grep -v lost+found; echo '{SECRET}' >/data/secret; sync"),
    };
    assert_eq!(cluster.run_pod("writer", class, mode, &write), "");
    assert!(is_on_device(device, SECRET.as_bytes()), "it was written");
    cluster.delete_claim(class);
}

/// With node isolation, which restricts Jobs too, and which the chart deletes again.
#[test]
fn jobs_clean_devices_for_pods_and_for_the_kubelet_and_outlive_the_provisioner() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("jobs");
    let raw = disks.device("raw", "disk", 256 * MIB);
    let formatted = disks.device("formatted", "disk", 64 * MIB);
    let mounted = disks.filesystem("mounted", "disk", "ext4", 32 * MIB);
    let shred =
        json!({ "volumeMode": "Block", "blockCleanerCommand": ["/scripts/shred.sh", "20"] });
    let classes = json!([
        class("raw", &disks.class("raw"), shred),
        class("formatted", &disks.class("formatted"), json!({ "fsType": "ext4" })),
        class("mounted", &disks.class("mounted"), json!({})),
    ]);
    let values = json!({ "useJobForCleaning": true, "nodeIsolation": { "enabled": true } });
    let release = Release::install(&cluster, classes, values);

    // A raw device. The provisioner is gone for a while in the middle of it.
    let pv = cluster.available("raw", 1).remove(0);
    use_volume(&cluster, "raw", "Block", &raw);
    // By the pod: the Job's status follows it by a second or more.
    let job = job_name(&pv);
    let pod = cluster.eventually("the Job's pod runs", || {
        let mut pods = cluster.list("pods", Some(SYSTEM)).into_iter();
        pods.find(|pod| {
            pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == *job
                && pod["status"]["phase"] == "Running"
        })
    });
    assert_eq!(
        pod["spec"]["nodeSelector"],
        json!({ "kubernetes.io/hostname": crate::cluster::NODE })
    );
    let provisioner = release.pod();
    cluster.kill_pod(name(&provisioner));
    cluster.recycled(&pv);
    assert!(!is_on_device(&raw, SECRET.as_bytes()));
    assert_eq!(begun(&cluster, &pv), (0, 1), "not wiped twice");
    assert!(job_of(&cluster, &pv).is_none());

    // A device that the kubelet has formatted, and will again.
    let pv = cluster.available("formatted", 1).remove(0);
    use_volume(&cluster, "formatted", "Filesystem", &formatted);
    let fresh = cluster.recycled(&pv);
    assert!(!is_on_device(&formatted, SECRET.as_bytes()));
    assert_eq!(begun(&cluster, &pv), (0, 1));
    use_volume(&cluster, "formatted", "Filesystem", &formatted);
    cluster.recycled(&fresh);

    // What is mounted stays in the process.
    let pv = cluster.available("mounted", 1).remove(0);
    cluster.write("mounted", "mounted");
    cluster.delete_claim("mounted");
    cluster.recycled(&pv);
    assert!(entries(&mounted).is_empty());
    assert_eq!(begun(&cluster, &pv), (1, 0));

    // The provisioner and the Jobs mount /dev writable.
    assert!(!Path::new(TERMINATION_LOG).exists());
    assert!(cluster.list("jobs", Some(SYSTEM)).is_empty());
    let metrics = release.http("/metrics");
    assert!(metrics.contains("persistentvolume_delete_total{mode=\"Block\",type=\"job\"}"));
    release.uninstall_without_hooks();
    assert!(cluster.list("validatingadmissionpolicies", None).is_empty());
}
