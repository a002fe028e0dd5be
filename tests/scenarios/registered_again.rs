//! The Node object is deleted and made again: it has another UID, and our PVs another maker.

use std::time::Duration;

use serde_json::json;
use support::Stage;
use support::stage::{annotation, name, uid};

use crate::kit::*;
use crate::stage;

const MAKER: &str = "pv.kubernetes.io/provisioned-by";

#[test]
fn its_pvs_are_taken_over_and_cleaned_in_their_turn() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let bound_at = stage.sandbox.tmpfs("disks/fast/bound", "size=20m").unwrap();
    let free_at = stage.sandbox.tmpfs("disks/fast/free", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &bound_at));
    let free = stage.available(&free_at, None);
    keep_secret(&bound_at);
    let old = annotation(&bound, MAKER).unwrap().to_owned();
    assert!(old.ends_with(&node_uid(&stage)));

    delete_node(&stage);
    stage.eventually("that is noticed", || {
        status(&mut provisioner)["notReady"]
            .to_string()
            .contains("Node")
            .then_some(())
    });
    // While there is no Node, there is nobody to make PVs for.
    let late = stage.sandbox.tmpfs("disks/fast/late", "size=20m").unwrap();
    stage.stays(
        Duration::from_millis(500),
        "nothing is made for no node",
        || stage.pvs_at(&late).is_empty() && is_untouched(&stage, &bound, "Bound"),
    );
    register_node(&stage);
    let new = format!(
        "local-volume-provisioner-{}-{}",
        stage.node(),
        node_uid(&stage)
    );
    assert_ne!(new, old);
    for pv in [&bound, &free] {
        stage.eventually("the PV is taken over", || {
            let now = stage.pv(&name(pv))?;
            assert_eq!(now.metadata.uid, pv.metadata.uid);
            (annotation(&now, MAKER) == Some(new.as_str())).then_some(())
        });
    }
    stage.event("VolumeAdopted", "registered again");
    assert_eq!(
        annotation(&stage.available(&late, None), MAKER),
        Some(new.as_str())
    );
    assert_eq!(stage.pvs().len(), 3);

    stage.delete_claim("claim");
    let fresh = offered_anew(&stage, &bound_at, &bound);
    assert!(entries(&bound_at).is_empty());
    assert_eq!(annotation(&fresh, MAKER), Some(new.as_str()));
}

#[test]
fn maker_and_owner_change_in_one_request() {
    // Without the controllers, or the garbage collector would race with us.
    let Some(stage) = Stage::set_with(crate::BINARY, |options| options.controllers = false) else {
        return;
    };
    register_if_absent(&stage);
    stage.configure("setPVOwnerRef", "true").unwrap();
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let before = stage.eventually("a PV", || stage.pvs_at(&volume).pop());
    let owner = |pv: &k8s_openapi::api::core::v1::PersistentVolume| {
        let owners = pv.metadata.owner_references.clone().unwrap_or_default();
        assert_eq!(owners.len(), 1);
        (
            owners[0].kind.clone(),
            owners[0].name.clone(),
            owners[0].uid.clone(),
        )
    };
    let node = |uid: String| ("Node".to_owned(), stage.node(), uid);
    assert_eq!(owner(&before), node(node_uid(&stage)));

    delete_node(&stage);
    register_node(&stage);
    let new = node_uid(&stage);
    stage.eventually("the PV is taken over", || {
        let now = stage.pv(&name(&before))?;
        assert_eq!(uid(&now), uid(&before));
        let made_by_new = annotation(&now, MAKER).unwrap().ends_with(&new);
        assert_eq!(
            made_by_new,
            owner(&now) == node(new.clone()),
            "one without the other"
        );
        made_by_new.then_some(())
    });
}

fn register_if_absent(stage: &Stage) {
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(stage.client.clone());
    if stage
        .block_on(nodes.get_opt(&stage.node()))
        .unwrap()
        .is_none()
    {
        register_node(stage);
    }
}

#[test]
fn a_pv_whose_disk_is_another_one_is_reported_and_left_alone() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let (first, second) = (ext4(&stage), ext4(&stage));
    let path = stage
        .sandbox
        .mount(first.path(), "ext4", "disks/fast/vol-1")
        .unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &path));
    assert!(provisioner.stop(stage.patience()).unwrap().success());
    delete_node(&stage);
    register_node(&stage);
    stage.sandbox.umount(&path).unwrap();
    stage
        .sandbox
        .mount(second.path(), "ext4", "disks/fast/vol-1")
        .unwrap();
    keep_secret(&path);
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");

    let _successor = stage.provisioner().unwrap();
    stage.event("VolumeIdentityMismatch", "is not taken over");
    stage.stays(Duration::from_millis(500), "it is left alone", || {
        let now = stage.pv(&name(&bound)).unwrap();
        has_secret(&path)
            && is_untouched(&stage, &bound, "Released")
            && annotation(&now, MAKER) == annotation(&bound, MAKER)
            && stage.pvs_at(&path).len() == 1
    });
    // With its own disk back, it is ours again, and due.
    stage.sandbox.umount(&path).unwrap();
    stage
        .sandbox
        .mount(first.path(), "ext4", "disks/fast/vol-1")
        .unwrap();
    offered_anew(&stage, &path, &bound);
}
