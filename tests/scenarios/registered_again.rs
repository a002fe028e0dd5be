//! The Node object is deleted and made again: it has another UID, and our PVs another maker.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use local_volume_provisioner::names::{ANNOTATION_CONSENT, ANNOTATION_IDENTITY};
use serde_json::{Value, json};
use support::stage::{annotation, name, uid};
use support::{LoopDevice, Stage};

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
    let owner = |pv: &PersistentVolume| {
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

/// A Bound volume and an Available one, for whose PVs the Node is registered again while other disks
/// are mounted in their places.
struct Exchanged {
    paths: [PathBuf; 2],
    pvs: [PersistentVolume; 2],
    _disks: [LoopDevice; 4],
}

impl Exchanged {
    fn new(stage: &Stage) -> Self {
        stage.class("fast", &json!({})).unwrap();
        let disks = [(); 4].map(|()| ext4(stage));
        let mount = |disk: usize, entry: &str| {
            let at = format!("disks/fast/{entry}");
            stage.sandbox.mount(disks[disk].path(), "ext4", &at)
        };
        let paths = [(0, "bound"), (1, "free")].map(|(disk, entry)| mount(disk, entry).unwrap());
        let mut provisioner = stage.provisioner().unwrap();
        let bound = stage.used(&stage.bind("claim", &paths[0]));
        let free = stage.available(&paths[1], None);
        assert!(provisioner.stop(stage.patience()).unwrap().success());
        delete_node(stage);
        register_node(stage);
        for (path, disk, entry) in [(&paths[0], 2, "bound"), (&paths[1], 3, "free")] {
            stage.sandbox.umount(path).unwrap();
            mount(disk, entry).unwrap();
            keep_secret(path);
        }
        Self {
            paths,
            pvs: [bound, free],
            _disks: disks,
        }
    }

    fn are_left_alone(&self, stage: &Stage, phase: &str) {
        passes(stage);
        for (at, phase) in [phase, "Available"].into_iter().enumerate() {
            let (pv, path) = (&self.pvs[at], &self.paths[at]);
            assert!(has_secret(path) && is_untouched(stage, pv, phase), "{at}");
            let now = stage.pv(&name(pv)).unwrap();
            assert_eq!(annotation(&now, MAKER), annotation(pv, MAKER), "{at}");
        }
    }
}

/// Waits for a pass that sees what is so now.
fn passes(stage: &Stage) {
    let entry = format!("disks/fast/fresh-{}", stage.pvs().len());
    let fresh = stage.sandbox.tmpfs(&entry, "size=20m").unwrap();
    stage.available(&fresh, None);
}

fn consent(stage: &Stage, pv: &PersistentVolume, text: &str) {
    annotate(stage, &name(pv), ANNOTATION_CONSENT, text);
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
    let Some(stage) = stage() else { return };
    let volumes = Exchanged::new(&stage);
    let _provisioner = stage.provisioner().unwrap();
    volumes.are_left_alone(&stage, "Bound");
    for (pv, path) in volumes.pvs.iter().zip(&volumes.paths) {
        let named = consents(&stage, &identity(pv));
        let [wipe, forget] = named.try_into().unwrap();
        assert_eq!(forget, format!("forget:{}", identity(pv)));
        consent(&stage, pv, &format!("{wipe}0"));
        passes(&stage);
        assert_eq!(
            annotation(&stage.pv(&name(pv)).unwrap(), MAKER),
            annotation(pv, MAKER)
        );
        consent(&stage, pv, &wipe);
        stage.eventually("the PV is taken over", || {
            let now = stage.pv(&name(pv))?;
            (annotation(&now, MAKER) != annotation(pv, MAKER)).then_some(())
        });
        passes(&stage);
        assert!(has_secret(path), "nothing is wiped before it is due");
        assert_eq!(uid(&stage.pv(&name(pv)).unwrap()), uid(pv));
    }
    stage.event("VolumeAdopted", "consented");
    let [bound_at, free_at] = &volumes.paths;
    stage.delete_claim("claim");
    offered_anew(&stage, bound_at, &volumes.pvs[0]);
    assert!(entries(bound_at).is_empty());
    assert!(has_secret(free_at));
}

#[test]
fn consent_to_forget_drops_a_pv_that_no_claim_uses() {
    let Some(stage) = stage() else { return };
    let volumes = Exchanged::new(&stage);
    let [bound, free] = &volumes.pvs;
    let _provisioner = stage.provisioner().unwrap();
    volumes.are_left_alone(&stage, "Bound");
    let forget = |pv| format!("forget:{}", identity(pv));
    consent(&stage, free, &forget(bound));
    consent(&stage, bound, &forget(bound));
    volumes.are_left_alone(&stage, "Bound");
    consent(&stage, free, &forget(free));
    offered_anew(&stage, &volumes.paths[1], free);
    stage.delete_claim("claim");
    offered_anew(&stage, &volumes.paths[0], bound);
    assert!(volumes.paths.iter().all(|path| has_secret(path)));
}

#[test]
fn pv_without_identity_is_taken_over_by_consent_to_wipe_only() {
    let Some(stage) = stage() else { return };
    let volumes = Exchanged::new(&stage);
    let (bound, path) = (&volumes.pvs[0], &volumes.paths[0]);
    annotate(&stage, &name(bound), ANNOTATION_IDENTITY, Value::Null);
    stage.delete_claim("claim");
    stage.in_phase(&name(bound), "Released");
    let _provisioner = stage.provisioner().unwrap();
    let named = consents(&stage, "no recorded identity");
    let [wipe] = named.try_into().unwrap();
    consent(&stage, bound, "forget:");
    volumes.are_left_alone(&stage, "Released");
    consent(&stage, bound, &wipe);
    offered_anew(&stage, path, bound);
    assert!(entries(path).is_empty());
}
