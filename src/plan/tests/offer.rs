//! Which entries become PVs, and what those look like.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeSelectorTerm;
use serde_json::{Value, json};

use super::kit::*;
use crate::config::AccessMode;
use crate::names::{
    ANNOTATION_IDENTITY, ANNOTATION_PROVISIONED_BY, FINALIZER, LABEL_IDENTITY_HASH, pv_name,
    pv_name_on_collision,
};
use crate::plan::{Action, CleanupState, PvDraft};
use crate::quantity;
use crate::types::SkipReason;
use crate::view::{PvView, ReclaimPolicy, StorageClassView};

fn drafts(world: &World) -> Vec<PvDraft> {
    let actions = world.plan().actions.into_iter();
    actions
        .filter_map(|action| match action {
            Action::Create(draft) => Some(*draft),
            _ => None,
        })
        .collect()
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn own_node() -> Value {
    let host = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"] });
    json!({ "matchExpressions": [host] })
}

#[test]
fn a_new_volume_is_offered_with_the_plainest_settings() {
    let world = world().fast("a", &fs(1));
    world.expect("a new volume", &["create /mnt/fast/a", "a is Creating"]);
    let expected = PvDraft {
        name: pv_name("a", "node-1", "fast"),
        second_name: pv_name_on_collision("a", "node-1", "fast"),
        volume: volume(&world.config.classes["fast"], "a", &fs(1)),
        hostname: "host-1".into(),
        mark: None,
        claim: None,
        object: json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": pv_name("a", "node-1", "fast"),
                "labels": { "kubernetes.io/hostname": "host-1" },
                "annotations": {
                    ANNOTATION_PROVISIONED_BY: OURS,
                    ANNOTATION_IDENTITY: "v1:fs=ext4,root=/,uuid=u1",
                },
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "100Gi" },
                "local": { "path": "/mnt/fast/a" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [own_node()] } },
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "fast",
                "volumeMode": "Filesystem",
            },
        }),
    };
    assert_eq!(drafts(&world), [expected]);
}

#[test]
fn a_new_volume_is_offered_with_every_setting() {
    let disk = with(global(disk(1), true), |it| it.capacity = 11 * GIB + 5);
    let policy = StorageClassView {
        reclaim_policy: ReclaimPolicy::Delete,
        mount_options: vec!["noatime".into()],
        expandable: false,
    };
    let world = world()
        .storage_class("fast", Some(policy))
        .change_class("fast", |class| {
            class.access_mode = AccessMode::ReadWriteOncePod;
            class.fs_type = Some("xfs".into());
            class.selector = vec![NodeSelectorTerm::default()];
        })
        .config(|config| {
            config.protect_released_data = true;
            config.set_pv_owner_ref = true;
            config.use_node_name_only = true;
            config.node_labels_for_pv = vec!["zone".into(), "absent".into(), "both".into()];
            config.labels_for_pv = labels(&[
                ("team", "blue"),
                ("both", "of the configuration"),
                ("kubernetes.io/hostname", "forged"),
                (LABEL_IDENTITY_HASH, "forged"),
            ]);
        })
        .node(|node| {
            node.labels.extend(labels(&[("zone", "z1"), ("both", "of the node")]));
        })
        .fast("a", &disk);
    let expected = PvDraft {
        name: pv_name("a", "node-1", "fast"),
        second_name: pv_name_on_collision("a", "node-1", "fast"),
        volume: volume(&world.config.classes["fast"], "a", &disk),
        hostname: "host-1".into(),
        mark: None,
        claim: None,
        object: json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": pv_name("a", "node-1", "fast"),
                "labels": {
                    "kubernetes.io/hostname": "host-1",
                    LABEL_IDENTITY_HASH: "hash",
                    "zone": "z1",
                    "team": "blue",
                    "both": "of the configuration",
                },
                "annotations": {
                    ANNOTATION_PROVISIONED_BY: "local-volume-provisioner-node-1",
                    ANNOTATION_IDENTITY: "v1:wwid=disk-1",
                },
                "finalizers": [FINALIZER],
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-uid" },
                ],
            },
            "spec": {
                "accessModes": ["ReadWriteOncePod"],
                "capacity": { "storage": "11Gi" },
                "local": { "path": "/mnt/fast/a", "fsType": "xfs" },
                "mountOptions": ["noatime"],
                "nodeAffinity": { "required": { "nodeSelectorTerms": [own_node(), {}] } },
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "fast",
                "volumeMode": "Filesystem",
            },
        }),
    };
    assert_eq!(drafts(&world), [expected]);
}

/// The last answer stands until it is asked for again, which making the PV does.
#[test]
fn device_that_is_claimed_is_skipped_and_tried_again() {
    let claimed = world().fast("a", &disk(1)).refused("/mnt/fast/a", &disk(1));
    let skipped = ["create /mnt/fast/a", "a is Skipped as DeviceInUse"];
    claimed.expect("claimed", &skipped);
    claimed.clone().fast("b", &other_path_to(&disk(1), 1)).expect(
        "no other name of it is offered beside",
        &["create /mnt/fast/a", "a is Skipped as DeviceInUse", "b is Skipped as DuplicateDevice"],
    );
    let mut waiting = claimed.clone();
    for refusal in waiting.snapshot.ledger.refusals.0.values_mut() {
        refusal.retry_at += Duration::from_secs(1);
    }
    waiting.expect("inspected a moment ago", &["a is Skipped as DeviceInUse"]);
    claimed
        .creating("/mnt/fast/a", &disk(1))
        .expect("being tried again", &["a is Skipped as DeviceInUse"]);
    world()
        .fast("a", &disk(2))
        .refused("/mnt/fast/a", &disk(1))
        .expect("another device is there by now", &["create /mnt/fast/a", "a is Creating"]);
    world()
        .fast("a", &disk(1))
        .refused("/mnt/fast/a", &disk(1))
        .pv(pv("pv-a", "/mnt/fast/a", &disk(1)))
        .expect("it has a PV", &["a is Available"]);
}

/// What was drafted is, read back from the API, a PV that needs nothing.
#[test]
fn an_offered_volume_reads_back_as_ours_on_this_node() {
    let world = world().fast("a", &fs(1));
    let pv = made(&drafts(&world)[0]);
    let expected = with(pv_of_draft(&drafts(&world)[0]), |pv| {
        pv.name.clone_from(&pv_name("a", "node-1", "fast"));
    });
    assert_eq!(pv, expected);
}

fn pv_of_draft(draft: &PvDraft) -> PvView {
    with(pv("", draft.volume.path.as_str(), &fs(1)), |pv| {
        (pv.uid, pv.resource_version) = (String::new(), String::new());
        pv.phase = crate::view::Phase::Pending;
    })
}

#[test]
fn the_finalizer_is_for_data_that_will_have_to_be_cleaned() {
    for (protect, policy, expected) in [
        (false, ReclaimPolicy::Delete, false),
        (false, ReclaimPolicy::Retain, false),
        (true, ReclaimPolicy::Retain, false),
        (true, ReclaimPolicy::Delete, true),
    ] {
        let world = world()
            .storage_class("fast", Some(storage_class(policy.clone())))
            .config(|config| config.protect_released_data = protect)
            .fast("a", &fs(1));
        let pv = made(&drafts(&world)[0]);
        assert_eq!((pv.has_finalizer(), &pv.policy), (expected, &policy), "{protect} {policy:?}");
    }
}

#[test]
fn capacity_is_rounded_down_by_size() {
    const MIB: u64 = 1 << 20;
    for (bytes, offered) in [
        (777, 777),
        (10 * MIB + 1, 10 * MIB),
        (10 * GIB - 1, 10 * GIB - MIB),
        (10 * GIB + MIB, 10 * GIB),
    ] {
        let world = world().fast("a", &with(fs(1), |fs| fs.capacity = bytes));
        let pv = made(&drafts(&world)[0]);
        let capacity = pv.capacity.as_deref().and_then(quantity::parse);
        assert_eq!(capacity, Some(offered), "{bytes}");
    }
}

#[test]
fn fault_12_a_name_that_is_taken_gives_way_to_the_second() {
    let (first, second) =
        (pv_name("a", "node-1", "fast"), pv_name_on_collision("a", "node-1", "fast"));
    let elsewhere = |pv| with(pv, |pv: &mut PvView| pv.hostnames = vec!["host-2".into()]);
    let by_another = |pv| {
        with(elsewhere(pv), |pv: &mut PvView| {
            pv.provisioned_by = Some("local-volume-provisioner-node-2-uid".into());
        })
    };
    for (situation, taken, expected) in [
        ("not taken", pv("other", "/mnt/fast/b", &fs(2)), &first),
        ("another path of this node", pv(&first, "/mnt/fast/b", &fs(2)), &second),
        ("the same path of another node", by_another(pv(&first, "/mnt/fast/a", &fs(2))), &second),
    ] {
        let world = world().fast("a", &fs(1)).pv(taken);
        let names: Vec<_> = drafts(&world).into_iter().map(|draft| draft.name).collect();
        assert_eq!(names, [expected.as_str()], "{situation}");
    }
}

#[test]
fn a_path_has_one_pv_of_any_origin() {
    let taken = pv("pv-x", "/mnt/fast/a", &fs(1));
    let by_hand = with(taken.clone(), |pv| {
        (pv.provisioned_by, pv.identity) = (None, None);
    });
    for (situation, pv, expected) in [
        ("ours", taken.clone(), "a is Available"),
        ("made by hand", by_hand.clone(), "a is Skipped as PathClaimedByOtherPV"),
        (
            "another node's provisioner, affinity to this one",
            with(taken, |pv| {
                pv.provisioned_by = Some("local-volume-provisioner-node-2-uid".into());
            }),
            "a is Skipped as PathClaimedByOtherPV",
        ),
        (
            "made by hand for another class",
            with(by_hand, |pv| pv.class = "else".into()),
            "a is Skipped as PathClaimedByOtherPV",
        ),
    ] {
        world().fast("a", &fs(1)).pv(pv).expect(situation, &[expected]);
    }
}

#[test]
fn nothing_is_offered_while_a_cleanup_is_at_work_on_the_path() {
    let gone = pv("pv-a", "/mnt/fast/a", &fs(1));
    let failed = failed_until(999);
    for (state, expected) in [
        (CleanupState::Wiping, &["a is Skipped as CleanupRunning"][..]),
        (CleanupState::Released, &["forget uid-pv-a", "create /mnt/fast/a", "a is Creating"]),
        (failed, &["forget uid-pv-a", "create /mnt/fast/a", "a is Creating"]),
    ] {
        let situation = format!("the PV is gone, its cleanup is {state:?}");
        world().fast("a", &fs(1)).cleanup(&gone, state).expect(&situation, expected);
    }
}

#[test]
fn a_finished_cleanup_is_kept_as_long_as_its_pv() {
    let pv = terminating(released(pv("pv-a", "/mnt/fast/a", &fs(1))));
    let world = world().fast("a", &fs(1)).pv(pv.clone());
    for (state, expected) in
        [(CleanupState::Wiping, "a is Cleaning"), (CleanupState::Released, "a is Cleaned")]
    {
        world.clone().cleanup(&pv, state).expect("its PV is still there", &[expected]);
    }
}

#[test]
fn nothing_is_offered_twice_while_the_first_write_is_under_way() {
    for name in [pv_name("a", "node-1", "fast"), pv_name_on_collision("a", "node-1", "fast")] {
        let mut world = world().fast("a", &fs(1));
        world.snapshot.ledger.writing.insert(name);
        world.expect("it is being created", &["a is Creating"]);
        assert!(!world.plan().not_ready.is_empty());
    }
}

#[test]
fn what_the_scan_skipped_is_told_with_its_reason() {
    for reason in [
        SkipReason::NotMounted,
        SkipReason::NotADirectoryOrBlockDevice,
        SkipReason::ModeMismatch,
        SkipReason::NoCapacity,
        SkipReason::NameNotUtf8,
        SkipReason::NamePatternMismatch,
        SkipReason::Unreadable,
        SkipReason::TimedOut,
    ] {
        let expected = format!("a is Skipped as {reason:?}");
        world().entry("fast", "a", reason).expect("skipped by the scan", &[&expected]);
    }
}
