//! Which PVs have to be cleaned, by the object alone and when.

use std::sync::Arc;

use std::time::Duration;

use super::kit::*;
use crate::names::FINALIZER;
use crate::plan::consent::consent as naming;
use crate::plan::verdict::{Due, due};
use crate::plan::{Action, CleanOrder, CleanupState};
use crate::types::VolumeMode;
use crate::view::{Phase, PvView, ReclaimPolicy};

pub const PHASES: [Phase; 5] =
    [Phase::Pending, Phase::Available, Phase::Bound, Phase::Released, Phase::Failed];

pub fn policies() -> [ReclaimPolicy; 4] {
    let other = ReclaimPolicy::Other("Shred".into());
    [ReclaimPolicy::Delete, ReclaimPolicy::Retain, ReclaimPolicy::Recycle, other]
}

/// The rules once more, as an administrator would say them.
pub fn expected(pv: &PvView) -> Due {
    let held_by_us = pv.deleting && pv.finalizers.contains(&FINALIZER.to_owned());
    let offered = [Phase::Pending, Phase::Available].contains(&pv.phase);
    let touched = !offered || pv.claim.is_some() || pv.used || pv.bound_by_controller;
    let delete = pv.policy == ReclaimPolicy::Delete;
    if pv.phase == Phase::Bound {
        return Due::No;
    }
    if held_by_us && pv.policy == ReclaimPolicy::Retain {
        return Due::Retained;
    }
    if held_by_us && !touched {
        return Due::Unused;
    }
    let over = if pv.deleting { held_by_us && touched } else { pv.phase == Phase::Released };
    if delete && over { Due::Yes } else { Due::No }
}

/// Every combination of the fields that it depends on.
fn all() -> impl Iterator<Item = PvView> {
    let bits = (0..32).map(|bits: u32| move |bit: u32| bits >> bit & 1 == 1);
    let cases = bits.flat_map(|bit| PHASES.map(|phase| (bit, phase)));
    cases.flat_map(|(bit, phase)| policies().map(|policy| (bit, phase, policy))).map(
        |(bit, phase, policy)| {
            with(pv("pv-a", "/mnt/fast/a", &fs(1)), |pv| {
                (pv.phase, pv.policy) = (phase, policy);
                pv.deleting = bit(0);
                pv.finalizers = if bit(1) { vec![FINALIZER.into()] } else { Vec::new() };
                pv.claim = bit(2).then(claim);
                (pv.used, pv.bound_by_controller) = (bit(3), bit(4));
            })
        },
    )
}

#[test]
fn due_is_decided_by_phase_policy_deletion_and_use() {
    for pv in all() {
        assert_eq!(due(&pv), expected(&pv), "{pv:#?}");
    }
    assert_eq!(all().count(), 32 * 5 * 4);
    // Released; Terminating and Released, Failed, or Pending or Available with a trace of use.
    let cleaned = all().filter(|pv| due(pv) == Due::Yes).count();
    assert_eq!(cleaned, 16 + 8 + 8 + 7 + 7, "the table is not trivial");
}

#[test]
fn what_is_due_is_cleaned_and_nothing_else_is() {
    for pv in all() {
        let world = world().fast("a", &fs(1)).pv(pv.clone());
        let plan = world.plan();
        let cleans = plan.actions.iter().any(|action| matches!(action, Action::Clean(_)));
        let goes = plan.actions.iter().any(|action| matches!(action, Action::Withdraw(_)));
        let due = expected(&pv);
        assert_eq!(
            (cleans, goes),
            (due == Due::Yes, matches!(due, Due::Unused | Due::Retained)),
            "{pv:#?}"
        );
    }
}

#[test]
fn fault_3_a_terminating_pv_is_cleaned_before_it_goes() {
    let a = pv("pv-a", "/mnt/fast/a", &fs(1));
    let clean = &["clean pv-a", "a is Due"][..];
    for (situation, pv, expected) in [
        ("claim first, then PV", terminating(released(a.clone())), clean),
        ("PV first: its claim still lives", terminating(bound(a.clone())), &["a is Terminating"]),
        ("never used", terminating(a.clone()), &["let pv-a go", "a is Terminating"]),
        (
            "reserved for a claim",
            terminating(with(a.clone(), |pv| pv.claim = Some(claim()))),
            clean,
        ),
        ("used once, Available again", terminating(with(a.clone(), |pv| pv.used = true)), clean),
        ("kept", terminating(retained(released(a.clone()))), &["let pv-a go", "a is Terminating"]),
        ("not held by us", with(a, |pv| pv.deleting = true), &["a is Terminating"]),
    ] {
        world().fast("a", &fs(1)).pv(pv).expect(situation, expected);
    }
}

#[test]
fn a_terminating_pv_of_an_unknown_policy_is_neither_cleaned_nor_let_go() {
    for (policy, reason) in [
        (ReclaimPolicy::Recycle, "VolumeUnsupportedReclaimPolicy of pv-a"),
        (ReclaimPolicy::Other("Shred".into()), "VolumeUnknownReclaimPolicy of pv-a"),
    ] {
        let pv = terminating(released(pv("pv-a", "/mnt/fast/a", &fs(1))));
        let pv = with(pv, |pv| pv.policy = policy);
        world().fast("a", &fs(1)).pv(pv).expect("used", &[reason, "a is Failed"]);
    }
}

#[test]
fn released_pvs_that_are_not_due_are_told_of() {
    let a = released(pv("pv-a", "/mnt/fast/a", &fs(1)));
    let policy = |policy| with(a.clone(), |pv| pv.policy = policy);
    let failed = with(a.clone(), |pv| pv.phase = Phase::Failed);
    for (situation, pv, expected) in [
        ("Retain", retained(a.clone()), &["a is Retained"][..]),
        (
            "Recycle",
            policy(ReclaimPolicy::Recycle),
            &["VolumeUnsupportedReclaimPolicy of pv-a", "a is Failed"],
        ),
        (
            "a word of the future",
            policy(ReclaimPolicy::Other("Shred".into())),
            &["VolumeUnknownReclaimPolicy of pv-a", "a is Failed"],
        ),
        ("phase Failed", failed, &["VolumeFailedDelete of pv-a", "a is Failed"]),
    ] {
        world().fast("a", &fs(1)).pv(pv).expect(situation, expected);
    }
}

fn order(world: &World) -> Option<CleanOrder> {
    world.plan().actions.into_iter().find_map(|action| match action {
        Action::Clean(order) => Some(*order),
        _ => None,
    })
}

#[test]
fn an_order_says_all_that_the_cleaner_needs() {
    let rotating = with(disk(1), |disk| disk.rotational.extend([number("8:16")]));
    let pv = released(pv("pv-a", "/mnt/fast/a", &rotating));
    let world = world().fast("a", &rotating).pv(pv.clone());
    let order = order(&world).unwrap();
    assert_eq!(order.pv, pv);
    assert_eq!(*order.volume.class, class("fast"));
    assert_eq!(
        (order.volume.path.as_str(), order.volume.candidate.kind),
        ("/mnt/fast/a", VolumeMode::Block)
    );
    assert_eq!(order.volume.mount_path.to_string(), "/ours/fast/a");
    assert_eq!(order.volume.candidate, rotating);
}

#[test]
fn fault_7_a_failed_cleanup_waits_unless_something_changed() {
    let pv = released(pv("pv-a", "/mnt/fast/a", &disk(1)));
    let world = world().fast("a", &disk(1)).pv(pv.clone());
    let basis = order(&world).unwrap().basis;
    let failed = world.clone().cleanup_on(&pv, failed_until(150), basis);
    let consented = consent(pv.clone(), naming("wipe", Some(&pv), &disk(1)));
    let change_pv = |pv: &PvView| {
        with(failed.clone(), |world| {
            world.snapshot.pvs = Some(vec![pv.clone()]);
        })
    };
    let change_disk = |change: fn(&mut crate::inventory::Candidate)| {
        with(failed.clone(), |world| {
            world.snapshot.observed.get_mut("fast").unwrap().entries = Arc::default();
        })
        .fast("a", &with(disk(1), change))
    };
    for (situation, world, again) in [
        ("at once", failed.clone(), false),
        (
            "just before the time",
            with(failed.clone(), |w| {
                w.snapshot.now = Duration::from_millis(149_999);
            }),
            false,
        ),
        (
            "when it is time",
            with(failed.clone(), |world| {
                world.snapshot.now = Duration::from_secs(150);
            }),
            true,
        ),
        ("with a new configuration", with(failed.clone(), |world| world.generation += 1), true),
        ("with consent", change_pv(&consented), true),
        ("when the PV is being deleted", change_pv(&terminating(pv.clone())), false),
        (
            "when our own patch changed the version",
            change_pv(&with(pv.clone(), |pv| pv.resource_version.push('1'))),
            false,
        ),
        (
            "when the device is used by another device",
            change_disk(|disk| disk.in_use = Some("md0".into())),
            true,
        ),
    ] {
        assert_eq!(order(&world).is_some(), again, "{situation}");
        let state = if again { "a is Due" } else { "a is CleaningFailed" };
        assert!(words(&world.plan()).contains(&state.to_owned()), "{situation}");
    }
}

#[test]
fn fault_2_a_cleanup_of_another_tenancy_vouches_for_nothing() {
    let now = released(pv("pv-a", "/mnt/fast/a", &fs(1)));
    let before = with(now.clone(), |pv| {
        pv.claim.as_mut().unwrap().uid = Some("earlier".into());
    });
    let reborn = with(now.clone(), |pv| pv.uid = "uid-of-an-earlier-pv".into());
    for state in [CleanupState::Released, failed_until(999)] {
        let world = world().fast("a", &fs(1)).pv(now.clone());
        let of_claim = world.clone().cleanup(&before, state.clone());
        of_claim.expect("an earlier claim's", &["forget uid-pv-a", "clean pv-a", "a is Due"]);
        world
            .cleanup(&reborn, state)
            .expect("an earlier PV's", &["forget uid-of-an-earlier-pv", "clean pv-a", "a is Due"]);
    }
}

#[test]
fn nothing_begins_on_a_path_where_a_cleanup_is_at_work() {
    let now = released(pv("pv-a", "/mnt/fast/a", &fs(1)));
    let before = with(now.clone(), |pv| {
        pv.claim.as_mut().unwrap().uid = Some("earlier".into());
    });
    let reborn = with(now.clone(), |pv| pv.uid = "uid-of-an-earlier-pv".into());
    for other in [before, reborn] {
        {
            let world = world().fast("a", &fs(1)).cleanup(&other, CleanupState::Wiping);
            let cancel = format!("cancel {}", other.uid);
            world.clone().pv(now.clone()).expect("due", &[&cancel, "a is Due"]);
            let unused = terminating(pv("pv-a", "/mnt/fast/a", &fs(1)));
            world.pv(unused).expect("unused and deleted", &[&cancel, "a is Terminating"]);
        }
    }
}

#[test]
fn nothing_is_begun_while_a_write_is_under_way() {
    let a = pv("pv-a", "/mnt/fast/a", &fs(1));
    for (situation, pv, state) in [
        ("due", released(a.clone()), "a is Due"),
        ("never used", terminating(a.clone()), "a is Terminating"),
        ("to be patched", without_identity(a), "a is Available"),
    ] {
        let mut world = world().fast("a", &fs(1)).pv(pv);
        world.snapshot.ledger.writing.insert("pv-a".into());
        world.expect(situation, &[state]);
        let detail = world.plan().classes[0].volumes[0].detail.clone().unwrap_or_default();
        let says_why = detail.starts_with("a write of its PV is under way");
        assert_eq!(says_why, situation == "due", "{situation}: {detail}");
    }
}

#[test]
fn pausing_stops_cleaning_and_nothing_else() {
    let a = released(pv("pv-a", "/mnt/fast/a", &fs(1)));
    let world = || world().fast("a", &fs(1));
    let paused = ["CleaningPaused of pv-a", "a is Paused"];
    let whole = |world: World| world.config(|config| config.pause_cleaning = true);
    whole(world()).pv(a.clone()).expect("by the configuration", &paused);
    world().node(|node| node.paused = true).pv(a.clone()).expect("on the Node", &paused);
    world().pv(with(a.clone(), |pv| pv.paused = true)).expect("on the PV", &paused);
    whole(world())
        .pv(terminating(pv("pv-a", "/mnt/fast/a", &fs(1))))
        .expect("what was never used goes all the same", &["let pv-a go", "a is Terminating"]);
    whole(world()).expect("and volumes are offered", &["create /mnt/fast/a", "a is Creating"]);
}
