//! PVs of CSI drivers.

use super::*;
use crate::view::{CsiDriver, NodeReference};

const AZURE: &str = "localdisk.csi.acstor.io";
const SELECTED: &str = "localdisk.csi.acstor.io/selected-node";
const INITIAL: &str = "localdisk.csi.acstor.io/selected-initial-node";
type Change<'a> = &'a dyn Fn(&mut Value);

const TOPOLOGY: &str = "topology.example.com/node";

/// A PV of a driver, read with this entry of `--csi-drivers`.
fn csi(entry: &str, driver: &str, change: impl FnOnce(&mut Value)) -> Option<Volume> {
    let mut pv = json!({
        "metadata": { "name": "pv", "uid": "pv-uid", "resourceVersion": "1", "annotations": {
            "pv.kubernetes.io/provisioned-by": driver,
        } },
        "spec": {
            "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": { "driver": driver, "volumeHandle": "a", "volumeAttributes": {} },
        },
        "status": { "phase": "Available" },
    });
    change(&mut pv);
    let classes = ["fast".to_owned()];
    let drivers = [CsiDriver::parse(entry).unwrap()];
    Volume::read(&serde_json::from_value(pv).unwrap(), &classes, &drivers)
}

fn on_nodes(pv: &mut Value, terms: &[(&str, &str, &[&str])]) {
    let terms = terms.iter().map(|(key, operator, values)| {
        json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
    });
    *super::terms(pv) = terms.collect();
}

#[test]
fn an_entry_names_a_driver_and_where_it_records_the_node() {
    let affinity = |label: &str| NodeReference::Affinity(label.into());
    let annotation = |key: &str| NodeReference::Annotation(key.into());
    let attribute = |key: &str| NodeReference::Attribute(key.into());
    for (entry, name, references) in [
        ("lis.csi.aws.com", "lis.csi.aws.com", vec![affinity(LABEL_HOSTNAME)]),
        (" x ", "x", vec![affinity(LABEL_HOSTNAME)]),
        (AZURE, AZURE, vec![annotation(SELECTED), attribute(INITIAL)]),
        ("x=affinity", "x", vec![affinity(LABEL_HOSTNAME)]),
        ("x=affinity:a/b", "x", vec![affinity("a/b")]),
        (
            "localdisk.csi.acstor.io=attribute:a | annotation:b",
            AZURE,
            vec![attribute("a"), annotation("b")],
        ),
    ] {
        let name = name.to_owned();
        let expected = CsiDriver { name, references };
        assert_eq!(CsiDriver::parse(entry), Ok(expected), "{entry}");
    }
    for (entry, words) in [
        ("", "name of the CSI driver"),
        ("=annotation:a", "name of the CSI driver"),
        ("x=", "invalid reference"),
        ("x=label:a", "invalid reference \"label:a\""),
        ("x=affinity||annotation:a", "invalid reference \"\""),
        ("x=annotation", "invalid reference"),
        ("x=attribute: ", "invalid reference"),
        ("x=affinity:", "invalid reference"),
    ] {
        let error = CsiDriver::parse(entry).unwrap_err();
        assert!(error.contains(words), "{entry}: {error}");
    }
}

#[test]
fn only_pvs_of_the_class_and_the_driver_are_read() {
    assert!(csi("x", "x", |_| {}).is_some());
    assert!(csi("x", "ebs.csi.aws.com", |_| {}).is_none());
    assert!(csi("x", "x", |pv| pv["spec"]["storageClassName"] = json!("gp3")).is_none());
    assert!(csi("x", "x", |pv| pv["spec"]["csi"] = json!(null)).is_none());
}

#[test]
fn node_is_found_by_the_first_reference_that_names_one() {
    let annotated = |pv: &mut Value| pv["metadata"]["annotations"][SELECTED] = json!("b");
    let empty = |pv: &mut Value| pv["metadata"]["annotations"][SELECTED] = json!("");
    let attributed = |pv: &mut Value| pv["spec"]["csi"]["volumeAttributes"][INITIAL] = json!("a");
    let by_host = |pv: &mut Value| on_nodes(pv, &[(LABEL_HOSTNAME, "In", &["h", "i"])]);
    let by_topology = |pv: &mut Value| on_nodes(pv, &[(TOPOLOGY, "In", &["t"])]);
    let topology = &format!("x=affinity:{TOPOLOGY}");
    let either = &format!("x=affinity:{TOPOLOGY}|annotation:{SELECTED}");
    for (entry, changes, hosts, label) in [
        (AZURE, &[&attributed as Change<'_>][..], &["a"][..], LABEL_HOSTNAME),
        (AZURE, &[&attributed, &annotated], &["b"], LABEL_HOSTNAME),
        (AZURE, &[&attributed, &empty], &["a"], LABEL_HOSTNAME),
        (AZURE, &[&by_host], &[], LABEL_HOSTNAME),
        (AZURE, &[], &[], LABEL_HOSTNAME),
        ("x", &[&by_host], &["h", "i"], LABEL_HOSTNAME),
        ("x", &[&by_topology], &[], LABEL_HOSTNAME),
        ("x", &[&attributed], &[], LABEL_HOSTNAME),
        (topology, &[&by_topology], &["t"], TOPOLOGY),
        (topology, &[&by_host], &[], LABEL_HOSTNAME),
        (either, &[&annotated], &["b"], LABEL_HOSTNAME),
        (either, &[&annotated, &by_topology], &["t"], TOPOLOGY),
    ] {
        let driver = entry.split('=').next().unwrap();
        let volume = csi(entry, driver, |pv| {
            for change in changes {
                change(pv);
            }
        });
        let volume = volume.unwrap();
        assert_eq!(volume.hosts, hosts, "{entry}");
        assert_eq!(volume.label, label, "{entry}");
        if hosts.is_empty() {
            let why = is_gone(&volume, &[ELSEWHERE]).unwrap_err();
            assert!(why.contains("--csi-drivers"), "{why}");
            next(&volume, &[ELSEWHERE], Some(1000)).unwrap_err();
        }
    }
}

#[test]
fn affinity_of_which_a_term_may_match_any_node_names_none() {
    let unclear: [&[(&str, &str, &[&str])]; 4] = [
        &[(LABEL_HOSTNAME, "In", &["a"]), ("zone", "In", &["z"])],
        &[(LABEL_HOSTNAME, "NotIn", &["a"])],
        &[(LABEL_HOSTNAME, "In", &[])],
        &[],
    ];
    for terms in unclear {
        let volume = csi("x", "x", |pv| on_nodes(pv, terms)).unwrap();
        assert_eq!(volume.hosts, [""; 0], "{terms:?}");
    }
}

#[test]
fn node_exists_by_name_or_by_the_label_of_the_reference() {
    let entry = format!("x=affinity:{TOPOLOGY}");
    let by_label = csi(&entry, "x", |pv| on_nodes(pv, &[(TOPOLOGY, "In", &["t"])])).unwrap();
    let by_name = csi("x=annotation:n", "x", |pv| {
        pv["metadata"]["annotations"]["n"] = json!("t");
    });
    let by_name = by_name.unwrap();
    let node = |name: &str, key: &str, value: &str| -> Nodes {
        let labels = [(key.to_owned(), value.to_owned())];
        [(name.to_owned(), labels.into())].into()
    };
    let gone = |volume, nodes: &Nodes| plan::is_gone(volume, &NodeIndex::new(nodes)).ok();
    for (nodes, labelled, named) in [
        (node("n", TOPOLOGY, "t"), Some(false), Some(false)),
        (node("n", TOPOLOGY, "other"), Some(true), Some(true)),
        (node("t", TOPOLOGY, "other"), Some(false), Some(false)),
        // The driver has not labelled this Node yet, so that it may be the PV's.
        (node("n", LABEL_HOSTNAME, "h"), None, Some(true)),
        (node("n", LABEL_HOSTNAME, "t"), Some(false), Some(false)),
        (Nodes::new(), None, None),
    ] {
        assert_eq!(gone(&by_label, &nodes), labelled, "label: {nodes:?}");
        assert_eq!(gone(&by_name, &nodes), named, "name: {nodes:?}");
    }
}

/// The use of such a volume is not recorded, so that an Available one may have data.
#[test]
fn pv_is_deleted_after_the_delay_only() {
    let volume = csi("x", "x", |pv| {
        on_nodes(pv, &[(LABEL_HOSTNAME, "In", &["h"])]);
    })
    .unwrap();
    assert_eq!(next(&volume, &[ELSEWHERE], None), now(Step::Announce));
    assert_eq!(next(&volume, &[ELSEWHERE], Some(60)), now(Step::DeletePv));
    assert_eq!(next(&volume, &[ELSEWHERE, ("h", None)], Some(60)), Ok(None));
    let bound = csi("x", "x", |pv| {
        on_nodes(pv, &[(LABEL_HOSTNAME, "In", &["h"])]);
        pv["status"]["phase"] = json!("Bound");
        pv["spec"]["claimRef"] = json!({ "namespace": "a", "name": "b", "uid": "c" });
    });
    let bound = bound.unwrap();
    assert_eq!(next(&bound, &[ELSEWHERE], Some(60)), now(Step::DeleteClaim));
}
