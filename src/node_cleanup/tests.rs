use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::plan::{self, NodeIndex, Nodes, Step};
use super::volume::Volume;
use crate::names::LABEL_HOSTNAME;

mod csi;

const DELAY: Duration = Duration::from_mins(1);
const CLEANUP_TIMEOUT: Duration = Duration::from_hours(1);
const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn read(change: impl FnOnce(&mut Value)) -> Option<Volume> {
    let mut pv = json!({
        "metadata": {
            "name": "pv", "uid": "pv-uid", "resourceVersion": "1",
            "labels": { "kubernetes.io/hostname": "host-1" },
            "annotations": {
                "pv.kubernetes.io/provisioned-by": format!("local-volume-provisioner-node-1-{UID}"),
            },
        },
        "spec": {
            "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete",
            "local": { "path": "/mnt/disks/a" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"] },
            ] }] } },
        },
        "status": { "phase": "Available" },
    });
    change(&mut pv);
    let classes = ["fast".to_owned()];
    Volume::read(&serde_json::from_value(pv).unwrap(), &classes, &[])
}

fn volume(change: impl FnOnce(&mut Value)) -> Volume {
    read(change).unwrap()
}

fn terms(pv: &mut Value) -> &mut Value {
    &mut pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
}

fn nodes(nodes: &[(&str, Option<&str>)]) -> Nodes {
    let labels = |label: &str| (LABEL_HOSTNAME.to_owned(), label.to_owned());
    let owned = |(name, label): &(&str, Option<&str>)| {
        ((*name).into(), label.map(labels).into_iter().collect())
    };
    nodes.iter().map(owned).collect()
}

type Next = Result<Option<(Step, Duration)>, String>;

fn is_gone(of: &Volume, there: &[(&str, Option<&str>)]) -> Result<bool, String> {
    plan::is_gone(of, &NodeIndex::new(&nodes(there)))
}

/// The plan for a volume whose loss was announced this number of seconds ago.
fn next(volume: &Volume, there: &[(&str, Option<&str>)], seconds: Option<u64>) -> Next {
    let passed = seconds.map(Duration::from_secs);
    let nodes = nodes(there);
    plan::next(volume, &NodeIndex::new(&nodes), passed, DELAY, CLEANUP_TIMEOUT)
}

#[allow(clippy::unnecessary_wraps, reason = "as in the plan")]
fn now(step: Step) -> Next {
    Ok(Some((step, Duration::ZERO)))
}

/// Another node, so that there is one.
const ELSEWHERE: (&str, Option<&str>) = ("node-9", Some("host-9"));

#[test]
fn only_local_pvs_of_our_classes_are_read() {
    assert!(read(|_| {}).is_some());
    assert!(read(|pv| pv["spec"]["storageClassName"] = json!("other")).is_none());
    assert!(read(|pv| pv["spec"]["storageClassName"] = json!(null)).is_none());
    assert!(
        read(|pv| {
            pv["spec"]["local"] = json!(null);
            pv["spec"]["hostPath"] = json!({ "path": "/mnt/disks/a" });
        })
        .is_none()
    );
}

#[test]
fn node_exists_by_any_name_in_the_pv() {
    let bare = |pv: &mut Value| pv["metadata"]["annotations"] = json!({});
    for (what, nodes, pv, expected) in [
        ("its label", &[ELSEWHERE, ("x", Some("host-1"))][..], volume(|_| {}), Ok(false)),
        ("its name", &[ELSEWHERE, ("host-1", Some("x"))], volume(|_| {}), Ok(false)),
        ("its maker", &[ELSEWHERE, ("node-1", Some("x"))], volume(|_| {}), Ok(false)),
        ("its maker, unlabelled", &[ELSEWHERE, ("node-1", None)], volume(|_| {}), Ok(false)),
        ("others", &[ELSEWHERE, ("node-2", Some("host-2"))], volume(|_| {}), Ok(true)),
        ("others, unlabelled", &[ELSEWHERE, ("node-2", None)], volume(|_| {}), Ok(true)),
        ("others, made by hand", &[ELSEWHERE], volume(bare), Ok(true)),
    ] {
        assert_eq!(is_gone(&pv, nodes), expected, "{what}");
    }
    for (nodes, words) in [(&[][..], "no Node at all"), (&[ELSEWHERE, ("x", None)], "\"x\"")] {
        let why = is_gone(&volume(bare), nodes).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn affinity_that_may_match_any_node_is_unclear() {
    let expression = |key: &str, operator: &str, values: &[&str]| json!({ "key": key, "operator": operator, "values": values });
    let host = |values: &[&str]| expression("kubernetes.io/hostname", "In", values);
    let hosts = |list: Value| volume(|pv| *terms(pv) = list).hosts;
    let labels = |list: &[Value]| json!({ "matchExpressions": list });
    assert_eq!(hosts(json!([labels(&[host(&["a"])])])), ["a", "host-1"], "and its label");
    assert_eq!(
        hosts(json!([labels(&[host(&["b", "a"])]), labels(&[host(&["c"])])])),
        ["a", "b", "c", "host-1"]
    );
    // Narrowed down further.
    assert_eq!(
        hosts(json!([labels(&[host(&["a"]), expression("rack", "Exists", &[])])])),
        ["a", "host-1"]
    );
    let field = json!({ "matchFields": [expression("metadata.name", "In", &["n"])] });
    for unreadable in [
        // Kubernetes does not schedule by it.
        json!([field]),
        json!([]),
        json!([{}]),
        json!([labels(&[host(&[])])]),
        json!([labels(&[expression("kubernetes.io/hostname", "NotIn", &["a"])])]),
        json!([labels(&[expression("rack", "In", &["a"])])]),
        json!([labels(&[host(&["a"])]), labels(&[expression("rack", "Exists", &[])])]),
    ] {
        assert_eq!(hosts(unreadable.clone()), [""; 0], "{unreadable}");
    }
    let anywhere = volume(|pv| pv["spec"]["nodeAffinity"] = json!(null));
    assert_eq!(anywhere.hosts, [""; 0]);
    is_gone(&anywhere, &[ELSEWHERE]).unwrap_err();
}

#[test]
fn the_maker_is_read_with_and_without_its_uid() {
    for (provisioner, expected) in [
        (format!("local-volume-provisioner-node-1-{UID}"), Some("node-1")),
        ("local-volume-provisioner-node-1".into(), Some("node-1")),
        (format!("local-volume-provisioner-{UID}"), Some(UID)),
        (format!("local-volume-provisioner-é-{UID}"), Some("é")),
        ("kubernetes.io/minikube-hostpath".into(), None),
    ] {
        let volume = volume(|pv| {
            pv["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] = json!(provisioner);
        });
        assert_eq!(volume.maker.as_deref(), expected, "{provisioner}");
    }
}

/// A PV that names a claim.
fn claimed(phase: &str, policy: &str, deleting: bool, protected: bool) -> Volume {
    volume(|pv| {
        pv["status"]["phase"] = json!(phase);
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
        pv["spec"]["claimRef"] = json!({ "namespace": "n", "name": "c", "uid": "c-uid" });
        if protected {
            pv["metadata"]["finalizers"] = json!(["local-volume-provisioner/cleanup"]);
        }
        if deleting {
            pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
    })
}

#[test]
fn final_step_depends_on_phase_and_policy() {
    use Step::{DeleteClaim, DeletePv, RemoveFinalizer};
    for (phase, policy, deleting, protected, expected) in [
        ("Bound", "Delete", false, true, Some(DeleteClaim)),
        ("Bound", "Retain", false, true, Some(DeleteClaim)),
        ("Bound", "Delete", true, true, Some(DeleteClaim)),
        // First, so that the Terminating ones with it are not our own.
        ("Released", "Delete", false, true, Some(RemoveFinalizer)),
        ("Available", "Delete", false, true, Some(RemoveFinalizer)),
        ("Released", "Delete", false, false, Some(DeletePv)),
        ("Released", "Retain", false, true, None),
        ("Released", "Recycle", false, true, None),
        ("Released", "Retain", true, true, Some(RemoveFinalizer)),
        // Another controller's finalizer keeps it.
        ("Released", "Delete", true, false, None),
        ("Available", "Retain", false, false, Some(DeletePv)),
        ("Failed", "Delete", false, true, None),
        ("Pending", "Delete", false, false, None),
    ] {
        let mut volume = claimed(phase, policy, deleting, protected);
        let what = format!("{phase} {policy} deleting={deleting} protected={protected}");
        let begins = expected.map_or(Ok(None), |_| now(Step::Announce));
        assert_eq!(next(&volume, &[ELSEWHERE], None), begins, "{what}");
        let left = Duration::from_secs(1);
        let waits = Ok(expected.map(|step| (step, left)));
        assert_eq!(next(&volume, &[ELSEWHERE], Some(59)), waits, "{what}");
        let acts = expected.map_or(Ok(None), now);
        assert_eq!(next(&volume, &[ELSEWHERE], Some(60)), acts, "{what}");
        volume.pv.paused = true;
        let paused = next(&volume, &[ELSEWHERE], Some(60));
        assert_eq!(paused, Ok(None), "{what}, paused");
    }
}

/// If the node comes back, its provisioner finishes, and no disk is left half wiped without its PV.
#[test]
fn pv_that_may_be_wiped_is_kept_for_the_cleanup_timeout() {
    let timeout = CLEANUP_TIMEOUT.as_secs();
    for phase in ["Released", "Available", "Failed"] {
        let volume = claimed(phase, "Delete", true, true);
        let after = |seconds| next(&volume, &[ELSEWHERE], seconds);
        assert_eq!(after(None), now(Step::Announce), "{phase}");
        let left = Duration::from_secs(1);
        let waits = Ok(Some((Step::RemoveFinalizer, left)));
        assert_eq!(after(Some(timeout - 1)), waits, "{phase}");
        assert_eq!(after(Some(timeout)), now(Step::RemoveFinalizer), "{phase}");
    }
    let volume = claimed("Released", "Delete", true, true);
    let nodes = nodes(&[ELSEWHERE]);
    let longer = DELAY * 2;
    let next = plan::next(&volume, &NodeIndex::new(&nodes), Some(DELAY), longer, DELAY);
    assert_eq!(next, Ok(Some((Step::RemoveFinalizer, DELAY))));
}

#[test]
fn never_used_pv_is_deleted_without_delay() {
    let mut volume = volume(|_| {});
    assert_eq!(next(&volume, &[ELSEWHERE], None), now(Step::DeletePv));
    volume.pv.used = true;
    assert_eq!(next(&volume, &[ELSEWHERE], None), now(Step::Announce));
}

#[test]
fn nothing_is_done_when_the_node_is_back_or_unclear() {
    let volume = volume(|pv| pv["status"]["phase"] = json!("Bound"));
    let back = [ELSEWHERE, ("node-1", Some("host-1"))];
    assert_eq!(next(&volume, &back, Some(1000)), Ok(None));
    let unclear = next(&volume, &[], Some(1000));
    assert!(unclear.is_err(), "{unclear:?}");
}

proptest! {
    /// For any affinity, nothing is done while one of its nodes exists.
    #[test]
    fn nothing_is_done_while_a_node_exists(
        groups in proptest::collection::vec(proptest::collection::vec(0..6_u8, 1..3), 1..3),
        there in 0..6_u8,
        phase in prop_oneof!["Available", "Bound", "Released"],
    ) {
        let named = groups.iter().flatten().any(|host| *host == there);
        let volume = volume(|pv| {
            pv["status"]["phase"] = json!(phase);
            *terms(pv) = groups.iter().map(|hosts| {
                let values: Vec<_> = hosts.iter().map(|host| format!("h{host}")).collect();
                json!({ "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": values },
                ] })
            }).collect();
        });
        let label = format!("h{there}");
        let there = [("somewhere", Some(&*label))];
        prop_assert_eq!(is_gone(&volume, &there), Ok(!named));
        if named {
            prop_assert_eq!(next(&volume, &there, Some(1000)), Ok(None));
        }
    }
}
