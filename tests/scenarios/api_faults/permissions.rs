//! Rights that are missing: reported, survived, and used as soon as they are granted.

use super::*;
use crate::kit::{fast, status};

/// What `/status` calls degraded, and the metric of it.
fn missing(provisioner: &mut Program, verb: &str, resource: &str) -> (bool, bool) {
    let degraded = status(provisioner)["degraded"].to_string();
    let series = format!("missing_permission{{resource=\"{resource}\",verb=\"{verb}\"}}");
    let is_counted = metric(provisioner, &series) == Some(1);
    (degraded.contains(&format!("{verb} {resource}")), is_counted)
}

fn reported(stage: &Stage, provisioner: &mut Program, verb: &str, resource: &str) {
    stage.eventually(&format!("the missing permission to {verb} {resource} is reported"), || {
        missing(provisioner, verb, resource) == (true, true)
    });
}

fn no_longer_reported(stage: &Stage, provisioner: &mut Program, verb: &str, resource: &str) {
    stage.eventually(&format!("the permission to {verb} {resource} is no longer reported"), || {
        missing(provisioner, verb, resource) == (false, false)
    });
}

/// Without these nothing is cleaned, and nothing is lost; what else there is to do is done. Each of
/// two volumes misses one right, so that the ten seconds until the next try pass once.
#[test]
fn without_permission_to_patch_or_delete_pvs_nothing_is_cleaned_until_it_is_granted() {
    let stage = or_skip!(bare_stage());
    stage.class("fast", &json!({}));
    let mut provisioner = stage.provisioner();
    let faults = stage.faults();
    let denied = [Verb::Patch, Verb::Delete].map(|verb| {
        let volume = fast(&stage, &verb.to_string());
        let old = stage.occupy(&verb.to_string(), &volume);
        let fault = faults.on(verb).resource(PVS).name(&name(&old)).forbid();
        stage.delete_claim(&verb.to_string());
        (verb.to_string(), volume, old, fault)
    });
    for (verb, volume, old, _) in &denied {
        stage.event("PermissionMissing", &format!("{verb} {PVS}"));
        stage.event("PermissionMissing", &format!("{}", volume.display()));
        assert_eq!(entries(volume), ["secret"]);
        assert_eq!(uid(&stage.pv(&name(old)).unwrap()), uid(old));
    }
    reported(&stage, &mut provisioner, "delete", PVS);
    let other = fast(&stage, "other");
    stage.available(&other, None);
    assert_eq!(provisioner.http_get("/healthz").unwrap().0, 200);
    for (.., fault) in &denied {
        fault.clear();
    }
    for (verb, volume, old, _) in &denied {
        stage.within(A_RETRY_LATER, &format!("{verb} is allowed, and the volume cleaned"), || {
            stage.pvs_at(volume).iter().all(|pv| uid(pv) != uid(old))
        });
        stage.available(volume, Some(&uid(old)));
        assert_eq!(entries(volume), [""; 0]);
        no_longer_reported(&stage, &mut provisioner, verb, PVS);
    }
    assert!(provisioner.is_running());
}

/// Older roles lack these: the single check is left out, and that is said.
#[test]
fn without_permission_to_read_claims_or_pods_that_check_is_left_out() {
    let (stage, volume) = or_skip!(bare_volume());
    let mut provisioner = stage.provisioner();
    let old = stage.occupy("claim", &volume);
    let faults = stage.faults();
    faults.on(Verb::Get).resource(CLAIMS).forbid();
    faults.on(Verb::List).resource("pods").forbid();
    stage.delete_claim("claim");
    let fresh = stage.available(&volume, Some(&uid(&old)));
    assert_eq!(entries(&volume), [""; 0]);
    reported(&stage, &mut provisioner, "get", CLAIMS);
    reported(&stage, &mut provisioner, "list", "pods");
    stage.event("PermissionMissing", "pods");
    faults.clear();
    stage.occupy("next", &volume);
    stage.delete_claim("next");
    stage.available(&volume, Some(&uid(&fresh)));
    no_longer_reported(&stage, &mut provisioner, "get", CLAIMS);
    no_longer_reported(&stage, &mut provisioner, "list", "pods");
}
