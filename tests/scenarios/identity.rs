//! The disk at a path is not the one that the PV was made for.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use local_volume_provisioner::names::ANNOTATION_CONSENT;
use serde_json::json;
use support::stage::name;
use support::{LoopDevice, Program, Stage};

use crate::kit::*;
use crate::stage;

/// Two disks, the first mounted at a path of the class `fast`.
struct Swap {
    stage: Stage,
    path: PathBuf,
    first: LoopDevice,
    second: LoopDevice,
}

impl Swap {
    fn set() -> Option<Self> {
        let stage = stage()?;
        stage.class("fast", &json!({}));
        let (first, second) = (ext4(&stage), ext4(&stage));
        let path = mount(&stage, &first, "vol-1");
        Some(Self {
            stage,
            path,
            first,
            second,
        })
    }

    /// A Bound PV, marked as used, of the first disk.
    fn bound(&self) -> (Program, PersistentVolume) {
        let provisioner = self.stage.provisioner();
        let bound = self.stage.used(&self.stage.bind("claim", &self.path));
        (provisioner, bound)
    }

    /// The same, whose claim is deleted after the other disk took the first one's place.
    fn released(&self) -> (Program, PersistentVolume) {
        let (provisioner, bound) = self.bound();
        self.put_second();
        self.stage.delete_claim("claim");
        self.stage
            .event("VolumeIdentityMismatch", "nothing was touched");
        (provisioner, bound)
    }

    /// The other disk takes the first one's place. It holds another tenant's data.
    fn put_second(&self) {
        self.stage.sandbox.umount(&self.path).unwrap();
        mount(&self.stage, &self.second, "vol-1");
        keep_secret(&self.path);
    }

    fn observed(&self, provisioner: &mut Program) -> String {
        let status = status_of(provisioner, &self.path);
        status["identity"].as_str().unwrap().to_owned()
    }
}

fn mount(stage: &Stage, disk: &LoopDevice, name: &str) -> PathBuf {
    crate::kit::mount(stage, disk, &format!("disks/fast/{name}"))
}

#[test]
fn a_disk_replaced_while_bound_is_reported_and_never_cleaned_without_consent() {
    let swap = or_skip!(Swap::set());
    let stage = &swap.stage;
    let (mut provisioner, bound) = swap.bound();
    std::fs::write(swap.path.join("of-the-tenant"), "").unwrap();

    swap.put_second();
    let text = stage.event("VolumeIdentityMismatch", "another disk is at its path");
    assert!(
        text.contains(&identity(&bound)),
        "the recorded identity is named: {text}"
    );
    in_state(stage, &mut provisioner, &swap.path, "IdentityMismatch");
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    let text = stage.event("VolumeIdentityMismatch", "nothing was touched");
    consent_in(&text, "wipe:");
    stage.still(&mut provisioner, "the other disk's data stays", || {
        has_secret(&swap.path) && is_untouched(stage, &bound, "Released")
    });

    // The recorded disk is back: then it is cleaned.
    stage.sandbox.umount(&swap.path).unwrap();
    mount(stage, &swap.first, "vol-1");
    offered_again(stage, &swap.path, &bound);
    assert!(entries(&swap.path).is_empty());
    stage.sandbox.umount(&swap.path).unwrap();
    assert!(has_secret(&crate::kit::mount(
        stage,
        &swap.second,
        "elsewhere"
    )));
}

#[test]
fn consent_to_wipe_counts_for_the_named_disk_once() {
    let swap = or_skip!(Swap::set());
    let stage = &swap.stage;
    let (mut provisioner, bound) = swap.released();
    let text = stage.event("VolumeIdentityMismatch", "nothing was touched");
    let wipe = consent_in(&text, "wipe:");
    let other_pv = wipe.replace(&bound.uid().unwrap(), "another-uid");
    for not_this_one in [other_pv, format!("{wipe}0"), "wipe".to_owned()] {
        let consent = not_this_one.as_str();
        let annotated = annotate(stage, &name(&bound), ANNOTATION_CONSENT, consent);
        stage.still(&mut provisioner, consent, || {
            has_secret(&swap.path) && is_untouched(stage, &annotated, "Released")
        });
    }
    let observed = swap.observed(&mut provisioner);
    annotate(stage, &name(&bound), ANNOTATION_CONSENT, wipe);
    let fresh = offered_again(stage, &swap.path, &bound);
    assert!(entries(&swap.path).is_empty());
    assert_eq!(identity(&fresh), observed);
    assert_eq!(support::stage::annotation(&fresh, ANNOTATION_CONSENT), None);
}

#[test]
fn consent_to_forget_drops_the_object_and_keeps_the_data() {
    let swap = or_skip!(Swap::set());
    let stage = &swap.stage;
    let (_provisioner, bound) = swap.released();
    annotate(stage, &name(&bound), ANNOTATION_CONSENT, forget(&bound));
    let fresh = offered_again(stage, &swap.path, &bound);
    assert_ne!(identity(&fresh), identity(&bound));
    assert!(
        has_secret(&swap.path),
        "the disk that is there now is offered as it is"
    );
}

/// Whether two PVs that could be bound say that they stand for one disk.
fn twins(stage: &Stage) -> bool {
    let pvs = stage.pvs();
    let living = pvs
        .iter()
        .filter(|pv| pv.metadata.deletion_timestamp.is_none());
    let mut identities: Vec<_> = living.map(identity).collect();
    let count = identities.len();
    identities.sort();
    identities.dedup();
    identities.len() < count
}

#[test]
fn two_unused_disks_that_change_places_have_their_pvs_made_again() {
    let swap = or_skip!(Swap::set());
    let stage = &swap.stage;
    let other = mount(stage, &swap.second, "vol-2");
    let _provisioner = stage.provisioner();
    let (first, second) = (
        stage.available(&swap.path, None),
        stage.available(&other, None),
    );

    stage.sandbox.umount(&swap.path).unwrap();
    stage.sandbox.umount(&other).unwrap();
    mount(stage, &swap.second, "vol-1");
    stage.eventually("the PV of the first path goes", || {
        assert!(!twins(stage));
        stage.pvs_at(&swap.path).is_empty()
    });
    mount(stage, &swap.first, "vol-2");
    let at = |path: &Path, wanted: &str| {
        stage.eventually(&format!("{} stands for {wanted}", path.display()), || {
            assert!(!twins(stage), "two PVs for one disk");
            let pvs = stage.pvs_at(path);
            pvs.len() == 1 && identity(&pvs[0]) == wanted
        });
    };
    at(&other, &identity(&first));
    at(&swap.path, &identity(&second));
    assert!(stage.events("VolumeIdentityMismatch").is_empty());
}

#[test]
fn a_disk_in_use_that_is_mounted_under_another_name_gets_no_second_pv() {
    let swap = or_skip!(Swap::set());
    let stage = &swap.stage;
    let (mut provisioner, bound) = swap.bound();
    keep_secret(&swap.path);
    stage.sandbox.umount(&swap.path).unwrap();
    let elsewhere = mount(stage, &swap.first, "vol-2");
    skipped(stage, &mut provisioner, &elsewhere, "IdentityOnOtherPV");
    stage.event("VolumeNotMounted", "mount the volume");
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    stage.still(&mut provisioner, "the data stays at the other path", || {
        has_secret(&elsewhere)
            && is_untouched(stage, &bound, "Released")
            && stage.pvs_at(&elsewhere).is_empty()
    });
    stage.sandbox.umount(&elsewhere).unwrap();
    mount(stage, &swap.first, "vol-1");
    offered_again(stage, &swap.path, &bound);
    assert!(entries(&swap.path).is_empty());
}

#[test]
fn an_unused_pv_whose_path_shows_the_disk_of_a_bound_one_is_withdrawn() {
    let swap = or_skip!(Swap::set());
    let stage = &swap.stage;
    let other = mount(stage, &swap.second, "vol-2");
    let (mut provisioner, bound) = swap.bound();
    stage.available(&other, None);
    keep_secret(&swap.path);
    stage.sandbox.umount(&swap.path).unwrap();
    stage.sandbox.umount(&other).unwrap();
    mount(stage, &swap.first, "vol-2");
    stage.eventually("no claim can bind the tenant's data", || {
        stage.pvs_at(&other).is_empty()
    });
    skipped(stage, &mut provisioner, &other, "IdentityOnOtherPV");
    assert!(has_secret(&other));
    assert!(is_untouched(stage, &bound, "Bound"));
}
