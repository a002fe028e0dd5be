//! Jobs that fail, whose results are refused, or that are foreign.

use super::*;

#[test]
fn a_refused_release_after_a_job_is_reported_and_makes_no_other_job() {
    let stage = or_skip!(stage_with_jobs());
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let _provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &path));
    scribble(device.path());
    let fault = stage.faults().on(Verb::Patch).resource("persistentvolumes");
    // Two commits precede it: before the Job is created, and before its result is accepted.
    let fault = fault.name(&name(&bound)).skip(2);
    let refused = fault.answer(Answer::code(422).message("a policy keeps finalizers"));
    stage.delete_claim("claim");
    let text = stage.event("VolumeFailedDelete", "a policy keeps finalizers");
    assert!(text.contains(&format!("{} is clean", path.display())), "{text}");
    stage.eventually("it is tried again", || refused.hits() >= 4);
    assert!(job(&stage, &bound).is_none(), "the Job is gone");
    refused.clear();
    offered_again(&stage, &path, &bound);
    assert_eq!(made_jobs(&stage), 1);
}

#[test]
fn fault_13_a_failed_job_stays_and_is_reported_once_until_it_is_deleted() {
    let stage = or_skip!(stage_with_jobs());
    let dir = stage.sandbox.path().display().to_string();
    let (device, path) = cleaned_by(
        &stage,
        &format!(
            "echo $$ >>{dir}/ran; [ -e {dir}/fixed ] || exit 3\n\
             dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=32 conv=notrunc status=none\n"
        ),
    );
    let ran = || lines(&stage.sandbox.path().join("ran")).len();
    let mut provisioner = stage.provisioner();
    let bound = release_device(&stage, &device, &path);
    stage.within(GIVEN_UP, "the Job has failed", || {
        has_condition(&job(&stage, &bound)?, "Failed").then_some(())
    });
    let shown = format!("{}/{}", stage.namespace(), job_name(&name(&bound)));
    let remedy =
        format!("kubectl --namespace {} delete job {}", stage.namespace(), job_name(&name(&bound)));
    let event = stage.event("VolumeFailedDelete", &shown);
    assert!(event.contains("BackoffLimitExceeded") && event.contains(&remedy), "{event}");
    stage.eventually("the status says so", || {
        let volume = status_of(&mut provisioner, &path);
        let error = volume["cleanup"]["lastError"].as_str().unwrap_or_default();
        volume["state"] == "CleaningFailed" && error.contains(&remedy)
    });
    let tries = ran();
    stage.still(&mut provisioner, "nothing is tried again", || {
        job(&stage, &bound).is_some() && ran() == tries && secrets_on(device.path()).len() == 4
    });
    assert_eq!(total(&mut provisioner, "delete_failed_total", "job"), 1);
    assert_eq!(metric(&mut provisioner, "proctable_failed"), Some(1));
    let failures = stage.events("VolumeFailedDelete");
    assert_eq!(failures.len(), 1, "{failures:?}");

    // A second failure is reported again.
    delete_job(&stage, &bound);
    stage.within(GIVEN_UP, "the second failure is counted", || {
        total(&mut provisioner, "delete_failed_total", "job") == 2
    });
    let tries = ran();

    // Its successor reports it as well.
    provisioner.kill();
    let mut successor = stage.provisioner();
    stage.eventually("it is known to have failed", || {
        status_of(&mut successor, &path)["state"] == "CleaningFailed"
    });
    fs::write(stage.sandbox.path().join("fixed"), "").unwrap();
    delete_job(&stage, &bound);
    offered_again(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!((ran(), made_jobs(&stage)), (tries + 1, 3));
}

/// Its image may be a foreign one.
#[test]
fn a_jobs_success_is_verified() {
    let stage = or_skip!(stage_running("/bin/true", None));
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let mut provisioner = stage.provisioner();
    let bound = release_device(&stage, &device, &path);
    let event = stage.event("VolumeFailedDelete", "is not zero");
    assert!(event.contains(&job_name(&name(&bound))), "{event}");
    stage.eventually("the Job goes, for the next try to make another", || {
        job(&stage, &bound).is_none()
    });
    let now = stage.pv(&name(&bound)).unwrap();
    assert!(is_terminating(&now) && is_protected(&now));
    assert_eq!(secrets_on(device.path()).len(), 4);
    assert_eq!(total(&mut provisioner, "delete_failed_total", "job"), 1);
    assert_eq!(total(&mut provisioner, "delete_total", "job"), 0);
}

/// The method `quick` guarantees only that no signature is left.
#[test]
fn data_that_a_quick_job_leaves_is_reported() {
    let stage = or_skip!(stage_running("/bin/true", None));
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "quick" }));
    let _provisioner = stage.provisioner();
    let bound = release_device(&stage, &device, &path);
    stage.event("VolumeDataLeft", &path.display().to_string());
    offered_again(&stage, &path, &bound);
    assert_eq!(made_jobs(&stage), 1);
}

/// A Job by the name of ours: of an earlier claim, or the Go provisioner's, which knows no claims.
#[test]
fn fault_2_another_ones_job_is_deleted_and_waited_for() {
    for (annotations, run) in [
        (json!({}), "hold"),
        (json!({ "local-volume-provisioner/claim-uid": "an earlier claim's" }), "succeed"),
        (json!({}), "succeed"),
    ] {
        let stage = or_skip!(stage_with_jobs());
        let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
        let _provisioner = stage.provisioner();
        let bound = stage.used(&stage.bind("claim", &path));
        scribble(device.path());
        let labels = json!({
            LABEL_HOSTNAME: stage.node(), "pv": name(&bound), "pvuuid": uid(&bound),
        });
        let mut annotations = annotations;
        annotations["device"] = json!(path);
        annotations["start-time"] = json!("2026-11-21T10:00:00.123456789Z");
        annotations["local-volume-provisioner/identity"] = json!(identity(&bound));
        let theirs = json!({
            "metadata": { "name": job_name(&name(&bound)), "labels": labels, "annotations": annotations },
            "spec": { "template": {
                "metadata": { "annotations": { "control-plane/run": run } },
                "spec": {
                    "restartPolicy": "OnFailure",
                    "containers": [{ "name": "cleaner", "image": "go", "command": ["/scripts/shred.sh"] }],
                    "nodeSelector": { LABEL_HOSTNAME: stage.node() },
                },
            } },
        });
        let theirs = stage.create(&jobs(&stage), theirs).metadata.uid;
        stage.delete_claim("claim");
        stage.eventually("their Job is deleted", || {
            let now = job(&stage, &bound)?;
            (now["metadata"]["uid"] != json!(theirs)).then_some(())
        });
        offered_again(&stage, &path, &bound);
        assert!(secrets_on(device.path()).is_empty(), "{run}");
        let mut failures = stage.events("VolumeFailedDelete");
        // The provisioner may see the Job before the release, while it is for nothing.
        failures.retain(|it| !it.contains("may have started before it was deleted"));
        assert!(failures.is_empty(), "its result was not used: {failures:?}");
    }
}

/// The Job is made for one disk, and when its pod can start at last another one is there.
#[test]
fn a_disk_that_was_exchanged_before_the_job_ran_is_left_alone() {
    let stage = or_skip!(stage_with_jobs());
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let _provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &path));
    taint_node(&stage, &json!([{ "key": "full", "effect": "NoSchedule" }]));
    scribble(device.path());
    stage.delete_claim("claim");
    stage.eventually("the Job is made", || job(&stage, &bound));
    let other = raw(&stage);
    scribble(other.path());
    fs::remove_file(&path).unwrap();
    link(&other, path.parent().unwrap(), "disk");
    stage.event("VolumeIdentityMismatch", "another disk is at its path");
    stage.eventually("no Job is left", || job(&stage, &bound).is_none());
    taint_node(&stage, &json!(null));
    for disk in [&device, &other] {
        assert_eq!(secrets_on(disk.path()).len(), 4);
    }
    assert_eq!(stage.pv(&name(&bound)).unwrap().metadata.uid, bound.metadata.uid);
}

#[test]
fn job_tolerations_bring_it_to_a_tainted_node_and_a_disk_in_use_there_is_waited_for() {
    let stage = or_skip!(stage_with_jobs());
    stage.configure("jobTolerations", "- {key: full, operator: Exists}\n");
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let _provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &path));
    let (full, fuller) = (
        json!({ "key": "full", "effect": "NoSchedule" }),
        json!({ "key": "fuller", "effect": "NoSchedule" }),
    );
    taint_node(&stage, &json!([full, fuller]));
    scribble(device.path());
    stage.delete_claim("claim");
    stage.eventually("the Job is made", || job(&stage, &bound));
    let user = device.open_alone().unwrap();
    taint_node(&stage, &json!([full]));
    stage.eventually("its pod runs", || {
        (job(&stage, &bound)?["status"]["ready"] == 1).then_some(())
    });
    stage.eventually("it is about to clean", || {
        let files = walkdir::WalkDir::new("/mnt/pods").into_iter().flatten();
        let mut logs = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        logs.any(|log| log.contains("cleaning the device"))
    });
    assert_eq!(secrets_on(device.path()).len(), 4);
    drop(user);
    offered_again(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(made_jobs(&stage), 1);
}
