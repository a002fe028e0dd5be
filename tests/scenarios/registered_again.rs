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

#[test]
fn maker_and_owner_change_in_one_request() {
    // Without the controllers, or the garbage collector would race with us.
    let stage = or_skip!(Stage::set_with(crate::BINARY, |options| options
        .controllers =
        false));
    register_node(&stage);
    stage.configure("setPVOwnerRef", "true");
    let [volume] = fast_volumes(&stage, ["vol-1"]);
    let _provisioner = stage.provisioner();
    let before = stage.eventually("a PV", || stage.pvs_at(&volume).pop());
    // Whether its only owner is the Node with a UID.
    let is_owned_by = |pv: &PersistentVolume, uid: &str| {
        let owners = pv.metadata.owner_references.as_deref().unwrap_or_default();
        assert_eq!(owners.len(), 1);
        (
            owners[0].kind.as_str(),
            &owners[0].name,
            owners[0].uid.as_str(),
        ) == ("Node", &stage.node(), uid)
    };
    assert!(is_owned_by(&before, &node_uid(&stage)));

    delete_node(&stage);
    register_node(&stage);
    let new = node_uid(&stage);
    stage.eventually("the PV is taken over", || {
        let now = stage.pv(&name(&before))?;
        assert_eq!(uid(&now), uid(&before));
        let made_by_new = maker(&now).unwrap().ends_with(&new);
        assert_eq!(
            made_by_new,
            is_owned_by(&now, &new),
            "one without the other"
        );
        made_by_new.then_some(())
    });
}

/// A Bound volume and an Available one, for whose PVs the Node is registered again while other disks
/// are mounted in their places.
struct Exchanged {
    paths: [PathBuf; 2],
    pvs: [PersistentVolume; 2],
    disks: [LoopDevice; 4],
}

impl Exchanged {
    fn new(stage: &Stage) -> Self {
        stage.class("fast", &json!({}));
        let disks = [(); 4].map(|()| ext4(stage));
        let paths = [(0, "bound"), (1, "free")]
            .map(|(disk, entry)| mount(stage, &disks[disk], &format!("disks/fast/{entry}")));
        let mut provisioner = stage.provisioner();
        let bound = stage.used(&stage.bind("claim", &paths[0]));
        let free = stage.available(&paths[1], None);
        assert!(provisioner.stop(stage.timeout()).unwrap().success());
        delete_node(stage);
        register_node(stage);
        let volumes = Self {
            paths,
            pvs: [bound, free],
            disks,
        };
        for (at, disk) in [(0, 2), (1, 3)] {
            volumes.mount_instead(stage, at, disk);
            keep_secret(&volumes.paths[at]);
        }
        volumes
    }

    fn mount_instead(&self, stage: &Stage, at: usize, disk: usize) {
        stage.sandbox.umount(&self.paths[at]).unwrap();
        let at = format!("disks/fast/{}", ["bound", "free"][at]);
        mount(stage, &self.disks[disk], &at);
    }

    /// Their makers included, the PVs stay as they are, and so does the data.
    fn are_left_alone(&self, stage: &Stage, provisioner: &mut Program, phase: &str) {
        stage.still(provisioner, "they are left alone", || {
            let [bound, free] = &self.pvs;
            self.paths.iter().all(|path| has_secret(path))
                && is_untouched(stage, bound, phase)
                && is_untouched(stage, free, "Available")
                && stage.pvs().len() == 2
        });
    }

    fn consent(&mut self, stage: &Stage, at: usize, text: &str) {
        let pv = name(&self.pvs[at]);
        self.pvs[at] = annotate(stage, &pv, ANNOTATION_CONSENT, text);
    }
}

#[test]
fn a_pv_whose_disk_is_another_one_is_reported_and_left_alone() {
    let stage = or_skip!(stage());
    let volumes = Exchanged::new(&stage);
    stage.delete_claim("claim");
    stage.in_phase(&name(&volumes.pvs[0]), "Released");

    let mut provisioner = stage.provisioner();
    stage.event("VolumeIdentityMismatch", "is not taken over");
    volumes.are_left_alone(&stage, &mut provisioner, "Released");
    // With its own disk back, the PV is taken over, and due.
    volumes.mount_instead(&stage, 0, 0);
    offered_again(&stage, &volumes.paths[0], &volumes.pvs[0]);
}

/// The consents that the event about a PV with this text in it names.
fn consents(stage: &Stage, about: &str) -> Vec<String> {
    let event = stage.event("VolumeIdentityMismatch", about);
    assert!(event.contains("is not taken over"), "{event}");
    let values = event.split("consent=\"").skip(1);
    values
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect()
}

#[test]
fn consent_to_wipe_takes_a_pv_over_and_wipes_it_when_it_is_released() {
    let stage = or_skip!(stage());
    let mut volumes = Exchanged::new(&stage);
    let mut provisioner = stage.provisioner();
    volumes.are_left_alone(&stage, &mut provisioner, "Bound");
    for at in [0, 1] {
        let recorded = identity(&volumes.pvs[at]);
        let [wipe, forget] = consents(&stage, &recorded).try_into().unwrap();
        assert_eq!(forget, format!("forget:{recorded}"));
        volumes.consent(&stage, at, &format!("{wipe}0"));
        volumes.are_left_alone(&stage, &mut provisioner, "Bound");
        volumes.consent(&stage, at, &wipe);
        taken_over(&stage, &volumes.pvs[at]);
        // Nothing is wiped before it is due.
        stage.still(&mut provisioner, "nothing is wiped", || {
            has_secret(&volumes.paths[at])
        });
        volumes.pvs[at] = stage.pv(&name(&volumes.pvs[at])).unwrap();
    }
    stage.event("VolumeAdopted", "consented");
    let [bound_at, free_at] = &volumes.paths;
    stage.delete_claim("claim");
    offered_again(&stage, bound_at, &volumes.pvs[0]);
    assert!(entries(bound_at).is_empty());
    assert!(has_secret(free_at));
}

#[test]
fn consent_to_forget_drops_a_pv_that_no_claim_uses() {
    let stage = or_skip!(stage());
    let mut volumes = Exchanged::new(&stage);
    let forget = [0, 1].map(|at| format!("forget:{}", identity(&volumes.pvs[at])));
    let mut provisioner = stage.provisioner();
    volumes.are_left_alone(&stage, &mut provisioner, "Bound");
    for at in [0, 1] {
        volumes.consent(&stage, at, &forget[0]);
    }
    volumes.are_left_alone(&stage, &mut provisioner, "Bound");
    volumes.consent(&stage, 1, &forget[1]);
    let [bound, free] = &volumes.pvs;
    offered_again(&stage, &volumes.paths[1], free);
    stage.delete_claim("claim");
    offered_again(&stage, &volumes.paths[0], bound);
    assert!(volumes.paths.iter().all(|path| has_secret(path)));
}

#[test]
fn pv_without_identity_is_taken_over_by_consent_to_wipe_only() {
    let stage = or_skip!(stage());
    let mut volumes = Exchanged::new(&stage);
    annotate(
        &stage,
        &name(&volumes.pvs[0]),
        ANNOTATION_IDENTITY,
        Value::Null,
    );
    stage.delete_claim("claim");
    stage.in_phase(&name(&volumes.pvs[0]), "Released");
    let mut provisioner = stage.provisioner();
    let named = consents(&stage, "no recorded identity");
    let [wipe] = named.try_into().unwrap();
    volumes.consent(&stage, 0, "forget:");
    volumes.are_left_alone(&stage, &mut provisioner, "Released");
    volumes.consent(&stage, 0, &wipe);
    let (path, pv) = (&volumes.paths[0], &volumes.pvs[0]);
    offered_again(&stage, path, pv);
    assert!(entries(path).is_empty());
}
