//! Jobs whose pods do what their annotation says, on a real store.

use std::{sync::Arc, time::Duration};

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
    store::Part,
};

/// Failures are followed by the next try at once.
fn world() -> World {
    let mut world =
        World::with(ControllerOptions { back_off: Duration::ZERO, ..ControllerOptions::default() });
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
    assert_eq!(metadata["labels"]["batch.kubernetes.io/controller-uid"], uid);
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
