//! What is asked of the API server about Jobs, and what becomes of it when it does not answer.

use super::*;

#[test]
fn without_permission_to_create_jobs_nothing_is_cleaned_and_it_is_named() {
    let stage = or_skip!(stage_with_jobs());
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let denied = stage.faults().on(Verb::Create).resource("jobs").forbid();
    let mut provisioner = stage.provisioner();
    let bound = release_device(&stage, &device, &path);
    let event = stage.event("PermissionMissing", "create jobs.batch");
    assert!(event.contains("deploy/rbac.yaml"), "{event}");
    let right = "missing_permission{resource=\"jobs.batch\",verb=\"create\"}";
    stage.eventually("the metric says so", || metric(&mut provisioner, right) == Some(1));
    assert_eq!(secrets_on(device.path()).len(), 4, "it is not done in the process instead");
    denied.clear();
    stage.within(Duration::from_secs(30), "a Job cleans it", || {
        secrets_on(device.path()).is_empty()
    });
    offered_again(&stage, &path, &bound);
    assert_eq!(metric(&mut provisioner, right), Some(0));
}

#[test]
fn answers_that_are_lost_make_no_second_job_and_no_second_wipe() {
    let stage = or_skip!(stage_with_jobs());
    let (held, device, path) = Held::volume(&stage);
    // It is made, and that is not heard of; it is deleted, and that is not heard of; nor is it read.
    let faults = [Verb::Create, Verb::Delete].map(|verb| {
        let lost = stage.faults().on(verb).resource("jobs").times(1);
        lost.reset_after()
    });
    let unread = stage.faults().on(Verb::Get).resource("jobs").times(2);
    let unread = unread.answer(Answer::code(500));
    let _provisioner = stage.provisioner();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    held.go_on();
    stage.within(Duration::from_secs(30), "it is offered again", || {
        let pv = stage.pvs_at(&path).pop()?;
        (pv.metadata.uid != bound.metadata.uid).then_some(())
    });
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(held.ran().len(), 1);
    assert!(job(&stage, &bound).is_none());
    assert_eq!(faults.map(|fault| fault.hits()), [1, 1]);
    assert_eq!(unread.hits(), 2);
}

/// Neither before there is anything to clean nor afterwards.
#[test]
fn jobs_are_watched_where_there_are_any_and_listed_once_elsewhere() {
    for on in [true, false] {
        let stage = or_skip!(stage_with_jobs());
        stage.configure("useJobForCleaning", if on { "true" } else { "false" });
        let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
        let _provisioner = stage.provisioner();
        let bound = release_device(&stage, &device, &path);
        offered_again(&stage, &path, &bound);
        let count = |verb: Verb| {
            let all = stage.requests().all();
            let of_jobs = all.iter().filter(|r| r.verb == verb && r.resource == "jobs");
            let selects = |path: &str| path.contains("kubernetes.io%2Fhostname%3D");
            assert!(of_jobs.clone().all(|r| selects(&r.path)));
            of_jobs.count()
        };
        assert_eq!((count(Verb::List), count(Verb::Watch)), (1, usize::from(on)));
    }
}
