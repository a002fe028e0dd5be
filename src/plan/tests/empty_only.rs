//! `discoveryPolicy: EmptyOnly`: what is offered, and that nothing else depends on it.

use super::kit::*;
use crate::config::DiscoveryPolicy;
use crate::inventory::{Candidate, Contents};
use crate::plan::CleanupState;

fn choosy() -> World {
    world().change_class("fast", |class| {
        class.discovery_policy = DiscoveryPolicy::EmptyOnly;
    })
}

fn with_contents(candidate: Candidate, contents: Contents) -> Candidate {
    with(candidate, |candidate| candidate.contents = contents)
}

fn full(candidate: Candidate) -> Candidate {
    with_contents(candidate, Contents::Holds("the entry \"secret\"".into()))
}

fn empty(candidate: Candidate) -> Candidate {
    with_contents(candidate, Contents::Empty)
}

#[test]
fn only_an_empty_volume_is_offered() {
    let told = "VolumeNotEmpty of our Pod";
    for candidate in [fs(1), disk(1), partition(1), nameless(1, "now")] {
        choosy()
            .fast("a", &empty(candidate.clone()))
            .expect("empty", &["create /mnt/fast/a", "a is Creating"]);
        choosy()
            .fast("a", &full(candidate.clone()))
            .expect("not empty", &[told, "a is Skipped as NotEmpty"]);
        choosy().fast("a", &candidate).expect("not looked at, in this pass", &["a is Creating"]);
        world()
            .fast("a", &candidate)
            .expect("a class that does not care", &["create /mnt/fast/a", "a is Creating"]);
    }
}

#[test]
fn a_volume_that_is_not_empty_is_named_with_its_contents_and_the_remedy() {
    let plan = choosy().fast("a", &full(fs(1))).plan();
    let detail = plan.classes[0].volumes[0].detail.clone().unwrap();
    for words in ["/mnt/fast/a", "secret", "EmptyOnly", "clean /ours/fast/a"] {
        assert!(detail.contains(words), "{words:?} in {detail}");
    }
    assert!(plan.not_ready.is_empty(), "no reason to wait: {:?}", plan.not_ready);
}

#[test]
fn many_volumes_make_one_event() {
    let world = (0..12).fold(choosy(), |world, at| world.fast(&format!("v{at:02}"), &full(fs(at))));
    let notices = world.plan().notices;
    let [notice] = &Vec::from_iter(notices)[..] else { panic!("one") };
    let words = ["v00, v01, v02, v03, v04 and 7 more", "\"fast\"", "/mnt/fast"];
    assert!(words.iter().all(|words| notice.message.contains(words)), "{notice:?}");
}

#[test]
fn another_reason_comes_first() {
    let a = full(fs(1));
    let cleaned = pv("pv-a", "/mnt/fast/a", &a);
    choosy()
        .fast("a", &a)
        .cleanup(&cleaned, CleanupState::Wiping)
        .expect("being cleaned", &["a is Skipped as CleanupRunning"]);
    let busy = with(full(disk(1)), |disk| disk.in_use = Some("md0".into()));
    choosy().fast("a", &busy).expect("in use", &["a is Skipped as DeviceInUse"]);
}

#[test]
fn what_a_volume_holds_is_nothing_to_its_pv() {
    for contents in [full(fs(1)), empty(fs(1)), fs(1)] {
        let a = pv("pv-a", "/mnt/fast/a", &fs(1));
        let with_pv = |pv| choosy().fast("a", &contents).pv(pv);
        with_pv(a.clone()).expect("Available", &["a is Available"]);
        with_pv(bound(a.clone())).expect("Bound", &["a is Bound"]);
        with_pv(retained(released(a.clone()))).expect("kept", &["a is Retained"]);
        with_pv(released(a)).expect("due", &["clean pv-a", "a is Due"]);
    }
}
