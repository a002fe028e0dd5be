//! Requests that are denied: by RBAC for want of a right, or by a policy of the cluster's that one
//! object offends against.

use std::sync::Arc;
use std::time::Duration;

use control_plane::faults::Answer;
use control_plane::requests::{Request, Verb};
use serde_json::json;
use support::stage::{annotation, name};
use support::{Program, Stage};

use crate::kit::*;
use crate::reload::add_class;
use crate::stage;

const PVS: &str = "persistentvolumes";
const CLASSES: &str = "storageclasses";
const EVENTS: &str = "events";
const USED: &str = "local-volume-provisioner/used";
/// What may not be watched is read every half minute.
const READ: Duration = Duration::from_secs(35);

/// A stage with one class, and a provisioner that is denied some verbs of a resource.
fn without(resource: &str, verbs: &[Verb]) -> Option<(Stage, Program)> {
    let stage = stage()?;
    stage.class("fast", &json!({})).unwrap();
    for verb in verbs {
        let denied = stage.faults().on(*verb).resource(resource);
        // What may not be listed is never watched.
        let is_asked = *verb != Verb::Watch || !verbs.contains(&Verb::List);
        let denied = if is_asked { denied } else { denied.maybe() };
        denied.forbid();
    }
    let provisioner = stage.provisioner().unwrap();
    Some((stage, provisioner))
}

/// Waits until the permission is reported as missing.
fn misses(stage: &Stage, provisioner: &mut Program, verb: &str, resource: &str) {
    stage.within(READ, "the permission is missing", || {
        is_missing(provisioner, verb, resource).then_some(())
    });
}

fn is_missing(provisioner: &mut Program, verb: &str, resource: &str) -> bool {
    let right = format!("missing_permission{{resource=\"{resource}\",verb=\"{verb}\"}}");
    metric(provisioner, &right) == Some(1)
}

/// A pause comes in time although nobody tells us of it, and all else about the Node is read now and
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
        (status(&mut provisioner)["paused"] == true).then_some(())
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

/// What is read every half minute is read at once when it is new.
#[test]
fn without_a_watch_of_classes_an_added_one_is_read_at_once() {
    let (stage, mut provisioner) = or_skip!(without(CLASSES, &[Verb::List, Verb::Watch]));
    stage.available(&fast(&stage, "vol"), None);
    misses(&stage, &mut provisioner, "list", CLASSES);
    stage.storage_class("slow", "Delete", "Immediate").unwrap();
    let second = stage.sandbox.tmpfs("disks/slow/vol", "size=1m").unwrap();
    add_class(&stage, "slow");
    stage.available(&second, None);
}

#[test]
fn what_a_policy_says_no_to_hinders_no_other_pv() {
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
    stage.eventually("the mark is refused", || (refused.hits() > 0).then_some(()));
    let second = stage.bind("second", &pvs[1].1);
    stage.used(&second);
    assert_eq!(
        annotation(&stage.pv(&pvs[0].0).unwrap(), USED),
        None,
        "the first is still refused"
    );
    assert!(!is_missing(&mut provisioner, "patch", PVS));
    assert!(provisioner.log().contains(policy));
}

/// Nothing is cleaned, and that costs hardly more with six volumes than with one.
#[test]
fn many_volumes_that_may_not_be_cleaned_ask_as_rarely_as_one() {
    let (stage, mut provisioner) = or_skip!(without(PVS, &[Verb::Patch]));
    let bound = [1, 2, 3, 4, 5, 6].map(|number| {
        let volume = fast(&stage, &format!("vol-{number}"));
        stage.bind(&format!("claim-{number}"), &volume)
    });
    for number in 1..=6 {
        stage.delete_claim(&format!("claim-{number}"));
    }
    for pv in &bound {
        stage.in_phase(&name(pv), "Released");
    }
    // Until each has found out for itself.
    std::thread::sleep(Duration::from_secs(12));
    let (mark, told) = (stage.requests().mark(), provisioner.log().lines().count());
    let failed = "persistentvolume_delete_failed_total{mode=\"Filesystem\",type=\"process\"}";
    let before = metric(&mut provisioner, failed);
    std::thread::sleep(Duration::from_secs(25));
    let asked = stage.requests().since(mark);
    let of = |verb, resource| {
        let is = |it: &&Arc<Request>| it.verb == verb && it.resource == resource;
        asked.iter().filter(is).count()
    };
    let (patches, events) = (of(Verb::Patch, PVS), of(Verb::Create, "events"));
    assert!(
        (1..=9).contains(&patches),
        "now and then one: {patches} in 25 s"
    );
    assert_eq!(events, 0, "it was told before");
    assert_eq!(metric(&mut provisioner, failed), before);
    let log = provisioner.log();
    let warnings = log
        .lines()
        .skip(told)
        .filter(|line| line.contains("cleaning failed"));
    assert_eq!(warnings.count(), 0);
}

/// The list worked all along, and no object changes: only silence tells that the watch works now.
#[test]
fn a_watch_that_is_granted_is_noticed_although_nothing_changes() {
    let stage = or_skip!(stage());
    stage.class("fast", &json!({})).unwrap();
    let denied = ["nodes", CLASSES].map(|resource| {
        let denied = stage.faults().on(Verb::Watch).resource(resource).forbid();
        (resource, denied)
    });
    let mut provisioner = stage.provisioner().unwrap();
    for (resource, denied) in &denied {
        misses(&stage, &mut provisioner, "watch", resource);
        denied.clear();
    }
    for (resource, _) in denied {
        stage.within(READ, "it is no longer missed", || {
            (!is_missing(&mut provisioner, "watch", resource)).then_some(())
        });
    }
}

/// What a list said stays true when the objects cannot be read one by one.
#[test]
fn where_classes_may_only_be_listed_they_are_known() {
    let (stage, mut provisioner) = or_skip!(without(CLASSES, &[Verb::Get, Verb::Watch]));
    stage.available(&fast(&stage, "first"), None);
    misses(&stage, &mut provisioner, "get", CLASSES);
    stage.available(&fast(&stage, "second"), None);
    ready(&stage, &mut provisioner);
}

#[test]
fn classes_that_cannot_be_read_at_all_are_not_called_missing() {
    let all = [Verb::Get, Verb::List, Verb::Watch];
    let (stage, mut provisioner) = or_skip!(without(CLASSES, &all));
    let told = stage.eventually("a reason", || {
        let told = status(&mut provisioner)["notReady"].to_string();
        told.contains("StorageClass").then_some(told)
    });
    assert!(told.contains("could not be read so far"), "{told}");
    let log = provisioner.log();
    let failed = log
        .lines()
        .filter(|line| line.contains("reading the StorageClass failed"));
    assert_eq!(failed.count(), 1, "said once");
}

/// An event that comes again requires another permission than a new one.
#[test]
fn each_permission_that_events_require_is_reported_by_its_name() {
    let stage = or_skip!(stage());
    let settings = json!({ "blockCleanerCommand": ["/bin/false"] });
    stage.faults().on(Verb::Patch).resource(EVENTS).forbid();
    let mut volume = Occupied::raw(stage, &settings);
    let Occupied {
        stage, provisioner, ..
    } = &mut volume;
    stage.delete_claim("claim");
    stage.event("VolumeFailedDelete", "");
    misses(stage, provisioner, "patch", EVENTS);
    stage.event("PermissionMissing", "patch events");
    // The new event was written, which says nothing of the other permission.
    assert!(is_missing(provisioner, "patch", EVENTS));
    assert!(!is_missing(provisioner, "create", EVENTS));

    stage.faults().on(Verb::Create).resource(EVENTS).forbid();
    annotate_node(stage, PAUSED, "true");
    misses(stage, provisioner, "create", EVENTS);
}
