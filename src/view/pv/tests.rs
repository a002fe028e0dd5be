use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::view::{NodeView, Ownership};

fn read(pv: Value) -> PvView {
    PvView::from_api(&serde_json::from_value(pv).unwrap())
}

/// A PV with one more field in `metadata`, `spec` or `status`.
fn read_with(part: &str, field: &str, value: Value) -> PvView {
    let mut pv = json!({ "metadata": {}, "spec": {}, "status": {} });
    pv[part][field] = value;
    read(pv)
}

#[test]
fn every_field_is_read() {
    let pv = read(json!({
        "metadata": {
            "name": "pv-a",
            "uid": "uid-a",
            "resourceVersion": "7",
            "finalizers": ["kubernetes.io/pv-protection", FINALIZER],
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-02T03:04:05Z",
            "labels": { LABEL_HOSTNAME: "host-1", LABEL_IDENTITY_HASH: "0123" },
            "annotations": {
                ANNOTATION_PROVISIONED_BY: "another-provisioner",
                ANNOTATION_INSTALLATION: "storage/lvp",
                ANNOTATION_BOUND_BY_CONTROLLER: "yes",
                ANNOTATION_USED: "true",
                ANNOTATION_IDENTITY: "v1:wwid=1",
                ANNOTATION_CONSENT: "wipe:v1:wwid=1",
                ANNOTATION_PAUSED: "True",
                ANNOTATION_STATE_DIRECTORY: "id",
            },
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node-uid" },
                { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "other" },
            ],
        },
        "spec": {
            "storageClassName": "fast",
            "local": { "path": "/mnt/fast/a/" },
            "volumeMode": "Block",
            "capacity": { "storage": "11Gi" },
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": { "namespace": "default", "name": "data", "uid": "claim-uid" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [
                { "matchExpressions": [
                    { "key": LABEL_HOSTNAME, "operator": "In", "values": ["host-1", "host-2"] },
                ] },
                { "matchExpressions": [
                    { "key": LABEL_HOSTNAME, "operator": "In", "values": ["host-3"] },
                ] },
            ] } },
        },
        "status": { "phase": "Released", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z" },
    }));
    let expected = PvView {
        state_directory: Some("id".into()),
        name: "pv-a".into(),
        uid: "uid-a".into(),
        resource_version: "7".into(),
        created: Some("2025-01-01T00:00:00Z".parse().unwrap()),
        finalizers: vec!["kubernetes.io/pv-protection".into(), FINALIZER.into()],
        deleting: true,
        class: "fast".into(),
        local_path: Ok(HostPath::from_api("/mnt/fast/a").unwrap()),
        link: None,
        other_path: None,
        mode: VolumeMode::Block,
        capacity: Some("11Gi".into()),
        policy: ReclaimPolicy::Delete,
        claim: Some(ClaimRef {
            namespace: "default".into(),
            name: "data".into(),
            uid: Some("claim-uid".into()),
        }),
        phase: Phase::Released,
        released_at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        release: Some("2026-01-02T03:04:05Z/2026-01-01T00:00:00Z".into()),
        hostnames: vec!["host-1".into(), "host-2".into(), "host-3".into()],
        affinity: None,
        hostname_label: Some("host-1".into()),
        provisioned_by: Some("another-provisioner".into()),
        installation: Some("storage/lvp".into()),
        bound_by_controller: true,
        used: true,
        use_is_unverified: false,
        identity: Some("v1:wwid=1".into()),
        identity_hash: Some("0123".into()),
        offer: None,
        moved_from: None,
        consent: Some("wipe:v1:wwid=1".into()),
        paused: true,
        retired: None,
        owners: [("v1", "Node", "n", "node-uid"), ("apps/v1", "DaemonSet", "d", "other")]
            .map(|(api_version, kind, name, uid)| OwnerReference {
                api_version: api_version.into(),
                kind: kind.into(),
                name: name.into(),
                uid: uid.into(),
                ..OwnerReference::default()
            })
            .into(),
    };
    assert_eq!(pv, expected);
    assert!(pv.has_finalizer());
    assert_eq!(pv.reference().resource_version, "7");
    assert_eq!(pv.tenancy().claim_uid.as_deref(), Some("claim-uid"));
}

#[test]
fn absent_fields_are_read_as_safe_values() {
    let pv = read(json!({}));
    assert_eq!((pv.policy.clone(), pv.phase), (ReclaimPolicy::Retain, Phase::Pending));
    let not_local = Err("it is not a local volume (it has no spec.local)".to_owned());
    assert_eq!((&pv.local_path, pv.path()), (&not_local, None));
    assert_eq!(pv.provisioned_by, None);
    assert_eq!((pv.affinity.as_ref(), pv.path_owner()), (Some(&Affinity::AnyNode), None));
    assert!(!pv.deleting && !pv.used && !pv.bound_by_controller && pv.hostnames.is_empty());
}

#[test]
fn a_path_that_names_no_volume_for_certain_is_no_path() {
    for (path, fault) in [
        ("/mnt/disks/.", "it has a \".\" component"),
        ("/mnt/disks/../etc", "it has a \"..\" component"),
        ("mnt/disks/a", "it is not absolute"),
        ("", "it is not absolute"),
    ] {
        let pv = read_with("spec", "local", json!({ "path": path }));
        let fault = format!("its path {path:?} is not usable: {fault}");
        assert_eq!(pv.local_path, Err(fault));
        assert_eq!(pv.path(), None);
    }
    let host_path = read_with("spec", "hostPath", json!({ "path": "/mnt/disks/a" }));
    assert_eq!(host_path.path(), None);
}

#[test]
fn only_in_terms_locate_a_pv() {
    for (expression, hosts) in [
        (json!({ "key": LABEL_HOSTNAME, "operator": "In", "values": ["a", "b"] }), &["a", "b"][..]),
        (json!({ "key": LABEL_HOSTNAME, "operator": "NotIn", "values": ["a"] }), &[]),
        (json!({ "key": LABEL_HOSTNAME, "operator": "Exists" }), &[]),
        (json!({ "key": "zone", "operator": "In", "values": ["a"] }), &[]),
        (json!({ "key": LABEL_HOSTNAME, "operator": "In" }), &[]),
    ] {
        let terms = json!([{ "matchExpressions": [expression] }]);
        let affinity = json!({ "required": { "nodeSelectorTerms": terms } });
        assert_eq!(read_with("spec", "nodeAffinity", affinity).hostnames, hosts, "{expression}");
    }
}

#[test]
fn a_claim_that_is_only_reserved_has_no_uid() {
    for uid in [json!({ "name": "data" }), json!({ "name": "data", "uid": "" })] {
        let pv = read_with("spec", "claimRef", uid);
        assert_eq!(pv.claim.as_ref().unwrap().uid, None);
        assert_eq!(pv.tenancy().claim_uid, None);
        assert!(!pv.never_used());
    }
}

#[test]
fn one_trace_of_use_makes_a_pv_used() {
    let annotated = |key: &str| read_with("metadata", "annotations", json!({ key: "true" }));
    for (trace, pv) in [
        ("claimRef", read_with("spec", "claimRef", json!({ "name": "data" }))),
        ("used", annotated(ANNOTATION_USED)),
        ("bound by a controller", annotated(ANNOTATION_BOUND_BY_CONTROLLER)),
        ("Bound", read_with("status", "phase", json!("Bound"))),
        ("Released", read_with("status", "phase", json!("Released"))),
        ("Failed", read_with("status", "phase", json!("Failed"))),
    ] {
        assert!(!pv.never_used(), "{trace}");
    }
    assert!(read_with("status", "phase", json!("Available")).never_used());
}

#[test]
fn deletion_time_replaces_a_missing_release_time() {
    let pv = read_with("metadata", "deletionTimestamp", json!("2026-01-02T03:04:05Z"));
    assert_eq!(pv.released_at, Some("2026-01-02T03:04:05Z".parse().unwrap()));
}

#[test]
fn ownership_depends_on_name_uid_and_host() {
    use Ownership::{Foreign, FormerNode, Ours};
    let node = NodeView {
        name: "node-1".into(),
        uid: "u1".into(),
        hostname: "host-1".into(),
        labels: BTreeMap::new(),
        paused: false,
        consents: BTreeSet::new(),
        approvals: BTreeMap::new(),
    };
    let bare = "local-volume-provisioner-node-1";
    // By whom, hostname label, hostname of the affinity; whose with the UID in names, and without.
    for (by, label, host, with_uid, name_only) in [
        (Some(format!("{bare}-u1")), "host-1", "host-1", Ours, Ours),
        (Some(format!("{bare}-u1")), "", "host-1", Ours, FormerNode),
        (Some(bare.into()), "host-1", "host-1", FormerNode, Ours),
        (Some(bare.into()), "", "", Foreign, Ours),
        (Some(format!("{bare}-u0")), "host-1", "host-1", FormerNode, Ours),
        (Some(format!("{bare}-u0")), "", "host-1", FormerNode, FormerNode),
        (Some(format!("{bare}-u0")), "host-2", "host-2", Foreign, Foreign),
        (Some(format!("{bare}0-u1")), "host-1", "host-1", Foreign, Foreign),
        (Some("kubernetes.io/no-provisioner".into()), "host-1", "host-1", Foreign, Foreign),
        (None, "host-1", "host-1", Foreign, Foreign),
    ] {
        let mut pv = read(json!({}));
        pv.provisioned_by.clone_from(&by);
        pv.hostname_label = Some(label.to_owned()).filter(|label| !label.is_empty());
        pv.hostnames = vec![host.to_owned()];
        for (name_only, wanted) in [(false, with_uid), (true, name_only)] {
            let situation = format!("{by:?} {label:?} {host:?}, name only: {name_only}");
            let owner = |pv: &PvView, ours| pv.ownership(&node, name_only, ours);
            pv.installation = None;
            assert_eq!(owner(&pv, None), wanted, "{situation}");
            assert_eq!(owner(&pv, Some("a/b")), wanted, "{situation}, to be recorded");
            pv.installation = Some("a/b".into());
            assert_eq!(owner(&pv, Some("a/b")), wanted, "{situation}, recorded");
            let of_other = match wanted {
                Foreign => Foreign,
                _ => Ownership::OtherInstallation,
            };
            assert_eq!(owner(&pv, Some("a/c")), of_other, "{situation}, of another");
            assert_eq!(owner(&pv, None), of_other, "{situation}, ours is unknown");
        }
    }
}

#[test]
fn path_of_a_local_or_hostpath_pv_has_an_owner() {
    for (source, expected) in [
        (json!({ "local": { "path": "/mnt/a" } }), Some(("/mnt/a", true))),
        (json!({ "local": { "path": "/mnt/./a" } }), Some(("/mnt/./a", false))),
        (json!({ "hostPath": { "path": "/srv/a" } }), Some(("/srv/a", false))),
        (json!({ "csi": { "driver": "d" } }), None),
    ] {
        let owner = read(json!({ "spec": source })).path_owner();
        let owner = owner.as_ref().map(|it| (it.path.as_str(), it.owns_below));
        assert_eq!(owner, expected, "{source}");
    }
}
