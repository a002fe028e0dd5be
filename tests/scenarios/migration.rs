//! From the Go provisioner to ours: its PVs in every phase, of both kinds, with and without the
//! label that its later versions give.

use std::path::{Path, PathBuf};

use control_plane::requests::Verb;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use support::names::{LABEL_HOSTNAME, pv_name};
use support::stage::{annotation, name};
use support::{LoopDevice, Stage};

use crate::kit::*;
use crate::stage;

const PHASES: [&str; 3] = ["Available", "Bound", "Released"];

/// One volume that the Go program has offered.
struct Volume {
    phase: &'static str,
    claim: String,
    path: PathBuf,
    /// The device of a block volume.
    device: Option<LoopDevice>,
    pv: PersistentVolume,
}

impl Volume {
    /// A disk with a PV on it in the given phase, and data where there was a tenant.
    fn made(stage: &Stage, class: &'static str, phase: &'static str, labelled: bool) -> Self {
        let entry = format!("{}-{labelled}", phase.to_lowercase());
        let dir = stage.sandbox.path().join("disks").join(class);
        let (path, device, size) = if class == "blocks" {
            let device = raw(stage);
            (link(&device, &dir, &entry), Some(device), "32Mi")
        } else {
            let place = format!("disks/{class}/{entry}");
            (tmpfs(stage, &place), None, "20Mi")
        };
        let pv_name = pv_name(&entry, &stage.node(), &stage.named(class));
        let mut pv = pv_by_hand(stage, &pv_name, class, &path, size);
        if labelled {
            pv["metadata"]["labels"] = json!({ LABEL_HOSTNAME: stage.node() });
        }
        let mode = if device.is_some() { "Block" } else { "Filesystem" };
        pv["spec"]["volumeMode"] = json!(mode);
        stage.create_pv(pv);
        stage.in_phase(&pv_name, "Available");
        let claim = format!("{class}-{entry}");
        if phase != "Available" {
            stage.claim_in_mode(&claim, class, Some(&pv_name), mode);
            stage.in_phase(&pv_name, "Bound");
            match &device {
                Some(device) => scribble(device.path()),
                None => keep_secret(&path),
            }
        }
        if phase == "Released" {
            stage.delete_claim(&claim);
            stage.in_phase(&pv_name, "Released");
        }
        let pv = stage.pv(&pv_name).unwrap();
        Self { phase, claim, path, device, pv }
    }

    fn has_data(&self) -> bool {
        match &self.device {
            Some(device) => !secrets_on(device.path()).is_empty(),
            None => has_secret(&self.path),
        }
    }

    fn is_cleaned(&self, stage: &Stage) {
        let fresh = offered_again(stage, &self.path, &self.pv);
        assert_eq!(name(&fresh), name(&self.pv), "both programs give the same name");
        assert!(!self.has_data(), "{self}");
    }

    fn is_adopted(&self, stage: &Stage) {
        stage.eventually(&format!("{self} is adopted"), || {
            let now = stage.pv(&name(&self.pv))?;
            assert_eq!(now.metadata.uid, self.pv.metadata.uid, "{self}: the same object");
            let label = now.metadata.labels.as_ref()?.get(LABEL_HOSTNAME)?;
            let used = annotation(&now, "local-volume-provisioner/used") == Some("true");
            (*label == stage.node()
                && identity(&now).starts_with("v1:")
                && annotation(&now, "local-volume-provisioner/offer").is_some()
                && is_protected(&now) == (self.phase == "Bound")
                && used == (self.phase == "Bound"))
                .then_some(())
        });
    }
}

impl std::fmt::Display for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} PV of {}", self.phase, self.path.display())
    }
}

fn volumes(stage: &Stage) -> Vec<Volume> {
    stage.class("fast", &json!({}));
    stage.class("blocks", &json!({ "volumeMode": "Block" }));
    let mut volumes = Vec::new();
    for class in ["fast", "blocks"] {
        for phase in PHASES {
            for labelled in [false, true] {
                volumes.push(Volume::made(stage, class, phase, labelled));
            }
        }
    }
    volumes
}

#[test]
fn what_it_left_is_adopted_or_cleaned_in_every_phase_and_kind() {
    let stage = or_skip!(stage());
    let volumes = volumes(&stage);
    let _provisioner = stage.provisioner();
    for volume in &volumes {
        if volume.phase == "Released" {
            volume.is_cleaned(&stage);
        } else {
            volume.is_adopted(&stage);
        }
    }
    for volume in volumes.iter().filter(|volume| volume.phase == "Bound") {
        assert!(volume.has_data(), "{volume}");
        stage.delete_claim(&volume.claim);
    }
    for volume in volumes.iter().filter(|volume| volume.phase == "Bound") {
        volume.is_cleaned(&stage);
    }
    for volume in volumes.iter().filter(|volume| volume.phase == "Available") {
        stage.bind(&volume.claim, &volume.path);
        let bound = stage.used(&stage.pv(&name(&volume.pv)).unwrap());
        assert_eq!(bound.metadata.uid, volume.pv.metadata.uid, "{volume}");
        stage.delete_claim(&volume.claim);
        volume.is_cleaned(&stage);
    }
    assert_eq!(volumes.len(), of_classes(&stage, &volumes), "one PV for each disk");
}

/// What is known of a PV without the label comes from one list, and no watch corrects it.
#[test]
fn a_pv_that_changed_before_its_adoption_is_read_again_at_once() {
    let stage = or_skip!(stage_with(&["--discovery-period=1h"]));
    stage.class("fast", &json!({}));
    let volume = Volume::made(&stage, "fast", "Available", false);
    let pv = name(&volume.pv);
    let adoptions = stage.faults().on(Verb::Patch).resource("persistentvolumes");
    let adoptions = adoptions.name(&pv).times(1).hold();
    let _provisioner = stage.provisioner();
    stage.eventually("it is being adopted", || adoptions.hits() == 1);
    let note = json!({ "metadata": { "annotations": { "example.com/note": "kept" } } });
    stage.patch_pv(&pv, &note);
    adoptions.clear();
    volume.is_adopted(&stage);
    let now = stage.pv(&pv).unwrap();
    assert_eq!(annotation(&now, "example.com/note"), Some("kept"));
}

/// How many PVs the classes of these volumes have.
fn of_classes(stage: &Stage, volumes: &[Volume]) -> usize {
    let in_them = |path: &Path| volumes.iter().any(|volume| volume.path.parent() == path.parent());
    let local =
        |pv: &PersistentVolume| Some(PathBuf::from(&pv.spec.as_ref()?.local.as_ref()?.path));
    let pvs = stage.pvs();
    pvs.iter().filter_map(local).filter(|path| in_them(path)).count()
}
