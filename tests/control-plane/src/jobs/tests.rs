//! Jobs whose pods do as they are told, on a real store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    controllers::{
        ControllerOptions,
        conditions::condition,
        object::Key,
        tests::{World, but},
    },
    meta,
    pods::{HOLD_TERMINATION, RUN},
    resource::{JOBS, PODS},
    store::{DeleteOptions, Part},
};

/// Failures are followed by the next try at once.
fn world() -> World {
    let mut world = World::with(ControllerOptions {
        back_off: Duration::ZERO,
        ..ControllerOptions::default()
    });
    world.add_node("n1");
    world
}

fn job(run: &str, policy: &str) -> Value {
    json!({
        "metadata": {"name": "j"},
        "spec": {"template": {
            "metadata": {"annotations": {RUN: run}, "labels": {"app": "a"}},
            "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]},
        }},
    })
}

fn pods(world: &World) -> Vec<Arc<Value>> {
    world.store.list(&PODS, Some("default")).items
}

fn status(world: &World) -> Value {
    world.get(&JOBS, "j").unwrap()["status"].clone()
}

fn has(world: &World, kind: &str) -> bool {
    condition(&world.get(&JOBS, "j").unwrap(), kind).is_some()
}

/// The reason why it failed.
fn failure(world: &World) -> String {
    let job = world.get(&JOBS, "j").unwrap();
    let failed = condition(&job, "Failed").expect("it failed");
    assert_eq!(
        condition(&job, "FailureTarget").unwrap()["reason"],
        failed["reason"]
    );
    failed["reason"].as_str().unwrap().to_owned()
}

fn tell(world: &mut World, run: &str) {
    let pod = meta::name(&pods(world)[0]).to_owned();
    world.change(&PODS, &pod, |p| {
        p["metadata"]["annotations"] = json!({RUN: run});
    });
}

fn with_policy(policy: &str) -> DeleteOptions {
    DeleteOptions {
        propagation_policy: Some(policy.to_owned()),
        ..DeleteOptions::default()
    }
}

#[test]
fn a_pod_is_made_of_the_template() {
    let mut world = world();
    let job = world.create(&JOBS, job("", "Never"));
    let [pod] = &pods(&world)[..] else { panic!() };
    let uid = meta::uid(&job);
    let metadata = &pod["metadata"];
    assert!(meta::name(pod).starts_with("j-"));
    assert_eq!(metadata["generateName"], "j-");
    assert_eq!(
        metadata["labels"],
        json!({
            "app": "a",
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": "j",
            "controller-uid": uid,
            "job-name": "j",
        })
    );
    assert_eq!(
        metadata["ownerReferences"],
        json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }])
    );
    assert_eq!(
        metadata["finalizers"],
        json!(["batch.kubernetes.io/job-tracking"])
    );
    assert_eq!(pod["spec"]["containers"][0]["image"], "i");
    assert_eq!(
        job["spec"]["selector"]["matchLabels"],
        json!({"batch.kubernetes.io/controller-uid": uid})
    );
    let status = status(&world);
    assert_eq!(
        [&status["active"], &status["ready"], &status["terminating"]],
        [1, 1, 0]
    );
    assert!(status["startTime"].is_string());
    assert_eq!(world.reasons("j"), ["SuccessfulCreate"]);
}

#[test]
fn success() {
    for policy in ["Never", "OnFailure"] {
        let mut world = world();
        world.create(&JOBS, job("succeed", policy));
        assert!(has(&world, "SuccessCriteriaMet") && has(&world, "Complete"));
        let status = status(&world);
        assert_eq!(status["succeeded"], 1);
        assert_eq!([&status["active"], &status["failed"]], [&Value::Null; 2]);
        assert_eq!([&status["ready"], &status["terminating"]], [0, 0]);
        assert_eq!(status["uncountedTerminatedPods"], json!({}));
        assert!(status["completionTime"].is_string());
        let [pod] = &pods(&world)[..] else { panic!() };
        assert_eq!(pod["status"]["phase"], "Succeeded");
        assert_eq!(meta::finalizers(pod).count(), 0);
        assert_eq!(world.reasons("j"), ["Completed", "SuccessfulCreate"]);
        let version = meta::resource_version(&world.get(&JOBS, "j").unwrap());
        world.resync();
        assert_eq!(
            meta::resource_version(&world.get(&JOBS, "j").unwrap()),
            version,
            "and it rests"
        );
    }
}

#[test]
fn several_completions_few_at_a_time() {
    let mut world = world();
    let five = but(job("succeed", "Never"), |j| {
        j["spec"]["completions"] = json!(5);
        j["spec"]["parallelism"] = json!(2);
    });
    world.create(&JOBS, five);
    assert_eq!(status(&world)["succeeded"], 5);
    assert_eq!(pods(&world).len(), 5);
    assert!(has(&world, "Complete"));
}

#[test]
fn a_failed_pod_is_replaced_until_the_limit() {
    for (limit, tries) in [(json!(null), 7), (json!(2), 3), (json!(0), 1)] {
        let mut world = world();
        let failing = but(job("fail", "Never"), |j| j["spec"]["backoffLimit"] = limit);
        world.create(&JOBS, failing);
        assert_eq!(failure(&world), "BackoffLimitExceeded");
        assert_eq!(status(&world)["failed"], tries);
        assert_eq!(pods(&world).len(), tries, "they stay to be looked at");
        assert!(
            pods(&world)
                .iter()
                .all(|p| meta::finalizers(p).count() == 0)
        );
        assert!(status(&world)["completionTime"].is_null());
        assert!(!has(&world, "Complete"));
    }
}

#[test]
fn a_failed_container_is_started_again_in_its_pod_until_the_limit() {
    for (limit, restarts) in [(6, 6), (2, 2), (0, 1)] {
        let mut world = world();
        let failing = but(job("fail", "OnFailure"), |j| {
            j["spec"]["backoffLimit"] = json!(limit);
        });
        // The pod shows its restarts only as long as it is there.
        let held = but(failing, |j| {
            j["spec"]["template"]["metadata"]["annotations"][HOLD_TERMINATION] = json!("true");
        });
        world.create(&JOBS, held);
        assert!(has(&world, "FailureTarget") && !has(&world, "Failed"));
        let [pod] = &pods(&world)[..] else { panic!() };
        assert!(meta::is_terminating(pod));
        assert_eq!(
            pod["status"]["containerStatuses"][0]["restartCount"],
            restarts
        );
        assert_eq!(status(&world)["terminating"], 1);
        tell(&mut world, "fail");
        assert_eq!(failure(&world), "BackoffLimitExceeded");
        assert_eq!(status(&world)["failed"], 1);
        assert!(pods(&world).is_empty());
    }
}

#[test]
fn two_failures_and_a_success() {
    let mut world = World::with(ControllerOptions {
        back_off: Duration::from_mins(10),
        ..ControllerOptions::default()
    });
    world.add_node("n1");
    world.create(&JOBS, job("fail", "OnFailure"));
    let pod = pods(&world)[0].clone();
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(container["restartCount"], 1, "the first restart is at once");
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(
        [&status(&world)["active"], &status(&world)["ready"]],
        [1, 0]
    );
    tell(&mut world, "succeed");
    assert!(!has(&world, "Complete"), "not before the back-off is over");

    world.restart();
    world.resync();
    assert!(has(&world, "Complete"));
    let pod = pods(&world)[0].clone();
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1);
    assert_eq!(status(&world)["succeeded"], 1);
    assert!(status(&world)["failed"].is_null());
}

#[test]
fn a_replacement_waits() {
    let mut world = World::with(ControllerOptions {
        back_off: Duration::from_millis(100),
        ..ControllerOptions::default()
    });
    world.add_node("n1");
    let begun = Instant::now();
    world.create(&JOBS, job("fail", "Never"));
    // No look at it in between makes it shorter.
    world.resync();
    // Longer after the second.
    for (tries, waited) in [(2, 100), (3, 100 + 200)] {
        while pods(&world).len() < tries {
            assert!(begun.elapsed() < Duration::from_secs(20), "no pod {tries}");
            std::thread::sleep(Duration::from_millis(1));
            world.settle();
        }
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(waited), "{tries}: {took:?}");
    }
}

#[test]
fn deletion() {
    for (policy, held) in [("Foreground", true), ("Background", false)] {
        let mut world = world();
        let held_pod = but(job("", "Never"), |j| {
            j["spec"]["template"]["metadata"]["annotations"] = json!({HOLD_TERMINATION: "true"});
        });
        world.create(&JOBS, held_pod);
        world.delete_with(&JOBS, "j", &with_policy(policy));
        let [pod] = &pods(&world)[..] else { panic!() };
        assert!(meta::is_terminating(pod), "{policy}");
        assert_eq!(meta::finalizers(pod).count(), 0, "{policy}");
        assert_eq!(world.get(&JOBS, "j").is_some(), held, "{policy}");
        tell(&mut world, "");
        assert!(pods(&world).is_empty(), "{policy}");
        assert!(world.get(&JOBS, "j").is_none(), "{policy}");
    }

    let mut world = world();
    world.create(&JOBS, job("", "Never"));
    world.delete(&JOBS, "j");
    assert!(world.get(&JOBS, "j").is_none());
    let [pod] = &pods(&world)[..] else { panic!() };
    assert_eq!(pod["status"]["phase"], "Running", "an orphan runs on");
    assert_eq!(meta::finalizers(pod).count(), 0);
    assert!(pod["metadata"]["ownerReferences"].is_null());
}

#[test]
fn a_deleted_pod_is_a_failed_one_and_is_replaced() {
    let mut world = world();
    world.create(&JOBS, job("", "Never"));
    let first = meta::name(&pods(&world)[0]).to_owned();
    world.delete(&PODS, &first);
    let [pod] = &pods(&world)[..] else { panic!() };
    assert_ne!(meta::name(pod), first);
    assert_eq!(
        [&status(&world)["active"], &status(&world)["failed"]],
        [1, 1]
    );
}

#[test]
fn a_deadline() {
    let mut world = world();
    let limited = but(job("", "OnFailure"), |j| {
        j["spec"]["activeDeadlineSeconds"] = json!(60);
    });
    world.create(&JOBS, limited);
    world.resync();
    assert!(!has(&world, "FailureTarget"));
    world.edit(&JOBS, "j", Part::Status, |j| {
        j["status"]["startTime"] = json!(meta::in_seconds(-61));
    });
    world.settle();
    assert_eq!(failure(&world), "DeadlineExceeded");
    assert_eq!(status(&world)["failed"], 1);
    assert!(pods(&world).is_empty());
}

#[test]
fn a_suspended_job_has_no_pod() {
    let mut world = world();
    let suspended = but(job("", "Never"), |j| j["spec"]["suspend"] = json!(true));
    world.create(&JOBS, suspended);
    assert!(has(&world, "Suspended") && pods(&world).is_empty());
    assert!(status(&world)["startTime"].is_null());
    world.change(&JOBS, "j", |j| j["spec"]["suspend"] = json!(false));
    assert!(!has(&world, "Suspended"));
    assert_eq!(pods(&world).len(), 1);
    assert!(status(&world)["startTime"].is_string());
    world.change(&JOBS, "j", |j| j["spec"]["suspend"] = json!(true));
    assert!(has(&world, "Suspended") && pods(&world).is_empty());
    let told = [
        "Resumed",
        "SuccessfulCreate",
        "SuccessfulDelete",
        "Suspended",
    ];
    assert_eq!(world.reasons("j"), told);
}

#[test]
fn a_job_goes_some_time_after_its_end() {
    for (ttl, stays) in [(json!(0), false), (json!(3600), true), (json!(null), true)] {
        let mut world = world();
        let short = but(job("succeed", "Never"), |j| {
            j["spec"]["ttlSecondsAfterFinished"] = ttl.clone();
        });
        world.create(&JOBS, short);
        assert_eq!(world.get(&JOBS, "j").is_some(), stays, "{ttl}");
        assert_eq!(pods(&world).len(), usize::from(stays), "{ttl}");
    }
}

#[test]
fn a_controller_that_starts_over_counts_every_pod_once() {
    let mut world = world();
    let three = but(job("succeed", "Never"), |j| {
        j["spec"]["completions"] = json!(3);
    });
    world.put(&JOBS, three);
    for _ in 0..50 {
        world.manager.work();
        world.restart();
    }
    world.resync();
    assert_eq!(status(&world)["succeeded"], 3);
    assert_eq!(pods(&world).len(), 3);
    let counted = |p: &Arc<Value>| meta::finalizers(p).count() == 0;
    assert!(pods(&world).iter().all(counted));
}

#[test]
fn a_pod_that_no_node_wants_waits_and_says_so() {
    let mut world = world();
    let elsewhere = but(job("succeed", "Never"), |j| {
        j["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n2"});
    });
    world.create(&JOBS, elsewhere);
    let pod = pods(&world)[0].clone();
    assert_eq!(pod["status"]["phase"], "Pending");
    let why = crate::controllers::object::items(&pod["status"]["conditions"])
        .find(|c| c["type"] == "PodScheduled")
        .unwrap();
    assert_eq!([&why["status"], &why["reason"]], ["False", "Unschedulable"]);
    assert_eq!(world.reasons(&Key::of(&pod).name), ["FailedScheduling"]);
    assert_eq!(status(&world)["active"], 1);
    world.add_node("n2");
    assert!(has(&world, "Complete"));
}
