//! The table of a cleanup's steps: one row a state, and who gets the slots.

use std::num::NonZeroU16;
use std::time::Duration;

use super::jobs::{committed, device, failed_job, job, order, running, waiting, with_jobs};
use super::kit::*;
use crate::names::FINALIZER;
use crate::plan::{CleanupState, FOR_A_SLOT};
use crate::view::{JobState, JobView, ReclaimPolicy};

fn blocked(retry_at: u64) -> CleanupState {
    CleanupState::Blocked {
        reason: "a pod uses it".into(),
        notify_at: Some(Duration::from_secs(100)),
        retry_at: Duration::from_secs(retry_at),
    }
}

fn blocked_silently(retry_at: u64) -> CleanupState {
    CleanupState::Blocked {
        reason: "its Job".into(),
        notify_at: None,
        retry_at: Duration::from_secs(retry_at),
    }
}

fn wiped(error: Option<&str>, retry_at: u64) -> CleanupState {
    CleanupState::Wiped { error: error.map(str::to_owned), retry_at: Duration::from_secs(retry_at) }
}

/// The API server was restored to a time before the release.
#[test]
fn finished_wipe_is_forgotten_when_its_pv_is_bound_again() {
    let again = with(bound(committed()), |pv| {
        pv.deleting = false;
        pv.finalizers.clear();
    });
    for state in [wiped(None, 0), CleanupState::Released] {
        let world = world().fast("a", &disk(1)).pv(again.clone());
        let world = world.cleanup(&again, state);
        world.expect("restored", &["forget uid-pv-a", "a is Bound"]);
    }
}

#[test]
fn each_state_without_a_job_has_its_step() {
    let pv = committed();
    let basis = order(&device().plan()).unwrap().basis;
    let kept = with(pv.clone(), |pv| pv.policy = ReclaimPolicy::Retain);
    let paused = with(pv.clone(), |pv| pv.paused = true);
    let former = with(pv.clone(), |pv| pv.provisioned_by = Some(FORMER.into()));
    let clean = &["clean pv-a", "a is Due"][..];
    let retry = &["VolumeInUse of pv-a", "clean pv-a", "a is Due"][..];
    let forget = "forget uid-pv-a";
    for (pv, state, on, expected) in [
        (&pv, blocked(101), basis, &["VolumeInUse of pv-a", "a is Waiting"][..]),
        // The notice stays while the next attempt begins.
        (&pv, blocked(100), basis, retry),
        (&pv, blocked(101), 0, retry),
        (&pv, failed_until(101), basis, &["a is CleaningFailed"]),
        (&pv, failed_until(100), basis, clean),
        (&pv, waiting("for a slot"), basis, clean),
        (&pv, running(), basis, clean),
        (&pv, CleanupState::Wiping, basis, &["a is Cleaning"]),
        (&pv, wiped(None, 100), basis, &["release uid-pv-a", "a is Cleaning"]),
        (&pv, wiped(Some("no"), 101), basis, &["VolumeFailedDelete of pv-a", "a is Refused"]),
        (&pv, CleanupState::Released, basis, &["a is Cleaned"]),
        // Not due any more, or paused, or of a Node that was registered again.
        (&former, wiped(None, 100), basis, &["release uid-pv-a", "a is Cleaning"]),
        (&kept, blocked(101), basis, &[forget, "let pv-a go", "a is Terminating"]),
        (&kept, wiped(None, 100), basis, &["release uid-pv-a", "a is Cleaning"]),
        (&paused, blocked(100), basis, &[forget, "CleaningPaused of pv-a", "a is Paused"]),
        (&paused, CleanupState::Wiping, basis, &["suspend uid-pv-a", "a is Cleaning"]),
        (&paused, wiped(None, 100), basis, &["release uid-pv-a", "a is Cleaning"]),
    ] {
        let situation = format!("{:?} {} {state:?} {on}", pv.policy, pv.paused);
        let world = world().fast("a", &disk(1)).pv(pv.clone());
        world.cleanup_on(pv, state, on).expect(&situation, expected);
    }
}

#[test]
fn plan_is_made_again_when_a_step_or_a_failed_write_is_due() {
    let basis = order(&device().plan()).unwrap().basis;
    let wakes_at = |world: World| world.plan().wake_at.map(|at| at.as_secs());
    let told_later = CleanupState::Blocked {
        reason: "a pod uses it".into(),
        notify_at: Some(Duration::from_secs(110)),
        retry_at: Duration::from_secs(130),
    };
    for (state, expected) in [
        (CleanupState::Wiping, None),
        (blocked_silently(130), Some(130)),
        (told_later, Some(110)),
        (blocked(130), Some(130)),
        (failed_until(130), Some(130)),
        (wiped(Some("no"), 130), Some(130)),
    ] {
        let situation = format!("{state:?}");
        let world = device().cleanup_on(&committed(), state, basis);
        assert_eq!(wakes_at(world), expected, "{situation}");
    }
    let failed = with(device(), |world| {
        world.snapshot.ledger.writes.fail("pv-b", true, world.snapshot.now);
    });
    assert_eq!(wakes_at(failed), Some(101));
}

#[test]
fn each_state_of_a_job_has_its_step() {
    let pv = committed();
    let change = |state, change: fn(&mut JobView)| with(job(state), change);
    let delete = "delete Job cleanup-pv-a";
    let wait = "track pv-a as Waiting";
    let in_the_way = &[delete, wait, "a is Waiting"][..];
    let pending = &[wait, "a is Waiting"][..];
    let clean = &["clean pv-a", "a is Due"][..];
    let failed = &["VolumeFailedDelete of pv-a", "track pv-a as Failed", "a is CleaningFailed"][..];
    let running = &["disown Job cleanup-pv-a", "track pv-a as JobRunning", "a is Cleaning"][..];
    let good = |job: &mut JobView| job.cleaner = Some("quick".into());
    let cleaner = with_jobs(device()).config.classes["fast"].cleaner.to_string();
    let done = with(job(JobState::Succeeded), |job| job.cleaner = Some(cleaner));
    for (on, job, expected) in [
        (true, change(JobState::Running, |_| ()), running),
        (false, change(JobState::Running, |_| ()), running),
        (true, change(JobState::Running, |job| job.owned = false), &running[1..]),
        (true, change(JobState::Running, |job| job.deleting = true), pending),
        (
            true,
            change(JobState::Running, |job| job.claim_uid = Some("old".into())),
            &["cancel the Job of uid-pv-a", wait, "a is Waiting"],
        ),
        (true, change(JobState::Pending, |_| ()), pending),
        (false, change(JobState::Pending, |_| ()), in_the_way),
        (true, change(JobState::Pending, |job| job.identity = None), in_the_way),
        (true, done.clone(), clean),
        (false, done, clean),
        (true, change(JobState::Succeeded, good), in_the_way),
        (true, change(failed_job(), |_| ()), failed),
        (false, change(failed_job(), |_| ()), in_the_way),
    ] {
        let situation = format!("{on} {job:?}");
        let mut world = device().job(job);
        world.config.use_job_for_cleaning = on;
        world.expect(&situation, expected);
    }
    // Its template is another one. Its own date is of a clock that may be wrong.
    for (waited, expected) in [(29, pending), (30, in_the_way)] {
        let old = change(JobState::Pending, |job| {
            job.created_at = Some(jiff::Timestamp::UNIX_EPOCH);
        });
        let world = with_jobs(device()).job(old).cleanup(&pv, waiting("to start"));
        let since = world.snapshot.now.saturating_sub(Duration::from_secs(waited));
        let world = world.change_cleanup(&pv, |cleanup| cleanup.since = since);
        world.expect("another template", expected);
    }
    // What the Job says is checked, and it is deleted before the PV is released.
    let done = |state| with_jobs(device()).job(job(JobState::Succeeded)).cleanup(&pv, state);
    done(wiped(None, 100)).expect("wiped", &[delete, "a is Cleaning"]);
    let gone = with(job(JobState::Succeeded), |job| job.deleting = true);
    let waits = with_jobs(device()).job(gone).cleanup(&pv, wiped(None, 100));
    waits.clone().expect("the Job is being deleted", &["a is Cleaning"]);
    waits
        .change_cleanup(&pv, |cleanup| cleanup.since = Duration::ZERO)
        .expect("for 100 s", &["a is Cleaning"]);
}

#[test]
fn the_oldest_releases_get_the_slots_and_a_rotating_disk_has_one() {
    let at = |name: &str, second| {
        let pv = pv(&format!("pv-{name}"), &format!("/mnt/fast/{name}"), &fs(second));
        with(released(pv), |pv| {
            pv.released_at = Some(jiff::Timestamp::from_second(second.into()).unwrap());
        })
    };
    let mut world = world();
    for (name, second) in [("a", 3), ("b", 2), ("c", 1)] {
        world = world.fast(name, &fs(second)).pv(at(name, second));
    }
    world.config.max_concurrent_cleanups = NonZeroU16::new(2).unwrap();
    let wait = "track pv-a as Waiting";
    world.expect(
        "two at a time",
        &["clean pv-b", "clean pv-c", "b is Due", "c is Due", wait, "a is Waiting"],
    );
    let waits = CleanupState::Waiting { reason: FOR_A_SLOT.into(), job: None };
    let busy = world.cleanup(&at("b", 2), CleanupState::Wiping);
    let busy = busy.cleanup(&at("a", 3), waits);
    let cleaning = ["clean pv-c", "c is Due", "b is Cleaning", wait, "a is Waiting"];
    busy.expect("one is at work", &cleaning);
    let failed = busy.clone().cleanup(&at("a", 3), failed_until(1));
    failed.expect("it failed", &["clean pv-c", "c is Due", "b is Cleaning", "a is Due"]);
    let volumes = &failed.plan().classes[0].volumes;
    assert_eq!(volumes[0].detail.as_deref(), Some("the next attempt waits for a permit"));
    let stalled = busy.change_cleanup(&at("b", 2), |cleanup| cleanup.stalled = true);
    stalled.expect(
        "it stands still",
        &["clean pv-c", "c is Due", "b is Cleaning", "clean pv-a", "a is Due"],
    );
}

#[test]
fn a_release_at_work_holds_no_slot_and_a_created_job_does() {
    let pv = committed();
    let other = released(self::pv("pv-b", "/mnt/fast/b", &fs(2)));
    let mut world = device().fast("b", &fs(2)).pv(other);
    world.config.max_concurrent_cleanups = NonZeroU16::MIN;
    let releasing = world.clone().cleanup(&pv, wiped(None, 100));
    releasing
        .change_cleanup(&pv, |cleanup| cleanup.running = true)
        .expect("released", &["a is Cleaning", "clean pv-b", "b is Due"]);
    let created = blocked_silently(101);
    let basis = order(&device().plan()).unwrap().basis;
    let slot = "track pv-b as Waiting";
    let mut world = world.cleanup_on(&pv, created, basis);
    world.expect("created", &["a is Waiting", slot, "b is Waiting"]);
    world = world.change_cleanup(&pv, |cleanup| {
        cleanup.since = Duration::ZERO;
        cleanup.state = blocked_silently(999);
    });
    world.snapshot.now = Duration::from_mins(2);
    let free = ["a is Waiting", "clean pv-b", "b is Due"];
    world.expect("it has not been seen for two minutes", &free);
}

#[test]
fn released_pv_that_keeps_our_finalizer_is_decided_again() {
    let pv = with(terminating(released(pv("pv-a", "/mnt/fast/a", &fs(1)))), |pv| {
        pv.finalizers = vec![FINALIZER.into()];
    });
    let mut world = world().fast("a", &fs(1)).cleanup(&pv, CleanupState::Released).pv(pv);
    world.expect("the watch lags", &["a is Cleaned"]);
    world.snapshot.now += Duration::from_secs(10);
    world.expect("it is seen again", &["forget uid-pv-a", "a is Cleaned"]);
}
