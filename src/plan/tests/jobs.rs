//! Cleaning by Jobs: who is cleaned by one, and what becomes of Jobs whose PVs are gone.

use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;

use super::kit::*;
use crate::names::{FINALIZER, job_name};
use crate::plan::{Action, CleanOrder, CleanupState, JobTerms, Plan};
use crate::types::VolumeMode;
use crate::view::{JobState, JobView, PvView, ReclaimPolicy};

/// Our Job for a PV's tenancy, with its device at `/ours/<class>/<entry>`.
fn job_of(pv: &PvView, state: JobState) -> JobView {
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
        made_at: None,
        deleting: false,
        state,
    }
}

fn failed_job() -> JobState {
    JobState::Failed("BackoffLimitExceeded".into())
}

fn with_jobs(world: World) -> World {
    world.config(|config| config.use_job_for_cleaning = true)
}

/// A released device, as the kubelet formats them.
fn due_device() -> PvView {
    released(pv("pv-a", "/mnt/fast/a", &disk(1)))
}

fn order(plan: &Plan) -> Option<&CleanOrder> {
    plan.actions.iter().find_map(|action| match action {
        Action::Clean(order) => Some(&**order),
        _ => None,
    })
}

#[test]
fn devices_are_cleaned_by_jobs_and_what_is_mounted_is_not() {
    let toleration = Toleration {
        key: Some("disks".into()),
        ..Toleration::default()
    };
    for (candidate, on, is) in [
        (disk(1), true, true),
        (disk(1), false, false),
        (fs(1), true, false),
    ] {
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
        world.snapshot.has_job_image = false;
        world.expect("no image", &expected);
    }
    // What is mounted needs none.
    let mounted = released(pv("pv-a", "/mnt/fast/a", &fs(1)));
    let mut world = with_jobs(world().fast("a", &fs(1)).pv(mounted));
    world.snapshot.has_job_image = false;
    world.expect("no image", &["clean pv-a", "a is Due"]);
}

#[test]
fn jobs_of_pvs_that_are_gone_go_unless_they_are_at_work() {
    let gone = pv("pv-a", "/mnt/fast/a", &disk(1));
    let deleting = with(job_of(&gone, JobState::Pending), |job| job.deleting = true);
    let elsewhere = with(job_of(&gone, failed_job()), |job| {
        job.device = Some("/ours/old/a".into());
    });
    let free = &[
        "delete Job cleanup-pv-a",
        "create /mnt/fast/a",
        "a is Creating",
    ][..];
    let waits = "a is Skipped as CleanupRunning";
    for (job, expected) in [
        (
            job_of(&gone, JobState::Pending),
            &["delete Job cleanup-pv-a", waits][..],
        ),
        (
            job_of(&gone, JobState::Succeeded),
            &["delete Job cleanup-pv-a", waits],
        ),
        (
            job_of(&gone, failed_job()),
            &["delete Job cleanup-pv-a", waits],
        ),
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
fn jobs_of_pvs_that_live_are_left_to_their_cleanups() {
    let due = due_device();
    let earlier = with(job_of(&due, JobState::Succeeded), |job| {
        job.claim_uid = Some("old".into());
    });
    for job in [
        job_of(&due, JobState::Running),
        job_of(&due, JobState::Succeeded),
        job_of(&due, failed_job()),
        earlier,
    ] {
        let situation = format!("{job:?}");
        let world = world().fast("a", &disk(1)).pv(due.clone()).job(job);
        with_jobs(world).expect(&situation, &["clean pv-a", "a is Due"]);
    }
    // Its PV went before it started, and whoever waits for it has not seen that yet.
    let job = job_of(&due, JobState::Pending);
    let world = with_jobs(world().fast("a", &disk(1)).job(job));
    let world = world.cleanup(&due, CleanupState::Waiting);
    world.expect(
        "a cleanup waits for it",
        &["delete Job cleanup-pv-a", "a is Skipped as CleanupRunning"],
    );
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
    let gone = |job: JobView| with(job, |job| job.deleting = true);
    for (pv, job, expected) in [
        (&kept, None, &["let pv-a go", "a is Terminating"][..]),
        (&kept, Some(JobState::Pending), &[off, "a is Terminating"]),
        (&kept, Some(JobState::Running), &[off, "a is Terminating"]),
        (&kept, Some(failed_job()), &[off, "a is Terminating"]),
        (
            &paused,
            Some(JobState::Pending),
            &[off, "CleaningPaused of pv-a", "a is Paused"],
        ),
        (
            &paused,
            Some(JobState::Running),
            &["CleaningPaused of pv-a", "a is Paused"],
        ),
        (
            &paused,
            Some(failed_job()),
            &["CleaningPaused of pv-a", "a is Paused"],
        ),
    ] {
        let situation = format!("{:?} {job:?}", pv.policy);
        let plain = with_jobs(world().fast("a", &disk(1)).pv(pv.clone()));
        let Some(job) = job.map(|state| job_of(pv, state)) else {
            plain.expect(&situation, expected);
            continue;
        };
        plain.clone().job(job.clone()).expect(&situation, expected);
        // It is deleted once, and waited for.
        let rest: Vec<_> = expected.iter().copied().filter(|it| *it != off).collect();
        plain.job(gone(job)).expect(&situation, &rest);
    }
}

/// The cleanup itself may wait for a permit, and look at nothing meanwhile.
#[test]
fn a_cleanup_that_waits_keeps_no_job_of_a_pv_that_is_not_to_be_cleaned() {
    let due = due_device();
    let kept = with(due.clone(), |pv| pv.policy = ReclaimPolicy::Retain);
    let paused = with(due.clone(), |pv| pv.paused = true);
    let consents = with(due.clone(), |pv| {
        pv.consent = Some(format!("forget:{}", pv.identity.clone().unwrap()));
    });
    let off = &["call Job cleanup-pv-a off", "a is Waiting"][..];
    for (pv, state, job, expected) in [
        (
            &due,
            CleanupState::Waiting,
            JobState::Pending,
            &["a is Waiting"][..],
        ),
        (&kept, CleanupState::Waiting, JobState::Pending, off),
        (&paused, CleanupState::Waiting, JobState::Pending, off),
        (&consents, CleanupState::Waiting, JobState::Pending, off),
        // What has begun comes to its end.
        (
            &paused,
            CleanupState::Waiting,
            JobState::Running,
            &["a is Waiting"],
        ),
        (
            &paused,
            CleanupState::Running,
            JobState::Pending,
            &["a is Cleaning"],
        ),
    ] {
        let situation = format!("{pv:?} {state:?} {job:?}");
        let world = with_jobs(world().fast("a", &disk(1)).pv(pv.clone()));
        let world = world.job(job_of(pv, job)).cleanup(pv, state);
        world.expect(&situation, expected);
    }
}

#[test]
fn what_a_job_failed_at_is_tried_again_as_soon_as_that_job_is_deleted() {
    let due = due_device();
    let world = with_jobs(world().fast("a", &disk(1)).pv(due.clone()));
    let basis = |world: &World| order(&world.plan()).unwrap().basis;
    let failed = world.clone().job(job_of(&due, failed_job()));
    let running = world.clone().job(job_of(&due, JobState::Running));
    assert_eq!(basis(&world), basis(&running));
    assert_ne!(basis(&world), basis(&failed));
    let state = CleanupState::Failed {
        retry_at: Duration::from_secs(200),
        basis: basis(&failed),
    };
    let stays = failed.cleanup(&due, state.clone());
    stays.expect("the failed Job is there", &["a is CleaningFailed"]);
    let deleted = world.cleanup(&due, state);
    deleted.expect("it was deleted", &["clean pv-a", "a is Due"]);
    assert_eq!(order(&deleted.plan()).unwrap().kind, VolumeMode::Block);
}
