//! A claim that names the volume, although the PV names another one.

use super::*;

#[test]
fn claim_that_is_bound_to_the_pv_keeps_the_data_whatever_its_uid_is() {
    let mut volume = or_skip!(occupied());
    let (stage, pv) = (&volume.stage, name(&volume.pv));
    stage.pod("pod", "claim");
    stage.pod_in_phase("pod", "Running");
    let edited = json!({ "spec": { "claimRef": { "uid": "edited" } } });
    volume.pv = stage.patch_pv(&pv, &edited);
    stage.in_phase(&pv, "Released");
    let text = stage.event("VolumeInUse", "is bound to it");
    let claim = format!("{}/claim", stage.namespace());
    assert!(text.contains(&claim), "{text}");
    volume.is_kept("Released", "the claim is bound to it");
    volume.stage.delete_pod("pod", true);
    volume.is_kept("Released", "the claim is still bound to it");
    volume.stage.delete_claim("claim");
    volume.is_cleaned();
}

#[test]
fn pod_of_a_new_claim_that_names_the_pv_keeps_the_data() {
    let mut volume = or_skip!(occupied());
    let pv = name(&volume.pv);
    volume.annotate(PAUSED, "true");
    volume.release();
    let stage = &volume.stage;
    stage.claim("claim", "fast", Some(&pv));
    stage.pod("pod", "claim");
    volume.annotate(PAUSED, Value::Null);
    let text = volume.stage.event("VolumeInUse", "used by pods");
    assert!(text.contains("/pod"), "{text}");
    volume.is_kept("Released", "the pod may get the volume");
    volume.stage.delete_pod("pod", true);
    volume.stage.delete_claim("claim");
    volume.is_cleaned();
}
