use serde_json::json;

use super::*;
use crate::{meta, resource};

fn cells(r: &'static Resource, object: &Value) -> Vec<String> {
    let row = row(r, object, IncludeObject::None);
    let cells = row["cells"].as_array().unwrap().clone();
    cells
        .iter()
        .map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned))
        .collect()
}

#[test]
fn volumes_and_claims() {
    let volume = json!({
        "metadata": {"name": "pv", "creationTimestamp": meta::now()},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
            "volumeMode": "Block",
            "claimRef": {"namespace": "default", "name": "data"},
        },
        "status": {"phase": "Bound"},
    });
    assert_eq!(
        cells(&resource::PERSISTENT_VOLUMES, &volume),
        [
            "pv",
            "1Gi",
            "RWO,RWX",
            "Delete",
            "Bound",
            "default/data",
            "fast",
            "<unset>",
            "",
            "0s",
            "Block"
        ]
    );
    let mut claim = json!({
        "metadata": {"name": "data", "creationTimestamp": meta::now()},
        "spec": {"storageClassName": "fast", "volumeName": "pv", "volumeMode": "Filesystem"},
        "status": {
            "phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]
        },
    });
    assert_eq!(
        cells(&resource::PERSISTENT_VOLUME_CLAIMS, &claim),
        [
            "data",
            "Bound",
            "pv",
            "1Gi",
            "RWO",
            "fast",
            "<unset>",
            "0s",
            "Filesystem"
        ]
    );
    claim["status"] = json!({"phase": "Pending"});
    assert_eq!(
        cells(&resource::PERSISTENT_VOLUME_CLAIMS, &claim)[1..5],
        ["Pending", "pv", "0", ""]
    );
    claim["metadata"]["deletionTimestamp"] = json!(meta::now());
    assert_eq!(
        cells(&resource::PERSISTENT_VOLUME_CLAIMS, &claim)[1],
        "Terminating"
    );
}

#[test]
fn pods_jobs_and_nodes() {
    let pod = json!({
        "metadata": {"name": "p", "creationTimestamp": meta::now()},
        "spec": {"containers": [{}, {}], "nodeName": "n"},
        "status": {"phase": "Running", "containerStatuses": [{"ready": true, "restartCount": 2}]},
    });
    let shown = cells(&resource::PODS, &pod);
    assert_eq!(
        shown[..7],
        ["p", "1/2", "Running", "2", "0s", "<none>", "n"]
    );

    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{}]},
        "status": {"phase": "Running", "containerStatuses": [{
            "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": meta::now()}},
        }]},
    });
    assert_eq!(
        cells(&resource::PODS, &pod)[..4],
        ["p", "0/1", "CrashLoopBackOff", "3 (0s ago)"]
    );

    let job = json!({
        "metadata": {"name": "j", "creationTimestamp": meta::now()},
        "spec": {"completions": 1},
        "status": {
            "succeeded": 1,
            "startTime": "2026-01-01T00:00:00Z",
            "completionTime": "2026-01-01T00:00:07Z",
            "conditions": [{"type": "Complete", "status": "True"}],
        },
    });
    assert_eq!(
        cells(&resource::JOBS, &job)[..4],
        ["j", "Complete", "1/1", "7s"]
    );

    for (condition, shown) in [
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
        ("FailureTarget", "FailureTarget"),
        ("Suspended", "Suspended"),
        ("Failed", "Failed"),
        ("Other", "Running"),
    ] {
        let job = json!({
            "metadata": {"name": "j"},
            "spec": {"completions": 1},
            "status": {"conditions": [{"type": condition, "status": "True"}]},
        });
        assert_eq!(cells(&resource::JOBS, &job)[1], shown);
    }

    let node = json!({
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1"},
        },
    });
    assert_eq!(
        cells(&resource::NODES, &node)[..5],
        ["n", "Ready,SchedulingDisabled", "worker", "<unknown>", "v1"]
    );
}

#[test]
fn classes_and_the_rest() {
    let class = json!({
        "metadata": {
            "name": "fast",
            "creationTimestamp": meta::now(),
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    });
    assert_eq!(
        cells(&resource::STORAGE_CLASSES, &class),
        ["fast (default)", "p", "Delete", "Immediate", "false", "0s"]
    );
    let lease = json!({
        "metadata": {"name": "l", "creationTimestamp": meta::now()},
        "spec": {"holderIdentity": "me"},
    });
    assert_eq!(cells(&resource::LEASES, &lease), ["l", "me", "0s"]);
    let role = json!({"metadata": {"name": "r", "creationTimestamp": "2026-01-02T03:04:05Z"}});
    assert_eq!(
        cells(&resource::ROLES, &role),
        ["r", "2026-01-02T03:04:05Z"]
    );
    let binding = json!({
        "metadata": {"name": "b", "creationTimestamp": meta::now()},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"kind": "User", "name": "me"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "x"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "y"},
        ],
    });
    assert_eq!(
        cells(&resource::CLUSTER_ROLE_BINDINGS, &binding),
        ["b", "ClusterRole/view", "0s", "me", "", "x/robot, y/robot"]
    );
    let service = json!({
        "metadata": {"name": "s", "creationTimestamp": meta::now()},
        "spec": {"type": "NodePort", "ports": [
            {"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"},
        ]},
    });
    assert_eq!(
        cells(&resource::SERVICES, &service),
        [
            "s",
            "NodePort",
            "<none>",
            "<none>",
            "80/TCP,53:30053/UDP",
            "0s",
            "<none>"
        ]
    );
}

#[test]
fn deployments_and_daemon_sets() {
    let spec = json!({
        "replicas": 3,
        "selector": {"matchLabels": {"app": "x"}},
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    let deployment = json!({
        "metadata": {"name": "d", "creationTimestamp": meta::now()},
        "spec": spec,
        "status": {"readyReplicas": 1, "updatedReplicas": 2},
    });
    assert_eq!(
        cells(&resource::DEPLOYMENTS, &deployment),
        ["d", "1/3", "2", "0", "0s", "c", "i", "app=x"]
    );
    let daemon_set = json!({
        "metadata": {"name": "d", "creationTimestamp": meta::now()},
        "spec": spec,
        "status": {"desiredNumberScheduled": 4, "numberReady": 3},
    });
    assert_eq!(
        cells(&resource::DAEMON_SETS, &daemon_set),
        [
            "d", "4", "0", "3", "0", "0", "<none>", "0s", "c", "i", "app=x"
        ]
    );
}

#[test]
fn ages() {
    const DAY: i64 = 86400;
    for (seconds, shown) in [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600 + 60, "9h"),
        (2 * DAY, "2d"),
        (2 * DAY + 3600, "2d1h"),
        (9 * DAY + 3600, "9d"),
        (800 * DAY, "2y70d"),
        (4000 * DAY, "10y"),
    ] {
        assert_eq!(words::duration(seconds), shown);
    }
}
