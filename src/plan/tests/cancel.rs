//! A running wipe ends when its reason ends, and waits while it is paused.

use super::jobs::job_of;
use super::kit::*;
use crate::inventory::Candidate;
use crate::plan::{CleanupState, wipe_ended};
use crate::view::{JobState, JobView, Phase, PvView, ReclaimPolicy};

/// The PV of a wipe: released, and Terminating since the commit.
fn wiped() -> PvView {
    terminating(released(pv("pv-a", "/mnt/fast/a", &disk(1))))
}

/// The wipe of [`wiped`] runs, the watch shows these PVs, and the scan this disk.
fn during(pvs: &[PvView], found: &Candidate) -> World {
    let world = world().fast("a", found);
    let world = pvs.iter().cloned().fold(world, World::pv);
    world.cleanup(&wiped(), CleanupState::Wiping)
}

/// The same, with a Job.
fn during_job(pvs: &[PvView], found: &Candidate) -> World {
    let mut world = during(pvs, found).job(job_of(&wiped(), JobState::Running));
    world.snapshot.ledger.cleanups.clear();
    world
}

fn cancelled(world: &World) -> Option<String> {
    let found = words(&world.plan());
    let mut cancels = found.into_iter().filter(|it| it.starts_with("cancel "));
    let first = cancels.next();
    assert_eq!(cancels.next(), None, "one for each wipe");
    first
}

#[test]
fn wipe_is_cancelled_when_its_reason_ends() {
    let change = |change: fn(&mut PvView)| with(wiped(), change);
    let restored = bound(pv("pv-a", "/mnt/fast/a", &disk(1)));
    let other = |name| pv(name, "/mnt/fast/a", &disk(1));
    let forget = change(|pv| pv.consent = Some(crate::plan::consent::forget(pv)));
    for (situation, pvs, found, is_over) in [
        ("Terminating", vec![wiped()], disk(1), false),
        // As the watch may show it after the commit.
        ("Released", vec![released(other("pv-a"))], disk(1), false),
        ("our finalizer is gone", vec![change(|pv| pv.finalizers.clear())], disk(1), false),
        ("gone", vec![], disk(1), false),
        ("Bound again", vec![restored], disk(1), true),
        ("Terminating, Bound again", vec![change(|pv| pv.phase = Phase::Bound)], disk(1), true),
        ("Available again", vec![other("pv-a")], disk(1), true),
        ("Retain", vec![change(|pv| pv.policy = ReclaimPolicy::Retain)], disk(1), true),
        ("Recycle", vec![change(|pv| pv.policy = ReclaimPolicy::Recycle)], disk(1), true),
        ("forget", vec![forget], disk(1), true),
        ("gone, and another has its path", vec![other("pv-b")], disk(1), true),
        ("another has its path", vec![wiped(), other("pv-b")], disk(1), true),
        ("another disk", vec![wiped()], disk(2), true),
        ("another disk, and gone", vec![], disk(2), true),
    ] {
        let process = cancelled(&during(&pvs, &found));
        let expected = is_over.then(|| "cancel uid-pv-a".to_owned());
        assert_eq!(process, expected, "{situation}");
        let job = cancelled(&during_job(&pvs, &found));
        let expected = is_over.then(|| "cancel the Job of uid-pv-a".to_owned());
        assert_eq!(job, expected, "{situation}");
    }
}

#[test]
fn cancelled_job_is_not_written_otherwise() {
    let kept = with(wiped(), |pv| pv.policy = ReclaimPolicy::Retain);
    let found = words(&during_job(&[kept], &disk(1)).plan());
    assert!(!found.iter().any(|it| it.contains(" Job cleanup")), "{found:?}");
    // Jobs that are deleted, wait, or are of the Go provisioner.
    let restored = bound(pv("pv-a", "/mnt/fast/a", &disk(1)));
    let changes: [fn(&mut JobView); 3] = [
        |job| job.deleting = true,
        |job| job.state = JobState::Pending,
        |job| job.claim_uid = None,
    ];
    for change in changes {
        let job = with(job_of(&wiped(), JobState::Running), change);
        let world = during_job(std::slice::from_ref(&restored), &disk(1));
        assert_eq!(cancelled(&world.job(job.clone())), None, "{job:?}");
    }
}

#[test]
fn job_of_a_class_that_is_gone_is_cancelled() {
    let restored = bound(pv("pv-a", "/mnt/fast/a", &disk(1)));
    let world = during_job(&[restored], &disk(1)).config(|config| config.classes.clear());
    let found = cancelled(&world);
    assert_eq!(found.as_deref(), Some("cancel the Job of uid-pv-a"));
}

#[test]
fn weak_disk_after_a_reboot_is_not_another_one() {
    let before = pv("pv-a", "/mnt/fast/a", &nameless(1, "before"));
    let before = terminating(released(before));
    let world = world().fast("a", &nameless(1, "after")).pv(before.clone());
    assert_eq!(cancelled(&world.cleanup(&before, CleanupState::Wiping)), None);
}

#[test]
fn cancellation_waits_for_the_last_one() {
    let mut world = during(&[bound(pv("pv-a", "/mnt/fast/a", &disk(1)))], &disk(1));
    world.snapshot.ledger.writing.insert("uid-pv-a".into());
    assert_eq!(cancelled(&world), None);
}

#[test]
fn attempt_that_wipes_nothing_yet_is_left_to_its_gate() {
    let kept = with(wiped(), |pv| pv.policy = ReclaimPolicy::Retain);
    let world = during(&[kept], &disk(1)).change_cleanup(&wiped(), |cleanup| {
        cleanup.state = CleanupState::Waiting { reason: "for a slot".into(), job: None };
    });
    assert_eq!(cancelled(&world), None);
}

#[test]
fn wipe_of_a_volume_without_a_pv_is_cancelled_when_a_pv_appears() {
    let pv = |name| terminating(released(pv(name, "/mnt/fast/a", &disk(1))));
    let orphan = with(pv("pv-a"), |pv| pv.claim = None);
    let world = world().fast("a", &disk(1));
    let world = world.cleanup(&orphan, CleanupState::Wiping);
    assert_eq!(cancelled(&world), None);
    for name in ["pv-a", "pv-b"] {
        let found = cancelled(&world.clone().pv(pv(name)));
        assert_eq!(found.as_deref(), Some("cancel uid-pv-a"), "{name}");
    }
}

#[test]
fn pause_suspends_a_wipe_until_it_ends() {
    let paused = with(wiped(), |pv| pv.paused = true);
    let of_pv = during(&[paused], &disk(1));
    let free = during(&[wiped()], &disk(1));
    let of_node = free.clone().node(|node| node.paused = true);
    let of_all = free.clone().config(|config| config.pause_cleaning = true);
    let suspend = |world: World| world.change_cleanup(&wiped(), |cleanup| cleanup.suspended = true);
    for world in [of_pv, of_node, of_all] {
        world.expect("it runs", &["suspend uid-pv-a", "a is Cleaning"]);
        let waits = ["CleaningPaused of pv-a", "a is Paused"];
        suspend(world).expect("it is suspended", &waits);
    }
    let resumed = ["resume uid-pv-a", "CleaningPaused of pv-a", "a is Paused"];
    suspend(free).expect("it is not paused any more", &resumed);
}

#[test]
fn suspended_wipe_holds_no_slot() {
    let other = released(pv("pv-b", "/mnt/fast/b", &fs(2)));
    let paused = with(wiped(), |pv| pv.paused = true);
    let mut world = during(&[paused, other], &disk(1)).fast("b", &fs(2));
    world.config.max_concurrent_cleanups = std::num::NonZeroU16::MIN;
    world = world.change_cleanup(&wiped(), |cleanup| cleanup.suspended = true);
    let found = words(&world.plan());
    assert!(found.contains(&"clean pv-b".to_owned()), "{found:?}");
}

#[test]
fn reason_that_ended_is_named() {
    let restored = bound(pv("pv-a", "/mnt/fast/a", &disk(1)));
    let because = wipe_ended(&restored, &wiped().tenancy());
    assert_eq!(because.as_deref(), Some("PV pv-a is Bound again"));
    let kept = with(wiped(), |pv| pv.policy = ReclaimPolicy::Retain);
    let because = wipe_ended(&kept, &wiped().tenancy());
    assert_eq!(because.as_deref(), Some("the reclaim policy of PV pv-a is Retain now"));
}
