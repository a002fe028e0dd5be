//! Volumes of CSI drivers that are lost with their nodes.

use kube::api::{Patch, PatchParams};

use super::*;
use support::skip;

const AZURE: &str = "localdisk.csi.acstor.io";
const TOPOLOGY: &str = "topology.example.com/node";
const DRIVERS: &str = "--csi-drivers=lis.csi.aws.com,localdisk.csi.acstor.io,disks.example.com=affinity:topology.example.com/node";

/// Makes the volume of a driver of a PV.
fn is_of(pv: &mut Value, driver: &str) {
    let spec = pv["spec"].as_object_mut().unwrap();
    spec.remove("local");
    spec.insert("csi".into(), json!({ "driver": driver, "volumeHandle": "a" }));
    pv["metadata"]["annotations"] = json!({ "pv.kubernetes.io/provisioned-by": driver });
}

/// As that of Azure: without an affinity.
fn azure(pv: &mut Value, first: &str, current: Option<&str>) {
    is_of(pv, AZURE);
    pv["spec"].as_object_mut().unwrap().remove("nodeAffinity");
    let attribute = format!("{AZURE}/selected-initial-node");
    pv["spec"]["csi"]["volumeAttributes"] = json!({ attribute: first });
    if let Some(node) = current {
        pv["metadata"]["annotations"][format!("{AZURE}/selected-node")] = json!(node);
    }
}

#[test]
fn volumes_of_csi_drivers_go_with_the_node_that_they_name() {
    let (stage, node) = or_skip!(stage_with_node());
    let aws = |pv: &mut Value| is_of(pv, "lis.csi.aws.com");
    let bound_pv = pv(&stage, "data", &node, aws);
    stage.claim("data", "fast", Some(&bound_pv));
    stage.claim_in_phase("data", "Bound");
    stage.in_phase(&bound_pv, "Bound");
    let free = pv(&stage, "free", &node, aws);
    let first = pv(&stage, "first", &node, |pv| azure(pv, &node, None));
    let here = stage.node();
    let back = pv(&stage, "back", &node, |pv| azure(pv, &here, Some(&node)));

    let moved = pv(&stage, "moved", &node, |pv| azure(pv, &node, Some(&here)));
    let unknown = pv(&stage, "unknown", &node, |pv| azure(pv, "", None));
    let network = pv(&stage, "network", &node, |pv| is_of(pv, "ebs.csi.aws.com"));
    let mut cleanup = synced(&stage, "cleanup", &[&delay_flag(&stage), DRIVERS]);
    counts(&stage, &mut cleanup, "unclear_persistentvolumes", 1);
    lose(&stage, &node);
    for pv in [&bound_pv, &free, &first, &back] {
        timer_starts(&stage, &cleanup, pv);
    }
    claim_goes(&stage, "data");
    for pv in [&free, &first, &back] {
        pv_goes(&stage, pv);
    }
    reconciles_again(&stage);
    stay(&stage, &[&moved, &unknown, &network]);
    let log = cleanup.log();
    let said = log.lines().find(|line| line.contains("left alone"));
    let said = said.unwrap();
    assert!(said.contains("--csi-drivers") && said.contains(&unknown), "{said}");
    assert!(!log.contains(&network), "{log}");
}

/// The watch is behind: it has seen the node's deletion, and not that another Node has its label.
#[test]
fn node_of_a_csi_volume_is_read_by_the_label_of_its_driver() {
    let (stage, node) = or_skip!(stage_with_node());
    if stage.embedded().is_none() {
        return skip("the Nodes of a cluster that others use are not labelled");
    }
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let label = Patch::Merge(json!({ "metadata": { "labels": { TOPOLOGY: "other" } } }));
    stage.request(nodes.patch(&stage.node(), &PatchParams::default(), &label));
    let pv = pv(&stage, "free", &node, |pv| {
        is_of(pv, "disks.example.com");
        let affinity = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0";
        *pv.pointer_mut(affinity).unwrap() =
            json!({ "key": TOPOLOGY, "operator": "In", "values": ["disk-7"] });
    });
    let asking = stage.faults().on(Verb::Get).resource("nodes").hold();
    let cleanup = synced(&stage, "cleanup", &["--pvc-deletion-delay=0s", DRIVERS]);
    // It names no label of the driver, so that nothing is clear.
    stage.eventually("the Node without the label is named", || {
        cleanup.log().contains(&format!("has no label {TOPOLOGY}"))
    });
    lose(&stage, &node);
    stage.eventually("it asks", || asking.hits() > 0);
    let held = stage.faults().hold_watches("nodes");
    let labels = json!({ "kubernetes.io/hostname": node, TOPOLOGY: "disk-7" });
    let other = json!({ "metadata": { "name": stage.named("renamed"), "labels": labels } });
    stage.create(&nodes, other);
    asking.clear();
    let found =
        format!("there is the Node {}, whose name or label {TOPOLOGY}", stage.named("renamed"));
    stage.eventually("it is found", || cleanup.log().contains(&found));
    stay(&stage, &[&pv]);
    drop(held);
    assert_eq!(writes(&stage, Verb::Delete, PVS), 0);
}
