//! Fault 16 of the Go provisioner: it wiped volumes that its cache did not know to be bound again.

use super::*;
use control_plane::requests::Request;
use serde_json::Value;
use support::stage::phase;

use crate::kit::{annotate_node, bind_again, is_asked};

/// For each request before the wipe: it is held up on its way, and while it is, the PV is bound
/// again. The watch tells nothing of it.
#[test]
fn fault_16_a_volume_bound_again_in_front_of_a_destructive_step_is_not_wiped() {
    let (stage, volume) = or_skip!(bare_volume());
    let mut provisioner = stage.provisioner();
    let mut claim = "claim".to_owned();
    let pv = stage.occupy(&claim, &volume);
    let (pv, old) = (name(&pv), uid(&pv));
    let steps = [
        ("gate-pv", Verb::Get, PVS),
        ("gate-claim", Verb::Get, CLAIMS),
        ("pods", Verb::List, "pods"),
        ("finalizer", Verb::Patch, PVS),
        ("delete", Verb::Delete, PVS),
    ];
    let faults = stage.faults();
    let requests = stage.requests();
    for (step, verb, resource) in steps {
        let held_up = faults.on(verb).resource(resource).times(1).hold();
        let mark = requests.mark();
        stage.delete_claim(&claim);
        let awaited = |request: &Request| request.verb == verb && request.resource == resource;
        is_asked(&stage, mark, step, awaited);
        // From here on the cache is stale: it says Released.
        let hold = faults.hold_watches(PVS);
        claim = format!("after-{step}");
        bind_again(&stage, &pv, &claim);
        let mark = requests.mark();
        held_up.clear();
        let is_unharmed = || {
            let now = stage.pvs_at(&volume).pop().unwrap();
            uid(&now) == old && phase(&now) == "Bound" && volume.join("secret").exists()
        };
        let what = format!("{step}: bound, with its data");
        stage.still_unwatched(&mut provisioner, &what, is_unharmed);
        let asked = requests.since(mark);
        let looks = asked.iter().filter(|r| r.verb == Verb::Get && r.name == pv).count();
        assert!(looks < 10, "{step}: looked {looks} times at a PV that the cache has wrong");
        let late = asked.iter().filter(|r| r.verb == Verb::Delete);
        assert_eq!(late.count(), 0, "{step}: it met another version");
        drop(hold);
        stage.still(&mut provisioner, &what, is_unharmed);
        stage.eventually(&format!("{step}: the finalizer is gone"), || {
            let now = stage.pv(&pv)?;
            let ours = "local-volume-provisioner/cleanup";
            (!now.metadata.finalizers.unwrap_or_default().iter().any(|f| f == ours)).then_some(())
        });
    }
    assert_eq!(wipes(&provisioner, &volume), 0);
    stage.delete_claim(&claim);
    stage.available(&volume, Some(&old));
    assert_eq!(entries(&volume), [""; 0], "in the end it is cleaned");
}

/// The cache says Released from the beginning, so every look of the plan says that it is due.
#[test]
fn fault_16_a_plan_made_from_a_stale_cache_does_no_harm() {
    let (stage, volume) = or_skip!(bare_volume());
    let mut provisioner = stage.provisioner();
    let pv = stage.occupy("first", &volume);
    let pause = |paused: Option<&str>| {
        let annotations = json!({ "local-volume-provisioner/paused": paused });
        stage.patch_pv(&name(&pv), &json!({ "metadata": { "annotations": annotations } }));
    };
    pause(Some("true"));
    stage.delete_claim("first");
    stage.in_phase(&name(&pv), "Released");
    stage.event("CleaningPaused", "paused");
    let faults = stage.faults();
    // The very next thing that the cache hears is that nothing is paused any more; not that the
    // volume is in use again, which happened before it could act.
    let get = faults.on(Verb::Get).resource(PVS).name(&name(&pv)).times(1);
    let held_up = get.hold();
    pause(None);
    stage.eventually("the cleanup begins", || held_up.hits() == 1);
    let hold = faults.hold_watches(PVS);
    bind_again(&stage, &name(&pv), "second");
    let mark = stage.requests().mark();
    held_up.clear();
    let what = "the data of the second tenant";
    stage.still_unwatched(&mut provisioner, what, || volume.join("secret").exists());
    let asked = stage.requests().since(mark);
    assert!(asked.iter().all(|request| !request.writes()), "nothing is written: {asked:?}");
    assert!(asked.len() < 30, "{} requests for one stale PV", asked.len());
    drop(hold);
    assert_eq!(wipes(&provisioner, &volume), 0);
    assert_eq!(phase(&stage.pv(&name(&pv)).unwrap()), "Bound");
}

/// The Node is watched as ever, and the watch is late.
#[test]
fn a_pause_that_no_watch_has_shown_yet_is_noticed_in_time() {
    let (stage, volume) = or_skip!(bare_volume());
    let mut provisioner = stage.provisioner();
    let old = stage.occupy("claim", &volume);
    let hold = stage.faults().hold_watches("nodes");
    annotate_node(&stage, "local-volume-provisioner/paused", "true");
    let mark = stage.requests().mark();
    stage.delete_claim("claim");
    stage.in_phase(&name(&old), "Released");
    is_asked(&stage, mark, "the Node, before the cleanup", |it| {
        it.verb == Verb::Get && it.resource == "nodes"
    });
    let is_kept = || {
        entries(&volume) == ["secret"] && uid(&stage.pvs_at(&volume).pop().unwrap()) == uid(&old)
    };
    stage.still(&mut provisioner, "nothing is cleaned", is_kept);
    hold.release();
    stage.event("CleaningPaused", "");
    stage.still(&mut provisioner, "nothing is cleaned", is_kept);
    annotate_node(&stage, "local-volume-provisioner/paused", Value::Null);
    stage.available(&volume, Some(&uid(&old)));
    assert_eq!(entries(&volume), [""; 0]);
}
