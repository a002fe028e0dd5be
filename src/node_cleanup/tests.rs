use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::plan::{Next, Step, Verdict, next, verdict};
use super::roster::Roster;
use super::timer;
use super::volume::Volume;

const DELAY: Duration = Duration::from_mins(1);
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
    let classes = BTreeSet::from(["fast".to_owned()]);
    Volume::of(&serde_json::from_value(pv).unwrap(), &classes)
}

fn volume(change: impl FnOnce(&mut Value)) -> Volume {
    read(change).unwrap()
}

fn terms(pv: &mut Value) -> &mut Value {
    &mut pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
}

fn node(name: &str, label: Option<&str>) -> ObjectMeta {
    let labels =
        label.map(|label| [("kubernetes.io/hostname".to_owned(), label.to_owned())].into());
    ObjectMeta {
        name: Some(name.into()),
        labels,
        ..ObjectMeta::default()
    }
}

fn roster(nodes: &[(&str, Option<&str>)]) -> Roster {
    let mut roster = Roster::default();
    for (name, label) in nodes {
        roster.add(&node(name, *label));
    }
    roster
}

/// Another node, so that there is one.
const ELSEWHERE: (&str, Option<&str>) = ("node-9", Some("host-9"));

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn timer_of(volume: &Volume, seconds_ago: i64) -> String {
    let since = now() - SignedDuration::from_secs(seconds_ago);
    timer::written(since, volume.subject())
}

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
fn a_node_is_there_by_any_name_that_the_pv_knows() {
    let bare = |pv: &mut Value| pv["metadata"]["annotations"] = json!({});
    for (what, nodes, pv, expected) in [
        (
            "its label",
            &[ELSEWHERE, ("x", Some("host-1"))][..],
            volume(|_| {}),
            Verdict::There,
        ),
        (
            "its name",
            &[ELSEWHERE, ("host-1", Some("x"))],
            volume(|_| {}),
            Verdict::There,
        ),
        (
            "its maker",
            &[ELSEWHERE, ("node-1", Some("x"))],
            volume(|_| {}),
            Verdict::There,
        ),
        (
            "its maker, unlabelled",
            &[ELSEWHERE, ("node-1", None)],
            volume(|_| {}),
            Verdict::There,
        ),
        (
            "others",
            &[ELSEWHERE, ("node-2", Some("host-2"))],
            volume(|_| {}),
            Verdict::Gone,
        ),
        (
            "others, unlabelled",
            &[ELSEWHERE, ("node-2", None)],
            volume(|_| {}),
            Verdict::Gone,
        ),
        (
            "others, made by hand",
            &[ELSEWHERE],
            volume(bare),
            Verdict::Gone,
        ),
    ] {
        assert_eq!(verdict(&pv.place, &roster(nodes)), expected, "{what}");
    }
    for (nodes, words) in [
        (&[][..], "no Node at all"),
        (&[ELSEWHERE, ("x", None)], "\"x\""),
    ] {
        let Verdict::Unclear(why) = verdict(&volume(bare).place, &roster(nodes)) else {
            panic!("{nodes:?} are no doubt");
        };
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn an_affinity_names_all_its_nodes_or_is_left_alone() {
    let expression = |key: &str, operator: &str, values: &[&str]| json!({ "key": key, "operator": operator, "values": values });
    let host = |values: &[&str]| expression("kubernetes.io/hostname", "In", values);
    let place = |list: Value| volume(|pv| *terms(pv) = list).place;
    let hosts = |list: Value| place(list).unwrap().hosts;
    let labels = |list: &[Value]| json!({ "matchExpressions": list });
    assert_eq!(
        hosts(json!([labels(&[host(&["a"])])])),
        ["a", "host-1"],
        "and its label"
    );
    assert_eq!(
        hosts(json!([
            labels(&[host(&["b", "a"])]),
            labels(&[host(&["c"])])
        ])),
        ["a", "b", "c", "host-1"]
    );
    // Narrowed down further.
    assert_eq!(
        hosts(json!([labels(&[
            host(&["a"]),
            expression("rack", "Exists", &[])
        ])])),
        ["a", "host-1"]
    );
    let field = json!({ "matchFields": [expression("metadata.name", "In", &["n"])] });
    assert_eq!(hosts(json!([field])), ["host-1", "n"]);
    for unreadable in [
        json!([]),
        json!([{}]),
        json!([labels(&[host(&[])])]),
        json!([labels(&[expression(
            "kubernetes.io/hostname",
            "NotIn",
            &["a"]
        )])]),
        json!([labels(&[expression("rack", "In", &["a"])])]),
        json!([
            labels(&[host(&["a"])]),
            labels(&[expression("rack", "Exists", &[])])
        ]),
    ] {
        assert!(place(unreadable.clone()).is_err(), "{unreadable}");
    }
    assert!(
        volume(|pv| pv["spec"]["nodeAffinity"] = json!(null))
            .place
            .is_err()
    );
}

#[test]
fn the_maker_is_read_with_and_without_its_uid() {
    for (provisioner, expected) in [
        (
            format!("local-volume-provisioner-node-1-{UID}"),
            Some("node-1"),
        ),
        ("local-volume-provisioner-node-1".into(), Some("node-1")),
        (format!("local-volume-provisioner-{UID}"), Some(UID)),
        (format!("local-volume-provisioner-é-{UID}"), Some("é")),
        ("kubernetes.io/minikube-hostpath".into(), None),
    ] {
        let volume = volume(|pv| {
            pv["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] = json!(provisioner);
        });
        assert_eq!(
            volume.place.unwrap().maker.as_deref(),
            expected,
            "{provisioner}"
        );
    }
}

#[test]
fn what_is_done_in_the_end_depends_on_phase_and_policy() {
    use Step::{DeleteClaim, DeletePv, TakeFinalizer};
    for (phase, policy, deleting, protected, expected) in [
        ("Bound", "Delete", false, true, Some(DeleteClaim)),
        ("Bound", "Retain", false, true, Some(DeleteClaim)),
        ("Bound", "Delete", true, true, Some(DeleteClaim)),
        ("Released", "Delete", false, true, Some(DeletePv)),
        ("Released", "Delete", false, false, Some(DeletePv)),
        ("Released", "Retain", false, true, None),
        ("Released", "Recycle", false, true, None),
        ("Released", "Delete", true, true, Some(TakeFinalizer)),
        ("Released", "Retain", true, true, Some(TakeFinalizer)),
        // Somebody else's finalizer keeps it.
        ("Released", "Delete", true, false, None),
        ("Available", "Retain", false, false, Some(DeletePv)),
        ("Available", "Delete", true, true, Some(TakeFinalizer)),
        ("Failed", "Delete", false, true, None),
        ("Pending", "Delete", false, false, None),
    ] {
        let mut volume = volume(|pv| {
            pv["status"]["phase"] = json!(phase);
            pv["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
            pv["spec"]["claimRef"] = json!({ "namespace": "n", "name": "c", "uid": "c-uid" });
            if protected {
                pv["metadata"]["finalizers"] = json!(["local-volume-provisioner/cleanup"]);
            }
            if deleting {
                pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
        });
        let what = format!("{phase} {policy} deleting={deleting} protected={protected}");
        let roster = roster(&[ELSEWHERE]);
        let next = |volume: &Volume| next(volume, &roster, now(), DELAY);
        let begins = expected.map_or(Next::Nothing, |_| Next::Now(Step::StartTimer));
        assert_eq!(next(&volume), begins, "{what}");
        volume.gone_since = Some(timer_of(&volume, 59));
        let due = now() + SignedDuration::from_secs(1);
        let waits = expected.map_or(Next::Nothing, |step| Next::Wait(step, due));
        assert_eq!(next(&volume), waits, "{what}");
        volume.gone_since = Some(timer_of(&volume, 60));
        let does = expected.map_or(Next::Nothing, Next::Now);
        assert_eq!(next(&volume), does, "{what}");
        volume.paused = true;
        assert_eq!(next(&volume), Next::Nothing, "{what}, paused");
    }
}

#[test]
fn a_pv_that_nobody_used_goes_at_once() {
    let roster = roster(&[ELSEWHERE]);
    let mut volume = volume(|_| {});
    assert_eq!(
        next(&volume, &roster, now(), DELAY),
        Next::Now(Step::DeletePv)
    );
    volume.never_used = false;
    assert_eq!(
        next(&volume, &roster, now(), DELAY),
        Next::Now(Step::StartTimer)
    );
}

#[test]
fn a_timer_is_taken_off_when_the_node_is_back_and_not_when_nobody_knows() {
    let mut volume = volume(|pv| pv["status"]["phase"] = json!("Bound"));
    volume.gone_since = Some(timer_of(&volume, 1000));
    let there = roster(&[ELSEWHERE, ("node-1", Some("host-1"))]);
    assert_eq!(next(&volume, &there, now(), DELAY), Next::Now(Step::Cancel));
    volume.gone_since = None;
    assert_eq!(next(&volume, &there, now(), DELAY), Next::Nothing);
    let nobody = next(&volume, &Roster::default(), now(), DELAY);
    assert!(matches!(nobody, Next::Unclear(_)), "{nobody:?}");
}

/// All Nodes were deleted, and are registered again one after the other.
#[test]
fn time_that_passed_without_any_node_does_not_count() {
    let mut volume = volume(|pv| {
        pv["status"]["phase"] = json!("Bound");
        pv["spec"]["claimRef"] = json!({ "namespace": "n", "name": "c", "uid": "c-uid" });
    });
    volume.gone_since = Some(timer_of(&volume, 1000));
    let mut roster = roster(&[ELSEWHERE]);
    roster.refilled = Some(now() - SignedDuration::from_secs(20));
    let due = now() + SignedDuration::from_secs(40);
    assert_eq!(
        next(&volume, &roster, now(), DELAY),
        Next::Wait(Step::DeleteClaim, due)
    );
    assert_eq!(
        next(&volume, &roster, due, DELAY),
        Next::Now(Step::DeleteClaim)
    );
}

proptest! {
    /// Whatever comes and goes, the roster knows the names and labels of the Nodes that are there.
    #[test]
    fn the_roster_is_what_a_list_would_be(
        changes in proptest::collection::vec((0..4_u8, proptest::option::of(0..3_u8), any::<bool>()), 0..40)
    ) {
        let mut roster = Roster::default();
        let mut model = std::collections::BTreeMap::new();
        for (name, label, comes) in changes {
            let name = format!("n{name}");
            let label = label.map(|label| format!("l{label}"));
            if comes {
                let news = model.insert(name.clone(), label.clone()) != Some(label.clone());
                prop_assert_eq!(roster.add(&node(&name, label.as_deref())), news);
            } else {
                model.remove(&name);
                roster.remove(&name);
            }
        }
        for name in ["n0", "n1", "n2", "n3", "l0", "l1", "l2"] {
            let known = model.contains_key(name) || model.values().flatten().any(|label| label == name);
            prop_assert_eq!(roster.knows(name), known);
        }
        prop_assert_eq!(roster.is_empty(), model.is_empty());
        prop_assert_eq!(roster.unlabelled().is_some(), model.values().any(Option::is_none));
    }

    /// Whatever the affinity says, nothing is done while one of its nodes is there.
    #[test]
    fn nothing_is_done_while_a_node_is_there(
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
        let roster = roster(&[("somewhere", Some(&format!("h{there}")))]);
        let verdict = verdict(&volume.place, &roster);
        prop_assert_eq!(verdict, if named { Verdict::There } else { Verdict::Gone });
        if named {
            prop_assert_eq!(next(&volume, &roster, now(), DELAY), Next::Nothing);
        }
    }
}
