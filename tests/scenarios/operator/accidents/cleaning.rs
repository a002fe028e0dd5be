//! Released volumes that are not cleaned.

use std::fs;

use super::*;

#[test]
fn volume_is_cleaned_after_the_mount_in_it_is_removed() {
    let mut it = or_skip!(Accident::of_tenant());
    let inner = fast(&it.stage, "vol/inner");
    it.claim_is_deleted();
    let texts = ["is mounted inside the volume", "next: it is cleaned again in"];
    it.is_problem("CleaningFailed", "cleaning works", &texts);
    it.stage.sandbox.umount(&inner).unwrap();
    it.is_wiped();
}

#[test]
fn volume_with_a_mount_in_it_is_forgotten() {
    let mut it = or_skip!(Accident::of_tenant());
    let inner = fast(&it.stage, "vol/inner");
    it.claim_is_deleted();
    let next = "remove the cause before that, or forget the PV";
    let explanation = it.is_problem("CleaningFailed", "cleaning works", &[next]);
    it.stage.sandbox.umount(&inner).unwrap();
    it.stage.sandbox.umount(&it.path).unwrap();
    let pv = it.name();
    let pv = it.stage.pv(&pv).unwrap();
    it.consent(&explanation, "--forget");
    is_gone(&it.stage, &pv);
    // A `/status` from before names the PV.
    let (provisioner, path) = (&mut it.provisioner, &it.path);
    it.stage.eventually("the volume has no PV", || status_of(provisioner, path)["pv"].is_null());
    it.is_remark("NotMounted", "it is a mount point", &[]);
}

#[test]
fn volume_that_a_pod_uses_is_cleaned_after_the_pod() {
    let mut it = or_skip!(Accident::of_tenant());
    it.stage.pod("user", "claim");
    it.stage.pod_in_phase("user", "Running");
    it.claim_is_deleted();
    drop_claim_protection(&it.stage, "claim");
    let user = format!("{}/user", it.stage.namespace());
    let name = it.name();
    it.stage.eventually("explain names the pod", || {
        let shown = run_as_operator(&it.stage, &["explain", &name]).out;
        shown.contains(&format!(
            "next: it is cleaned when it no longer waits: Volume is used by pods: {user}"
        ))
    });
    it.is_harmless("Waiting", &["next: it is cleaned when it no longer waits: "]);
    assert!(has_secret(&it.path));
    it.stage.delete_pod("user", true);
    it.is_wiped();
}

/// What pauses the cleaning of a volume.
fn paused(pause: impl FnOnce(&mut Accident)) -> Option<Accident> {
    let mut it = Accident::of_tenant()?;
    pause(&mut it);
    it.claim_is_deleted();
    it.is_in("Paused");
    Some(it)
}

#[test]
fn paused_volume_is_cleaned_after_it_is_resumed() {
    let mut it = or_skip!(paused(|it| {
        let pv = it.name();
        it.run(&["pause", &pv]);
    }));
    let explanation = it.is_harmless("Paused", &["next: it is cleaned after you resume"]);
    it.follow(&explanation, "kubectl local-volume resume");
    it.is_wiped();
}

#[test]
fn volume_of_a_paused_node_is_cleaned_after_the_node_is_resumed() {
    let mut it = or_skip!(paused(|it| it.run(&["pause", "--node", &it.stage.node()])));
    let explanation = it.explained(0, &["next: it is cleaned after you resume"]);
    answers(&run_as_operator(&it.stage, &["check"]), 1, &["cleaning is paused on"]);
    it.follow(&explanation, "kubectl local-volume resume");
    it.is_wiped();
}

#[test]
fn volume_is_cleaned_after_the_configuration_no_longer_pauses() {
    let mut it = or_skip!(paused(|it| {
        it.stage.configure("pauseCleaning", "true");
        it.stage
            .eventually("the pause is in force", || status(&mut it.provisioner)["paused"] == true);
    }));
    it.explained(0, &["next: it is cleaned after you resume", "pauseCleaning"]);
    let remove = "if pauseCleaning is set in the configuration, remove it";
    answers(&run_as_operator(&it.stage, &["check"]), 1, &[remove]);
    fs::remove_file(it.stage.config_dir().join("pauseCleaning")).unwrap();
    it.is_wiped();
}

/// A released volume whose class is not configured any more; the configuration with the class.
fn class_gone() -> Option<(Accident, Explanation, String)> {
    let stage = installed()?;
    class(&stage, "old", &json!({}));
    let path = tmpfs(&stage, "disks/old/vol");
    let mut it = Accident::of(Occupied::at(stage, path));
    let file = it.stage.config_dir().join("storageClassMap");
    let text = fs::read_to_string(file).unwrap();
    let mut map: Value = serde_json::from_str(&text).unwrap();
    map.as_object_mut().unwrap().remove(&it.stage.named("old"));
    it.stage.configure("storageClassMap", &map.to_string());
    it.is_in("ClassGone");
    it.claim_is_deleted();
    let pv = it.name();
    it.stage.in_phase(&pv, "Released");
    let next = "next: nothing is touched until its class is configured again";
    let texts = ["put the class back", next];
    let explanation = it.is_problem("ClassGone", "its class is configured", &texts);
    Some((it, explanation, text))
}

#[test]
fn volume_is_cleaned_after_its_class_is_configured_again() {
    let (mut it, _, map) = or_skip!(class_gone());
    it.stage.configure("storageClassMap", &map);
    it.is_wiped();
}

#[test]
fn pv_whose_class_is_gone_is_forgotten() {
    let (mut it, explanation, _) = or_skip!(class_gone());
    let pv = it.name();
    let pv = it.stage.pv(&pv).unwrap();
    it.consent(&explanation, "--forget");
    is_gone(&it.stage, &pv);
    assert!(has_secret(&it.path));
}

/// A released volume that its policy keeps.
fn retained() -> Option<(Accident, Explanation)> {
    let mut it = Accident::of_tenant()?;
    let pv = it.name();
    set_policy(&it.stage, &it.stage.pv(&pv)?, "Retain");
    it.claim_is_deleted();
    let next = "next: it is kept until you delete the PV, or set the policy Delete";
    let explanation = it.is_harmless("Retained", &[next]);
    assert!(has_secret(&it.path));
    Some((it, explanation))
}

#[test]
fn retained_volume_is_wiped_after_its_policy_is_delete() {
    let (mut it, explanation) = or_skip!(retained());
    it.follow(&explanation, "kubectl patch pv");
    it.is_wiped();
}

#[test]
fn retained_volume_whose_pv_is_deleted_is_offered_with_its_data_with_consent() {
    let (mut it, _) = or_skip!(retained());
    let pv = it.name();
    it.stage.delete_pv(&pv);
    let explanation = it.is_problem("Dirty", "its mark names no tenant", &[]);
    it.consent(&explanation, "--accept");
    it.is_kept("Available");
}
