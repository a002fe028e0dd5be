//! The Node object is deleted and made again: it has another UID, and our PVs another maker.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};
use support::names::{ANNOTATION_CONSENT, ANNOTATION_IDENTITY};
use support::stage::{name, uid};
use support::{LoopDevice, Program, Stage};

use crate::kit::*;
use crate::stage;

#[test]
fn its_pvs_are_taken_over_and_cleaned_in_their_turn() {
    let (stage, [bound_at, free_at]) = or_skip!(fast_stage(["bound", "free"]));
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &bound_at));
    let free = stage.available(&free_at, None);
    keep_secret(&bound_at);
    let old = maker(&bound).unwrap().to_owned();
    assert!(old.ends_with(&node_uid(&stage)));

    delete_node(&stage);
    stage.eventually("that is noticed", || {
        status(&mut provisioner)["notReady"]
            .to_string()
            .contains("Node")
    });
    let late = fast(&stage, "late");
    stage.still(&mut provisioner, "nothing is made for no node", || {
        stage.pvs_at(&late).is_empty() && is_untouched(&stage, &bound, "Bound")
    });
    register_node(&stage);
    let new = format!(
        "local-volume-provisioner-{}-{}",
        stage.node(),
        node_uid(&stage)
    );
    assert_ne!(new, old);
    for pv in [&bound, &free] {
        let now = taken_over(&stage, pv);
        assert_eq!(maker(&now), Some(new.as_str()));
    }
    stage.event("VolumeAdopted", "registered again");
    let late = stage.available(&late, None);
    assert_eq!(maker(&late), Some(new.as_str()));
    assert_eq!(stage.pvs().len(), 3);

    stage.delete_claim("claim");
    let fresh = offered_again(&stage, &bound_at, &bound);
    assert!(entries(&bound_at).is_empty());
    assert_eq!(maker(&fresh), Some(new.as_str()));
}

/// Waits until a PV, which is still the same, has another maker.
fn taken_over(stage: &Stage, pv: &PersistentVolume) -> PersistentVolume {
    stage.eventually("the PV is taken over", || {
        let now = stage.pv(&name(pv))?;
        assert_eq!(uid(&now), uid(pv));
        (maker(&now) != maker(pv)).then_some(now)
    })
}

/// A Bound volume, whose Node is registered again while another disk, with data, is mounted in its place.
struct Exchanged {
    path: PathBuf,
    pv: PersistentVolume,
    own: LoopDevice,
    _other: LoopDevice,
}

impl Exchanged {
    /// Its claim is deleted, too.
    fn released(stage: &Stage) -> Self {
        stage.class("fast", &json!({}));
        let [own, other] = [(); 2].map(|()| ext4(stage));
        let path = mount(stage, &own, "disks/fast/vol");
        let mut provisioner = stage.provisioner();
        let pv = stage.used(&stage.bind("claim", &path));
        assert!(provisioner.stop(stage.timeout()).unwrap().success());
        delete_node(stage);
        register_node(stage);
        stage.sandbox.umount(&path).unwrap();
        mount(stage, &other, "disks/fast/vol");
        keep_secret(&path);
        stage.delete_claim("claim");
        stage.in_phase(&name(&pv), "Released");
        Self {
            path,
            pv,
            own,
            _other: other,
        }
    }

    /// Its maker included, the PV stays as it is, and so does the data.
    fn is_left_alone(&self, stage: &Stage, provisioner: &mut Program) {
        stage.still(provisioner, "it is left alone", || {
            has_secret(&self.path)
                && is_untouched(stage, &self.pv, "Released")
                && stage.pvs().len() == 1
        });
    }
}

#[test]
fn a_pv_whose_disk_is_another_one_is_reported_and_left_alone() {
    let stage = or_skip!(stage());
    let volume = Exchanged::released(&stage);
    let mut provisioner = stage.provisioner();
    stage.event("VolumeIdentityMismatch", "is not taken over");
    volume.is_left_alone(&stage, &mut provisioner);
    // With its own disk back, the PV is taken over, and due.
    stage.sandbox.umount(&volume.path).unwrap();
    mount(&stage, &volume.own, "disks/fast/vol");
    offered_again(&stage, &volume.path, &volume.pv);
}

#[test]
fn pv_without_identity_is_taken_over_by_consent() {
    let stage = or_skip!(stage());
    let mut volume = Exchanged::released(&stage);
    let pv = name(&volume.pv);
    annotate(&stage, &pv, ANNOTATION_IDENTITY, Value::Null);
    let mut provisioner = stage.provisioner();
    let event = stage.event("VolumeIdentityMismatch", "no recorded identity");
    let wipe = &*consent_in(&event, "wipe:");
    for refused in ["forget:", &format!("{wipe}0")] {
        volume.pv = annotate(&stage, &pv, ANNOTATION_CONSENT, refused);
        volume.is_left_alone(&stage, &mut provisioner);
    }
    annotate(&stage, &pv, ANNOTATION_CONSENT, wipe);
    offered_again(&stage, &volume.path, &volume.pv);
    assert!(entries(&volume.path).is_empty());
}
