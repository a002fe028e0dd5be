//! Cleaning by Jobs: who is cleaned by one, and what becomes of Jobs whose PVs are gone.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;

use super::kit::*;
use crate::names::{FINALIZER, job_name};
use crate::plan::job_object::fingerprint;
use crate::plan::{Action, CleanOrder, CleanupState, JobTerms, Plan};
use crate::view::{JobState, JobView, PvView, ReclaimPolicy};

/// Our Job for a PV's tenancy, with its device at `/ours/<class>/<entry>`.
pub(super) fn job_of(pv: &PvView, state: JobState) -> JobView {
    let tenancy = pv.tenancy();
    let path = pv.path().unwrap().as_str();
    JobView {
        name: job_name(&pv.name),
        uid: format!("job-of-{}", pv.name),
        resource_version: Some("1".into()),
        pv: Some(pv.name.clone()),
        pv_uid: Some(tenancy.pv_uid),
        claim_uid: Some(tenancy.claim_uid.unwrap_or_default()),
        device: Some(path.replacen("/mnt/", "/ours/", 1)),
        identity: pv.identity.clone(),
        cleaner: None,
        template: None,
        owned: true,
        created_at: None,
        deleting: false,
        state,
    }
}

pub(super) fn failed_job() -> JobState {
    JobState::Failed("BackoffLimitExceeded".into())
}

pub(super) fn with_jobs(world: World) -> World {
    world.config(|config| config.use_job_for_cleaning = true)
}

/// A released device, as the kubelet formats them.
pub(super) fn due_device() -> PvView {
    released(pv("pv-a", "/mnt/fast/a", &disk(1)))
}

pub(super) fn waiting(reason: &str) -> CleanupState {
    CleanupState::Waiting { reason: reason.into(), job: Some("storage/cleanup-pv-a".into()) }
}

pub(super) fn running() -> CleanupState {
    CleanupState::JobRunning { job: "storage/cleanup-pv-a".into() }
}

pub(super) fn committed() -> PvView {
    with(due_device(), |pv| {
        pv.deleting = true;
        pv.finalizers = vec![FINALIZER.into()];
    })
}

/// A device whose PV is Terminating and held by our finalizer.
pub(super) fn device() -> World {
    world().fast("a", &disk(1)).pv(committed())
}

pub(super) fn job(state: JobState) -> JobView {
    job_of(&committed(), state)
}

pub(super) fn order(plan: &Plan) -> Option<&CleanOrder> {
    plan.actions.iter().find_map(|action| match action {
        Action::Clean(order) => Some(&**order),
        _ => None,
    })
}

#[test]
fn devices_are_cleaned_by_jobs_and_what_is_mounted_is_not() {
    let toleration = Toleration { key: Some("disks".into()), ..Toleration::default() };
    for (candidate, on, is) in
        [(disk(1), true, true), (disk(1), false, false), (fs(1), true, false)]
    {
        let pv = released(pv("pv-a", "/mnt/fast/a", &candidate));
        let world = world().fast("a", &candidate).pv(pv).config(|config| {
            config.use_job_for_cleaning = on;
            config.job_tolerations = vec![toleration.clone()];
        });
        let plan = world.plan();
        // By the label's value, which is not this node's name.
        let terms = JobTerms {
            hostname: "host-1".into(),
            tolerations: vec![toleration.clone()],
            image: "example.com/lvp:1".into(),
            state_directory: None,
        };
        assert_eq!(order(&plan).unwrap().job, is.then_some(terms), "{on}");
    }
}

#[test]
fn without_an_image_nothing_is_cleaned_by_jobs_or_otherwise() {
    for (on, expected) in [
        (true, ["VolumeFailedDelete of pv-a", "a is Refused"]),
        (false, ["clean pv-a", "a is Due"]),
    ] {
        let mut world = world().fast("a", &disk(1)).pv(due_device());
        world.config.use_job_for_cleaning = on;
        world.snapshot.job_source = Arc::default();
        world.expect("no image", &expected);
    }
    // What is mounted needs none.
    let mounted = released(pv("pv-a", "/mnt/fast/a", &fs(1)));
    let mut world = with_jobs(world().fast("a", &fs(1)).pv(mounted));
    world.snapshot.job_source = Arc::default();
    world.expect("no image", &["clean pv-a", "a is Due"]);
}

#[test]
fn jobs_of_pvs_that_are_gone_go_unless_they_are_at_work() {
    let gone = pv("pv-a", "/mnt/fast/a", &disk(1));
    let deleting = with(job_of(&gone, JobState::Pending), |job| job.deleting = true);
    let elsewhere = with(job_of(&gone, failed_job()), |job| {
        job.device = Some("/ours/old/a".into());
    });
    let free = &["delete Job cleanup-pv-a", "create /mnt/fast/a", "a is Creating"][..];
    let waits = "a is Skipped as CleanupRunning";
    for (job, expected) in [
        (job_of(&gone, JobState::Pending), &["delete Job cleanup-pv-a", waits][..]),
        (job_of(&gone, JobState::Succeeded), &["delete Job cleanup-pv-a", waits]),
        (job_of(&gone, failed_job()), &["delete Job cleanup-pv-a", waits]),
        (job_of(&gone, JobState::Running), &[waits]),
        (deleting, &[waits]),
        (elsewhere, free),
    ] {
        // Also where Jobs are switched off by now.
        let situation = format!("{job:?}");
        let world = world().fast("a", &disk(1)).job(job);
        world.expect(&situation, expected);
        with_jobs(world).expect(&situation, expected);
    }
}

#[test]
fn a_pv_is_not_let_go_before_its_job_is_and_a_pause_calls_off_what_has_not_started() {
    let due = with(due_device(), |pv| {
        pv.deleting = true;
        pv.finalizers = vec![FINALIZER.into()];
    });
    let kept = with(due.clone(), |pv| pv.policy = ReclaimPolicy::Retain);
    let paused = with(due.clone(), |pv| pv.paused = true);
    let off = "call Job cleanup-pv-a off";
    let cancel = "cancel the Job of uid-pv-a";
    let gone = |job: JobView| with(job, |job| job.deleting = true);
    for (pv, job, expected) in [
        (&kept, None, &["let pv-a go", "a is Terminating"][..]),
        (&kept, Some(JobState::Pending), &[off, "a is Terminating"]),
        (&kept, Some(JobState::Running), &[cancel, "a is Terminating"]),
        (&kept, Some(failed_job()), &[off, "a is Terminating"]),
        (&paused, Some(JobState::Pending), &[off, "CleaningPaused of pv-a", "a is Paused"]),
        (&paused, Some(failed_job()), &["CleaningPaused of pv-a", "a is Paused"]),
    ] {
        let situation = format!("{:?} {job:?}", pv.policy);
        let plain = with_jobs(world().fast("a", &disk(1)).pv(pv.clone()));
        let Some(job) = job.map(|state| job_of(pv, state)) else {
            plain.expect(&situation, expected);
            continue;
        };
        plain.clone().job(job.clone()).expect(&situation, expected);
        // It is deleted once, and waited for.
        let rest = expected.iter().filter(|it| ![off, cancel].contains(it));
        let rest: Vec<_> = rest.copied().collect();
        plain.job(gone(job)).expect(&situation, &rest);
    }
}

#[test]
fn a_job_that_does_not_start_is_reported_and_holds_no_slot() {
    let pv = committed();
    let other = released(self::pv("pv-b", "/mnt/fast/b", &fs(2)));
    let world = with_jobs(device());
    let order = order(&world.plan()).cloned().unwrap();
    let terms = order.job.as_ref().unwrap();
    let template = fingerprint(&order, terms, &world.snapshot.job_source);
    let new = with(job(JobState::Pending), |job| job.template = Some(template));
    let mut world = with_jobs(device()).job(new).fast("b", &fs(2)).pv(other);
    world.config.max_concurrent_cleanups = NonZeroU16::MIN;
    let world = world.cleanup(&pv, waiting("for its Job"));
    let since = |seconds| {
        let world = world.clone();
        world.change_cleanup(&pv, |cleanup| cleanup.since = Duration::from_secs(seconds))
    };
    let mut recent = since(0);
    recent.snapshot.now = Duration::from_secs(119);
    let wait = "track pv-a as Waiting";
    let slot = "track pv-b as Waiting";
    recent.expect("new", &[wait, slot, "a is Waiting", "b is Waiting"]);
    let mut old = since(0);
    old.snapshot.now = Duration::from_mins(2);
    let stuck = "VolumeFailedDelete of pv-a";
    old.expect("old", &[wait, stuck, "clean pv-b", "a is Waiting", "b is Due"]);
}

#[test]
fn a_job_deleted_at_work_with_its_pv_is_reported() {
    let gone = committed();
    let world = world().fast("a", &disk(1)).cleanup(&gone, running());
    let offer = ["forget uid-pv-a", "create /mnt/fast/a", "a is Creating"];
    let partly = [&offer[..], &["VolumeFailedDelete of our Pod"]].concat();
    world.expect("the Job is gone, too", &partly);
    let running = world.clone().job(job(JobState::Running));
    running.expect("it is at work", &["a is Skipped as CleanupRunning"]);
    let ended = ["forget uid-pv-a", "delete Job cleanup-pv-a", "a is Skipped as CleanupRunning"];
    world.job(job(JobState::Succeeded)).expect("it has ended", &ended);
}

#[test]
fn a_pending_job_is_deleted_when_its_pv_is_not_to_be_cleaned_any_more() {
    let recycled = with(due_device(), |pv| pv.policy = ReclaimPolicy::Recycle);
    let world = world().fast("a", &disk(1)).pv(recycled);
    let found = words(&world.job(job(JobState::Pending)).plan());
    assert!(found.contains(&"call Job cleanup-pv-a off".to_owned()), "{found:?}");
}
