//! Requests that are denied: by RBAC without a permission, or by a policy of the cluster that one
//! object offends against.

use std::time::Duration;

use control_plane::faults::Answer;
use control_plane::requests::Verb;
use serde_json::json;
use support::stage::{annotation, name};
use support::{Program, Stage};

use crate::kit::*;
use crate::stage;

const PVS: &str = "persistentvolumes";
const CLASSES: &str = "storageclasses";
const EVENTS: &str = "events";
const USED: &str = "local-volume-provisioner/used";
/// A denied watch is retried every half minute, and reported for 45 s.
const READ: Duration = Duration::from_mins(1);

/// A stage with one class, and a provisioner that is denied some verbs of a resource.
fn without(resource: &str, verbs: &[Verb]) -> Option<(Stage, Program)> {
    let stage = stage()?;
    stage.class("fast", &json!({}));
    for verb in verbs {
        let denied = stage.faults().on(*verb).resource(resource);
        // What may not be listed is never watched.
        let is_asked = *verb != Verb::Watch || !verbs.contains(&Verb::List);
        let denied = if is_asked { denied } else { denied.maybe() };
        denied.forbid();
    }
    let provisioner = stage.provisioner();
    Some((stage, provisioner))
}

/// Waits until the permission is reported as missing.
fn misses(stage: &Stage, provisioner: &mut Program, verb: &str, resource: &str) {
    stage.within(READ, "the permission is missing", || is_missing(provisioner, verb, resource));
}

fn is_missing(provisioner: &mut Program, verb: &str, resource: &str) -> bool {
    let right = format!("missing_permission{{resource=\"{resource}\",verb=\"{verb}\"}}");
    metric(provisioner, &right) == Some(1)
}

/// A pause is noticed in time without a watch, and all else about the Node is read now and
/// then.
#[test]
fn without_a_watch_of_the_node_a_pause_is_asked_for_and_a_new_node_found() {
    let (stage, mut provisioner) = or_skip!(without("nodes", &[Verb::List, Verb::Watch]));
    let volume = fast(&stage, "vol");
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    misses(&stage, &mut provisioner, "list", "nodes");
    // It has been read, and will not be again for half a minute.
    std::thread::sleep(Duration::from_secs(1));
    annotate_node(&stage, PAUSED, "true");
    let mark = stage.requests().mark();
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    is_asked(&stage, mark, "the Node, before the cleanup", |it| {
        it.verb == Verb::Get && it.resource == "nodes"
    });
    stage.still(&mut provisioner, "nothing is cleaned", || {
        has_secret(&volume) && is_untouched(&stage, &bound, "Released")
    });
    stage.within(READ, "the pause is known everywhere", || {
        status(&mut provisioner)["paused"] == true
    });
    delete_node(&stage);
    register_node(&stage);
    stage.within(READ, "the volume is cleaned under the new Node", || {
        let fresh = stage.pvs_at(&volume).pop()?;
        let by_new = maker(&fresh)?.ends_with(&node_uid(&stage));
        (fresh.metadata.uid != bound.metadata.uid && by_new).then_some(())
    });
    assert!(entries(&volume).is_empty());
}

#[test]
fn a_pv_that_a_policy_refuses_blocks_no_other() {
    let (stage, mut provisioner) = or_skip!(without("nothing", &[]));
    let mut pvs = ["a", "b"]
        .map(|entry| fast(&stage, entry))
        .map(|volume| (name(&stage.available(&volume, None)), volume));
    // In the order in which they are gone through.
    pvs.sort();
    let policy = "admission webhook \"pv.example.com\" denied the request: not this one";
    let refused = stage
        .faults()
        .on(Verb::Patch)
        .resource(PVS)
        .name(&pvs[0].0)
        .answer(Answer::code(403).message(policy));
    stage.bind("first", &pvs[0].1);
    stage.eventually("the mark is refused", || refused.hits() > 0);
    let second = stage.bind("second", &pvs[1].1);
    stage.used(&second);
    assert_eq!(annotation(&stage.pv(&pvs[0].0).unwrap(), USED), None, "the first is still refused");
    assert!(!is_missing(&mut provisioner, "patch", PVS));
    assert!(provisioner.log().contains(policy));
}

/// No project that ships the Go provisioner grants `patch` of PVs.
#[test]
fn missing_permission_is_named_with_the_file_to_apply() {
    let (stage, mut provisioner) = or_skip!(without(PVS, &[Verb::Patch]));
    let volume = fast(&stage, "vol");
    stage.bind("claim", &volume);
    let words = "patch persistentvolumes";
    let event = stage.event("PermissionMissing", words);
    let files = ["deploy/rbac.yaml", "deploy/convert/rbac.yaml"];
    assert!(files.iter().all(|file| event.contains(file)), "{event}");
    stage.eventually("the status has the same", || {
        let degraded = status(&mut provisioner)["degraded"].to_string();
        degraded.contains(words) && files.iter().all(|file| degraded.contains(file))
    });
}

/// The list works all the time, and no object changes: only silence shows that the watch works now.
#[test]
fn a_watch_that_is_granted_is_noticed_although_nothing_changes() {
    let (stage, []) = or_skip!(fast_stage([]));
    let denied = ["nodes", CLASSES].map(|resource| {
        let denied = stage.faults().on(Verb::Watch).resource(resource).forbid();
        (resource, denied)
    });
    let mut provisioner = stage.provisioner();
    for (resource, denied) in &denied {
        misses(&stage, &mut provisioner, "watch", resource);
        denied.clear();
    }
    for (resource, _) in denied {
        stage.within(READ, "it is no longer missed", || {
            !is_missing(&mut provisioner, "watch", resource)
        });
    }
}

/// An event that comes again requires another permission than a new one.
#[test]
fn each_permission_that_events_require_is_reported_by_its_name() {
    let stage = or_skip!(stage());
    let settings = json!({ "blockCleanerCommand": ["/bin/false"] });
    stage.faults().on(Verb::Patch).resource(EVENTS).forbid();
    let mut volume = Occupied::raw(stage, &settings);
    let Occupied { stage, provisioner, .. } = &mut volume;
    stage.delete_claim("claim");
    stage.event("VolumeFailedDelete", "");
    misses(stage, provisioner, "patch", EVENTS);
    stage.event("PermissionMissing", "patch events");
    // The new event was written, which does not prove the other permission.
    assert!(is_missing(provisioner, "patch", EVENTS));
    assert!(!is_missing(provisioner, "create", EVENTS));

    stage.faults().on(Verb::Create).resource(EVENTS).forbid();
    annotate_node(stage, PAUSED, "true");
    misses(stage, provisioner, "create", EVENTS);
}
