use serde_json::{Value, json};

use super::*;

fn pv(change: impl FnOnce(&mut Value)) -> PvView {
    let mut object = json!({
        "metadata": {
            "name": "pv", "uid": "uid", "resourceVersion": "1",
            "finalizers": ["kubernetes.io/pv-protection", FINALIZER],
            "labels": { "kubernetes.io/hostname": "node-1" },
        },
        "spec": {
            "persistentVolumeReclaimPolicy": "Delete",
            "local": { "path": "/mnt/disks/a" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"] },
            ] }] } },
        },
        "status": { "phase": "Available" },
    });
    change(&mut object);
    PvView::from_api(&serde_json::from_value(object).unwrap())
}

#[test]
fn only_pvs_without_data_of_a_tenant_are_free() {
    let claim = json!({ "namespace": "default", "name": "c", "uid": "c-uid" });
    let used = json!({ "local-volume-provisioner/used": "true" });
    for (phase, policy, claimed, marked, deleting, free) in [
        ("Available", "Delete", false, false, false, true),
        ("Available", "Delete", false, false, true, true),
        ("Pending", "Delete", false, false, true, true),
        // An operator has kept it Available with its data. If it is deleted, the data would be abandoned.
        ("Available", "Delete", false, true, false, true),
        ("Available", "Delete", false, true, true, false),
        ("Bound", "Delete", true, true, false, true),
        ("Bound", "Delete", true, true, true, false),
        ("Bound", "Retain", true, true, true, false),
        ("Released", "Delete", true, true, false, false),
        ("Released", "Delete", true, false, true, false),
        ("Released", "Retain", true, true, false, true),
        ("Released", "Retain", true, true, true, true),
        ("Released", "Recycle", true, true, true, false),
        ("Failed", "Delete", true, true, false, true),
        ("Failed", "Delete", true, true, true, false),
    ] {
        let pv = pv(|pv| {
            pv["status"]["phase"] = json!(phase);
            pv["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
            if claimed {
                pv["spec"]["claimRef"] = claim.clone();
            }
            if marked {
                pv["metadata"]["annotations"] = used.clone();
            }
            if deleting {
                pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
        });
        assert_eq!(
            unclean(&pv).is_none(),
            free,
            "{phase} {policy} claimed={claimed} used={marked} deleting={deleting}"
        );
    }
}

#[test]
fn node_scope_excludes_pvs_that_name_another_node() {
    let node = "node-1";
    let hostnames = |pv: &mut Value, names: Value| {
        let terms = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values";
        *pv.pointer_mut(terms).unwrap() = names;
    };
    assert!(is_of_node(node, &pv(|_| {})));
    // Created by the Go provisioner.
    let unlabelled = pv(|pv| pv["metadata"]["labels"] = json!({}));
    assert!(is_of_node(node, &unlabelled));
    for (what, other) in [
        (
            "another label",
            pv(|pv| pv["metadata"]["labels"]["kubernetes.io/hostname"] = json!("node-2")),
        ),
        ("another affinity", pv(|pv| hostnames(pv, json!(["node-2"])))),
        ("two nodes", pv(|pv| hostnames(pv, json!(["node-1", "node-2"])))),
        (
            "no node at all",
            pv(|pv| {
                pv["metadata"]["labels"] = json!({});
                pv["spec"]["nodeAffinity"] = json!(null);
            }),
        ),
    ] {
        assert!(!is_of_node(node, &other), "{what}");
    }
}
