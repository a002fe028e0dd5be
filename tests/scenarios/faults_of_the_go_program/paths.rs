//! Fault 4: which paths an annotation must not vouch for.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use support::stage::{is_terminating, name, phase};

use crate::kit::*;
use crate::stage;

fn is_released(pv: &PersistentVolume) -> bool {
    phase(pv) == "Released" && !is_terminating(pv)
}

#[test]
fn fault_4_only_a_direct_child_of_the_class_directory_is_ever_cleaned() {
    let stage = or_skip!(stage());
    let dir = stage.class("fast", &json!({}));
    let other_dir = stage.class("fast-ssd", &json!({}));
    let volumes = ["fast/vol-1", "fast/vol-2", "fast-ssd/vol-3"]
        .map(|volume| tmpfs(&stage, &format!("disks/{volume}")));
    let mut provisioner = stage.provisioner();
    for volume in &volumes {
        stage.available(volume, None);
        keep_secret(volume);
    }
    let inside = stage.sandbox.dir("disks/fast/vol-1/inside").unwrap();
    keep_secret(&inside);

    let sibling = tmpfs(&stage, "disks/fast-sibling/vol-9");
    keep_secret(&sibling);

    let forged: [(&str, Value); 6] = [
        ("the-directory", json!(dir)),
        ("the-directory-dot", json!(dir.join("."))),
        ("a-neighbour", json!(volumes[2])),
        ("the-neighbours", json!(other_dir)),
        ("a-grandchild", json!(inside)),
        ("a-siblings-child", json!(sibling)),
    ];
    for (pv, path) in &forged {
        let pv = stage.named(pv);
        let mut forged = pv_by_hand(&stage, &pv, "fast", &dir, "20Mi");
        forged["spec"]["local"]["path"] = path.clone();
        forged["metadata"]["labels"] = json!({ "kubernetes.io/hostname": stage.node() });
        stage.create_pv(forged);
        bind_and_release(&stage, &format!("claim-of-{pv}"), &pv, "fast");
    }
    for (pv, path) in &forged {
        // An unusable path is only in the message.
        let path = match *pv {
            "the-directory-dot" => &json!(""),
            _ => path,
        };
        let pv = stage.named(pv);
        stage.eventually(&format!("{pv} is reported"), || {
            let reasons = ["VolumeFailedDelete", "VolumeDuplicate"];
            reasons.into_iter().find_map(|reason| {
                let labels = format!("{{path={path},pv=\"{pv}\",reason=\"{reason}\"}}");
                metric(&mut provisioner, &format!("unhealthy_persistentvolume{labels}"))
            })
        });
    }
    stage.event("VolumeFailedDelete", "is not an entry of");
    stage.still(&mut provisioner, "nothing is deleted anywhere", || {
        let is_kept = |pv: &str| stage.pv(pv).is_some_and(|pv| is_released(&pv));
        forged.iter().all(|(pv, _)| is_kept(&stage.named(pv)))
            && volumes.iter().chain([&inside, &sibling]).all(|volume| has_secret(volume))
    });
    let parent =
        pv_by_hand(&stage, &stage.named("parent"), "fast", &dir.join("../fast/vol-1"), "20Mi");
    let (pvs, params) = (Api::all(stage.client.clone()), PostParams::default());
    let parent: PersistentVolume = serde_json::from_value(parent).unwrap();
    let created = stage.block_on(pvs.create(&params, &parent));
    assert!(created.is_err(), "Kubernetes itself refuses \"..\"");
}

#[test]
fn fault_4_a_pv_for_another_node_is_not_ours_whatever_its_annotation_says() {
    let stage = or_skip!(stage());
    let dir = stage.class("fast", &json!({}));
    // A class that has no StorageClass yet: none of our PVs stands in the forged one's way.
    let map = json!({ stage.named("fast"): { "hostDir": dir, "mountDir": dir }, stage.named("late"): { "hostDir": "/mnt/disks/late", "mountDir": "/mnt/disks/late" } });
    stage.configure("storageClassMap", &map.to_string());
    let volume = tmpfs(&stage, "disks/late/vol-1");
    keep_secret(&volume);
    let mut forged = pv_by_hand(&stage, &stage.named("elsewhere"), "late", &volume, "20Mi");
    forged["metadata"]["labels"] = json!({ "kubernetes.io/hostname": stage.node() });
    let term = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values";
    *forged.pointer_mut(term).unwrap() = json!(["node-2"]);
    let forged = stage.create_pv(forged);
    let forged = bind_and_release(&stage, "claim", &name(&forged), "late");

    let mut provisioner = stage.provisioner();
    stage.event("VolumeFailedDelete", "its node affinity does not name this node");
    stage.still(&mut provisioner, "the data stays", || {
        has_secret(&volume) && is_untouched(&stage, &forged, "Released")
    });
}

#[test]
fn fault_4_a_pv_of_another_class_or_mode_than_its_directory_is_refused() {
    let stage = or_skip!(stage());
    let (device, path) = raw_volume(&stage, &json!({}));
    scribble(device.path());
    // There before the provisioner is, so that nothing of ours stands for the path.
    let mut filesystem = pv_by_hand(&stage, &stage.named("a-filesystem"), "raw", &path, "32Mi");
    filesystem["metadata"]["labels"] = json!({ "kubernetes.io/hostname": stage.node() });
    let filesystem = stage.create_pv(filesystem);
    let filesystem = bind_and_release(&stage, "claim", &name(&filesystem), "raw");

    let mut provisioner = stage.provisioner();
    stage.event("VolumeFailedDelete", "its volumeMode is Filesystem");
    stage.still(&mut provisioner, "the device is not written to", || {
        secrets_on(device.path()).len() == 4 && is_untouched(&stage, &filesystem, "Released")
    });
}
