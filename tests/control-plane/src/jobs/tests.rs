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
        tests::{World, but},
    },
    meta,
    pods::{HOLD_TERMINATION, RUN},
    resource::{JOBS, PODS},
    store::{DeleteOptions, Part},
};

fn world_with(back_off: Duration) -> World {
    let mut world = World::with(ControllerOptions {
        back_off,
        ..ControllerOptions::default()
    });
    world.add_node("n1");
    world
}

/// Failures are followed by the next try at once.
fn world() -> World {
    world_with(Duration::ZERO)
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

fn held(job: Value) -> Value {
    but(job, |j| {
        j["spec"]["template"]["metadata"]["annotations"][HOLD_TERMINATION] = json!("true");
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
    let target = condition(&job, "FailureTarget").unwrap();
    assert_eq!(target["reason"], failed["reason"]);
    failed["reason"].as_str().unwrap().to_owned()
}

fn tell(world: &mut World, run: &str) {
    let pod = meta::name(&pods(world)[0]).to_owned();
    world.change(&PODS, &pod, |p| {
        p["metadata"]["annotations"] = json!({RUN: run});
    });
}

#[test]
fn a_pod_is_made_of_the_template() {
    let mut world = world();
    let job = world.create(&JOBS, job("", "Never"));
    let [pod] = &pods(&world)[..] else { panic!() };
    let (uid, metadata) = (meta::uid(&job), &pod["metadata"]);
    assert_eq!(metadata["generateName"], "j-");
    assert_eq!(metadata["labels"]["app"], "a");
    assert_eq!(
        metadata["labels"]["batch.kubernetes.io/controller-uid"],
        uid
    );
    assert_eq!(
        metadata["ownerReferences"],
        json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }])
    );
    assert_eq!(pod["spec"]["containers"][0]["image"], "i");
    let status = status(&world);
    let counted = ["active", "ready", "terminating"].map(|counter| &status[counter]);
    assert_eq!(counted, [1, 1, 0]);
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
        assert!(status["completionTime"].is_string());
        let [pod] = &pods(&world)[..] else { panic!() };
        assert_eq!(pod["status"]["phase"], "Succeeded");
        assert_eq!(world.reasons("j"), ["Completed", "SuccessfulCreate"]);
        let version = |world: &World| meta::resource_version(&world.get(&JOBS, "j").unwrap());
        let before = version(&world);
        world.resync();
        assert_eq!(version(&world), before, "and it rests");
    }
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
        world.create(&JOBS, held(failing));
        assert!(has(&world, "FailureTarget") && !has(&world, "Failed"));
        let [pod] = &pods(&world)[..] else { panic!() };
        assert!(meta::is_terminating(pod));
        let container = &pod["status"]["containerStatuses"][0];
        assert_eq!(container["restartCount"], restarts);
        assert_eq!(status(&world)["terminating"], 1);
        tell(&mut world, "fail");
        assert_eq!(failure(&world), "BackoffLimitExceeded");
        assert_eq!(status(&world)["failed"], 1);
        assert!(pods(&world).is_empty());
    }
}

#[test]
fn a_container_waits_before_it_is_started_again() {
    let mut world = world_with(Duration::from_mins(10));
    world.create(&JOBS, job("fail", "OnFailure"));
    let pod = pods(&world)[0].clone();
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(container["restartCount"], 1, "the first restart is at once");
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    let status = status(&world);
    assert_eq!([&status["active"], &status["ready"]], [1, 0]);
    tell(&mut world, "succeed");
    assert!(!has(&world, "Complete"), "not before the back-off is over");
    world.hurry();
    world.settle();
    assert!(!has(&world, "Complete"), "no look at it makes it shorter");
}

#[test]
fn a_replacement_waits() {
    let mut world = world_with(Duration::from_millis(100));
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
    let with_policy = |policy: &str| DeleteOptions {
        propagation_policy: Some(policy.to_owned()),
        ..DeleteOptions::default()
    };
    for (policy, waits) in [("Foreground", true), ("Background", false)] {
        let mut world = world();
        world.create(&JOBS, held(job("", "Never")));
        world.delete_with(&JOBS, "j", &with_policy(policy));
        let [pod] = &pods(&world)[..] else { panic!() };
        assert!(meta::is_terminating(pod), "{policy}");
        assert_eq!(world.get(&JOBS, "j").is_some(), waits, "{policy}");
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
    let status = status(&world);
    assert_eq!([&status["active"], &status["failed"]], [1, 1]);
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
fn a_controller_that_starts_over_makes_one_pod() {
    let mut world = world();
    world.put(&JOBS, job("succeed", "Never"));
    for _ in 0..20 {
        world.manager.work();
        world.restart();
    }
    world.resync();
    assert_eq!(status(&world)["succeeded"], 1);
    assert_eq!(pods(&world).len(), 1);
}
