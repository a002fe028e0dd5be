//! Object and disk disagree: a PV that is lost or restored, a disk that is exchanged or gone, a Node with another name.

use std::fs;

use crate::marks::{lose, restore};

use super::*;

fn lost_pv() -> Option<(Accident, Explanation)> {
    let stage = installed()?;
    let path = fast(&stage, "vol");
    let mut it = Accident::at(stage, path);
    lose_pv(&it.stage, &mut it.provisioner, &it.path);
    let next = "next: it is not offered until you consent; first save the data";
    let texts = ["used, of PV UID", next];
    let explanation = it.is_problem("Dirty", "its mark names no tenant", &texts);
    Some((it, explanation))
}

#[test]
fn volume_whose_pv_is_lost_is_wiped_with_consent() {
    let (mut it, explanation) = or_skip!(lost_pv());
    it.consent(&explanation, "--wipe");
    it.is_wiped();
}

#[test]
fn volume_whose_pv_is_lost_is_offered_with_its_data_with_consent() {
    let (mut it, explanation) = or_skip!(lost_pv());
    it.consent(&explanation, "--accept");
    it.is_kept("Available");
}

const MARK: &str = "the mark on the disk agrees";
const NEXT: &str =
    "next: nothing is touched until you consent; first check whether the application reads";

/// A PV from a backup, which has another UID than the mark. Its claim is from the backup, too, or gone.
fn restored_pv(has_claim: bool) -> Option<Accident> {
    let stage = installed()?;
    let path = fast(&stage, "vol");
    let mut volume = Occupied::at(stage, path);
    let backup = lose(&mut volume);
    restore(&mut volume, &backup, |pv| {
        if has_claim {
            pv["spec"]["claimRef"]["uid"] = Value::Null;
        }
    });
    let pv = name(&volume.pv);
    if has_claim {
        volume.stage.claim("claim", "fast", Some(&pv));
        volume.stage.in_phase(&pv, "Bound");
    } else {
        volume.stage.in_phase(&pv, "Released");
    }
    volume.start();
    Some(Accident::of(volume))
}

#[test]
fn pv_restored_with_its_claim_is_accepted_and_cleaned_after_the_claim() {
    let mut it = or_skip!(restored_pv(true));
    let explanation = it.is_problem("MarkMismatch", MARK, &["do not agree", NEXT]);
    it.consent(&explanation, "--accept");
    it.is_kept("Bound");
    it.claim_is_deleted();
    it.is_wiped();
}

#[test]
fn pv_restored_with_its_claim_is_wiped_with_consent_after_the_claim() {
    let mut it = or_skip!(restored_pv(true));
    let explanation = it.is_problem("MarkMismatch", MARK, &["do not agree", NEXT]);
    it.consent(&explanation, "--wipe");
    it.claim_is_deleted();
    it.is_wiped();
}

#[test]
fn pv_restored_without_its_claim_is_wiped_with_consent() {
    let mut it = or_skip!(restored_pv(false));
    let explanation = it.is_problem("CleaningFailed", MARK, &["do not agree", NEXT]);
    it.consent(&explanation, "--wipe");
    it.is_wiped();
}

#[test]
fn pv_restored_without_its_claim_is_forgotten_and_its_volume_is_dirty() {
    let mut it = or_skip!(restored_pv(false));
    let explanation = it.is_problem("CleaningFailed", MARK, &["do not agree", NEXT]);
    it.consent(&explanation, "--forget");
    it.is_problem("Dirty", "its mark names no tenant", &[]);
    assert!(has_secret(&it.path));
}

/// A volume with another disk at its path, on which the secret is. The disks are kept until the test ends.
fn other_disk() -> Option<(Accident, Explanation, [LoopDevice; 2])> {
    let stage = installed()?;
    let path = stage.sandbox.path().join("disks/fast/claim");
    let mut it = Accident::at(stage, path);
    let (_, _, disks) = replaced_disk(&it.stage, &mut it.provisioner, "claim");
    let next =
        "next: nothing is touched until the right disk is back; to consent, first delete the claim";
    let failed = "the disk is that of the PV";
    let explanation = it.is_problem("IdentityMismatch", failed, &["recorded", "there", next]);
    Some((it, explanation, disks))
}

#[test]
fn right_disk_is_mounted_again_under_a_bound_pv() {
    let (mut it, _, [right, wrong]) = or_skip!(other_disk());
    it.stage.sandbox.umount(&it.path).unwrap();
    mount(&it.stage, &right, "disks/fast/claim");
    it.is_solved("Bound");
    let elsewhere = mount(&it.stage, &wrong, "elsewhere");
    assert!(has_secret(&elsewhere));
}

/// The consents that are shown once the PV is Released.
fn other_disk_of_released_pv() -> Option<(Accident, Explanation, [LoopDevice; 2])> {
    let (mut it, _, disks) = other_disk()?;
    it.claim_is_deleted();
    let pv = it.name();
    it.stage.in_phase(&pv, "Released");
    it.stage.eventually("it can be wiped", || {
        let shown = run_as_operator(&it.stage, &["explain", &pv]).out;
        shown.contains("--wipe") && shown.contains("--forget")
    });
    let failed = "the disk is that of the PV";
    let explanation = it.is_problem(
        "IdentityMismatch",
        failed,
        &[
            "another disk is at its path",
            "next: nothing is touched until the right disk is back, or you consent",
        ],
    );
    Some((it, explanation, disks))
}

#[test]
fn other_disk_of_a_released_pv_is_wiped_with_consent() {
    let (mut it, explanation, _disks) = or_skip!(other_disk_of_released_pv());
    it.consent(&explanation, "--wipe");
    it.is_wiped();
}

#[test]
fn released_pv_of_another_disk_is_forgotten_and_the_disk_is_offered_with_its_data() {
    let (mut it, explanation, _disks) = or_skip!(other_disk_of_released_pv());
    it.consent(&explanation, "--forget");
    it.is_kept("Available");
}

#[test]
fn volume_of_a_claim_is_mounted_again() {
    let stage = or_skip!(installed());
    let disk = ext4(&stage);
    let path = mount(&stage, &disk, "disks/fast/vol");
    let mut it = Accident::of(Occupied::at(stage, path));
    it.is_in("Bound");
    let failed = "its volume is there and mounted";
    it.stage.sandbox.umount(&it.path).unwrap();
    let next = "next: it is checked again at each scan; mount the volume";
    it.is_problem("NotMounted", failed, &[next]);
    fs::remove_dir(&it.path).unwrap();
    let next = "next: it is checked again at each scan; bring the disk back";
    it.is_problem("Missing", failed, &[next]);
    mount(&it.stage, &disk, "disks/fast/vol");
    it.is_kept("Bound");
}

#[test]
fn hostname_label_is_changed_back_by_the_command_that_is_named() {
    let mut it = or_skip!(Accident::of_tenant());
    let node = it.stage.node();
    let other = format!("{node}.example.com");
    set_hostname_label(&it.stage, &other);
    let next = "next: it is not cleaned until you remove the cause of the failed check";
    let explanation = it.is_problem("Refused", "this provisioner manages the PV", &[&other, next]);
    it.claim_is_deleted();
    it.stage.still(&mut it.provisioner, "it is not cleaned", || has_secret(&it.path));
    it.follow(&explanation, &format!("kubectl label node {node} "));
    it.is_wiped();
}
