//! A server dies, and its disk is put into another one.

use std::path::Path;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use support::stage::{annotation, name, uid};

use crate::bench::Bench;
use crate::disk::{MIB, Place};

const LABEL: &str = "kubernetes.io/hostname";

/// The path through which the kubelet mounts the volume.
pub fn link(pv: &PersistentVolume) -> String {
    let spec = pv.spec.as_ref().unwrap();
    spec.local.as_ref().unwrap().path.clone()
}

#[test]
fn the_disk_of_a_server_that_died_takes_its_claim_to_another_one() {
    let mut bench = or_skip!(Bench::set());
    bench.has_marks = true;
    let stage = &bench.stage;
    stage.class("fast", &json!({ "binding": "disk" }));
    let [one, other] = ["one", "other"].map(|name| {
        let dir = stage.sandbox.dir(&format!("disks/fast/{name}"));
        dir.unwrap()
    });
    // An identity that no other disk in the world has.
    let disk = bench.empty_disk("disk", 16 * MIB);
    disk.format("ext4");
    let disk = disk.with_wwn(0x5000_c500_8765_4321);
    let mount = |place: Place, at: &Path| {
        let (device, at) = (place.path(), at.display());
        bench.run(&format!("mount -t ext4 {} {at}", device.display()));
    };

    bench.boot(&[(&disk, Place::Scsi(1))]);
    mount(Place::Scsi(1), &one);
    bench.start_provisioner();
    let bound = stage.used(&stage.bind("data", &one));
    let file = format!("{}/file", link(&bound));
    bench.run(&format!("until echo kept 2>/dev/null >{file}; do sleep 0.1; done; sync"));
    bench.cut_power();
    let other_node = format!("{}-2", stage.node());
    let nodes: Api<Node> = Api::all(stage.client.clone());
    stage.request(nodes.delete(&stage.node(), &DeleteParams::default()));
    stage.register_node(&other_node, Some("other-host"));

    bench.boot(&[(&disk, Place::Scsi(2))]);
    mount(Place::Scsi(2), &other);
    let missing = bench.run(&format!("test -e {file} || echo missing"));
    assert_eq!(missing, "missing\n");
    let started = Instant::now();
    bench.start_provisioner_on(&other_node);
    let read = format!("until cat {file} 2>/dev/null; do sleep 0.1; done");
    assert_eq!(bench.run(&read), "kept\n");
    let lasted = started.elapsed();
    println!("{lasted:.1?} from the start of the provisioner to the link");

    let moved = stage.pvs_at(&other).pop().unwrap();
    assert_eq!(uid(&moved), uid(&bound));
    assert_eq!(moved.spec, bound.spec, "nothing but metadata changes");
    let label = |key: &str| moved.metadata.labels.as_ref().unwrap()[key].clone();
    assert_eq!(label(LABEL), "other-host");
    let path = annotation(&moved, "local-volume-provisioner/path");
    assert_eq!(path, other.to_str());
    assert_eq!(stage.claim_phase("data"), "Bound");
    let terms = &moved.spec.unwrap().node_affinity.unwrap().required.unwrap();
    let expressions = terms.node_selector_terms[0].match_expressions.clone();
    let of_disk = expressions.unwrap()[0].key.clone();
    stage.eventually("the Node has the label of the disk", || {
        let node = stage.request(nodes.get(&other_node));
        node.metadata.labels.unwrap().contains_key(&of_disk)
    });
    stage.event("VolumeAdopted", "its disk was moved from node");

    // It comes back, and this time only the operator knows that the other server does not use it.
    bench.cut_power();
    let node = stage.node();
    stage.register_node(&node, Some(&node));
    bench.boot(&[(&disk, Place::Scsi(1))]);
    mount(Place::Scsi(1), &one);
    bench.start_provisioner();
    bench.provisioner_pod(&node);
    let pv = name(&bound);
    let run = |args: &[&str]| bench.as_operator(&[&["move", &pv, "--to"], args].concat());
    let waits = stage.eventually("it waits for the consent", || {
        let (code, said) = run(&[&node, "--dry-run"]);
        (code == Some(0)).then_some(said)
    });
    assert!(waits.contains("the consent would be move:"), "{waits}");
    let (code, said) = run(&[&other_node, "--yes"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("reports no volume with the disk"), "{said}");
    let (code, said) = run(&[&node, "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let place = format!("PV {pv} is on {node}:{}", one.display());
    assert!(said.contains(&place), "{said}");
    assert_eq!(bench.run(&read), "kept\n");
    let again = stage.pvs_at(&one).pop().unwrap();
    assert_eq!(uid(&again), uid(&bound));
    // The tenant goes, and the disk is that of the node again.
    stage.delete_claim("data");
    stage.available(&one, Some(&uid(&bound)));
}
