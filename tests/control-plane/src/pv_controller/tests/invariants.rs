//! What holds after any sequence of events, and at each write on the way.

mod steps;

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use serde_json::Value;

use self::steps::steps;
use crate::{
    controllers::tests::{World, class},
    meta,
    pv_controller::PROVISIONED_BY,
    resource::{
        EVENTS, PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES, PODS,
        STORAGE_CLASSES,
    },
    store::{Event, EventKind},
};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn owner(volume: &Value) -> &str {
    text(&volume["spec"]["claimRef"]["uid"])
}

/// Clients set labels that only grow, and no controller changes them.
fn label(object: &Value) -> Option<u64> {
    text(&object["metadata"]["labels"]["version"]).parse().ok()
}

fn phase(object: &Value) -> &str {
    text(&object["status"]["phase"])
}

/// Whether the controller has to do something with such a volume when it is released. With a local one
/// it cannot.
fn must_reclaim(volume: &Value) -> bool {
    match text(&volume["spec"]["persistentVolumeReclaimPolicy"]) {
        "Retain" => false,
        "Delete" => volume["metadata"]["annotations"][PROVISIONED_BY].is_null(),
        _ => true,
    }
}

/// Whether a pod waits for the claim that is gone: then the volume is not recycled, and an event says
/// so without a failure. Pods without a node do not protect their claims.
fn is_in_use(world: &World, volume: &Value) -> bool {
    let claim = text(&volume["spec"]["claimRef"]["name"]);
    let uses = |pod: &Value| {
        let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        volumes.any(|v| v["persistentVolumeClaim"]["claimName"] == claim)
    };
    let pods = world.store.list(&PODS, None).items;
    volume["spec"]["persistentVolumeReclaimPolicy"] == "Recycle"
        && world.get(&CLAIMS, claim).is_none()
        && pods.iter().any(|pod| uses(pod))
}

/// The end of it all: both sides agree, and what is released is reclaimed.
fn check_end(world: &World) -> Result<(), TestCaseError> {
    let mut owner_of = HashMap::new();
    // The volume that each claim names, by the claim's UID.
    let mut named_by = HashMap::new();
    for claim in world.store.list(&CLAIMS, None).items {
        let name = text(&claim["spec"]["volumeName"]).to_owned();
        named_by.insert(meta::uid(&claim).to_owned(), name.clone());
        if phase(&claim) != "Bound" {
            continue;
        }
        let volume = world.get(&VOLUMES, &name);
        let volume = volume.ok_or_else(|| TestCaseError::fail(format!("{claim}: no volume")))?;
        prop_assert_eq!(owner(&volume), meta::uid(&claim));
        prop_assert_eq!(phase(&volume), "Bound");
        prop_assert_eq!(owner_of.insert(name, meta::name(&claim).to_owned()), None);
    }
    let mut claimed = HashSet::new();
    for volume in world.store.list(&VOLUMES, None).items {
        let (name, owner) = (meta::name(&volume), owner(&volume));
        let named = named_by.get(owner).map(String::as_str);
        match phase(&volume) {
            // Deleted amid its binding, it waits until the claim gets another.
            "Bound" if meta::is_terminating(&volume) && named == Some("") => {}
            "Bound" => {
                prop_assert!(named == Some(name) && owner_of.contains_key(name), "{volume}");
                prop_assert!(claimed.insert(owner.to_owned()), "{volume}");
            }
            // Or reserved, with a UID, for a claim that it does not fit.
            "Available" | "Pending" => {
                prop_assert!(owner.is_empty() || named == Some(""), "{volume}");
            }
            // The claim is gone, or bound elsewhere.
            free @ ("Released" | "Failed") => {
                let is_its = named.is_some_and(|named| named.is_empty() || named == name);
                prop_assert!(!is_its && !owner.is_empty(), "{volume}");
                let is_done =
                    free == "Failed" || !must_reclaim(&volume) || is_in_use(world, &volume);
                prop_assert!(is_done || meta::is_terminating(&volume), "{volume}");
            }
            other => prop_assert!(false, "{other}: {volume}"),
        }
    }
    for pod in world.store.list(&PODS, None).items {
        if phase(&pod) == "Running" && !meta::is_terminating(&pod) {
            prop_assert!(pod["spec"]["nodeName"].is_string(), "{}", pod);
        }
    }
    // What the controllers think is what is there.
    let volumes = &world.manager.cx.cache.volumes;
    prop_assert_eq!(volumes.keys().count(), world.store.list(&VOLUMES, None).items.len());
    Ok(())
}

/// What was seen of one volume, by its UID.
#[derive(Default)]
struct Past {
    /// How often the controller gave up to reclaim it.
    failed: u64,
    /// Whether the policy wanted that since the volume was released.
    had_to_fail: bool,
    /// How often an event reported that.
    reported: u64,
    /// All that it had.
    policies: HashSet<String>,
}

/// Every write on the way.
fn check_way(writes: impl Iterator<Item = Event>) -> Result<(), TestCaseError> {
    // The volume that each living claim names, by the claim's UID.
    let mut living: HashMap<String, String> = HashMap::new();
    let mut pasts: HashMap<String, Past> = HashMap::new();
    for event in writes {
        let object = &event.object;
        if event.resource == &CLAIMS {
            let uid = meta::uid(object).to_owned();
            match event.kind {
                EventKind::Deleted => living.remove(&uid),
                _ => living.insert(uid, text(&object["spec"]["volumeName"]).to_owned()),
            };
        }
        let is_failure = text(&object["reason"]).starts_with("VolumeFailed");
        if event.resource == &EVENTS && is_failure && object["type"] == "Warning" {
            let counted = |event: &Value| event["count"].as_u64().unwrap_or_default();
            let before = event.previous.as_deref().map_or(0, counted);
            let uid = text(&object["involvedObject"]["uid"]).to_owned();
            let past = pasts.entry(uid).or_default();
            past.reported += counted(object) - before;
            let policy = text(&object["reason"]).trim_start_matches("VolumeFailed");
            prop_assert!(past.policies.contains(policy), "{object}");
        }
        if event.resource == &VOLUMES {
            let past = pasts.entry(meta::uid(object).to_owned()).or_default();
            let policy = text(&object["spec"]["persistentVolumeReclaimPolicy"]);
            past.policies.insert(policy.to_owned());
        }
        if let Some(before) = &event.previous {
            prop_assert!(label(before) <= label(object), "a client's label is lost: {object}");
        }
        let Some(before) = event.previous.filter(|_| event.resource == &VOLUMES) else {
            continue;
        };
        let (owned, owns) = (owner(&before), owner(object));
        let robbed = !owns.is_empty() && owns != owned && living.contains_key(owned);
        prop_assert!(!robbed, "{object} was taken from the living claim {owned}");
        // A claim that is bound elsewhere has no right to the volume.
        let named = living.get(owns).map(String::as_str);
        let is_its = named.is_some_and(|named| named.is_empty() || named == meta::name(object));
        let freed = phase(&before) != phase(object)
            && matches!(phase(object), "Released" | "Failed" | "Available");
        prop_assert!(!(freed && is_its), "{object} was released while its claim lives");

        let past = pasts.entry(meta::uid(object).to_owned()).or_default();
        match (phase(&before), phase(object)) {
            ("Released" | "Failed", "Released" | "Failed") => {}
            _ => past.had_to_fail = false,
        }
        past.had_to_fail |= must_reclaim(object);
        if phase(object) == "Failed" && phase(&before) != "Failed" {
            past.failed += 1;
            prop_assert_eq!(phase(&before), "Released", "{}", object);
            prop_assert!(past.had_to_fail, "{object} is none that the controller reclaims");
        }
    }
    for (uid, past) in pasts {
        prop_assert_eq!(past.reported, past.failed, "of volume {}", uid);
    }
    Ok(())
}

/// Five times as many with `--slow`.
fn cases() -> ProptestConfig {
    let slow = std::env::var_os("SLOW_TESTS").is_some();
    ProptestConfig {
        cases: if slow { 1_000 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn both_sides_agree_and_nothing_alive_is_released(steps in steps()) {
        let mut world = World::new();
        for node in ["n1", "n2"] {
            world.add_node(node);
        }
        world.create(&STORAGE_CLASSES, class("fast", "Immediate"));
        world.create(&STORAGE_CLASSES, class("late", "WaitForFirstConsumer"));
        let mut writes = world.store.subscribe();
        for step in &steps {
            step.take(&mut world);
        }
        world.let_go();
        world.disturb_no_more();
        world.rest();
        check_end(&world)?;
        // What is settled stays as it is; only events may be counted up.
        let mut quiet = world.store.subscribe();
        world.resync();
        while let Ok(event) = quiet.try_recv() {
            prop_assert_eq!(event.resource, &EVENTS, "{}", event.object);
        }
        check_way(std::iter::from_fn(|| writes.try_recv().ok()))?;
    }
}
