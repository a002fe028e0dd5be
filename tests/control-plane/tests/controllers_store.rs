//! The controllers as tasks on a store: their timing, their scale, their end.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use control_plane::{
    controllers::{self, ControllerOptions, NodeOptions},
    resource::{
        CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES, PODS,
        Resource, STORAGE_CLASSES as CLASSES,
    },
    store::{DeleteOptions, Event, Events, Store},
};
use nix::{
    sys::resource::{UsageWho, getrusage},
    time::{ClockId, clock_gettime},
};
use serde_json::{Value, json};
use tokio::time::timeout;

fn volume(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "annotations": {"pv.kubernetes.io/provisioned-by": "local-volume-provisioner-n1"},
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "local",
            "local": {"path": format!("/mnt/{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]},
            ]}]}},
        },
    })
}

fn claim(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

fn class(binding: &str) -> Value {
    json!({
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": binding,
    })
}

fn pod(name: &str, claim: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "busybox"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}

fn create(store: &Store, r: &'static Resource, object: Value) -> Arc<Value> {
    store
        .create(r, if r.namespaced { "default" } else { "" }, object)
        .unwrap()
}

fn delete(store: &Store, r: &'static Resource, name: &str) {
    let ns = if r.namespaced { "default" } else { "" };
    store
        .delete(r, ns, name, &DeleteOptions::default())
        .unwrap();
}

/// How much of the processor this thread has had, and with it the controllers: what else runs on the
/// machine does not count.
fn worked() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

/// How often this thread has let go of the processor to wait for something, be it a moment.
fn waited() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    usage.voluntary_context_switches()
}

/// Waits for `count` objects of a type to come into a phase.
async fn wait_for(events: &mut Events, r: &'static Resource, phase: &str, count: usize) {
    let came = |event: &Event| {
        let before = event
            .previous
            .as_ref()
            .map(|previous| &previous["status"]["phase"]);
        event.resource == r
            && event.object["status"]["phase"] == phase
            && before.is_none_or(|before| before != phase)
    };
    let all = async {
        let mut seen = 0;
        while seen < count {
            seen += usize::from(came(&events.recv().await.unwrap()));
        }
    };
    timeout(Duration::from_mins(1), all)
        .await
        .unwrap_or_else(|_| panic!("not {count} {phase}"));
}

fn options() -> ControllerOptions {
    ControllerOptions {
        node: Some(NodeOptions::new("n1")),
        ..ControllerOptions::default()
    }
}

#[tokio::test]
async fn the_life_of_a_late_binding_volume() {
    let store = Store::default();
    let _controllers = controllers::spawn(store.clone(), options()).unwrap();
    let mut events = store.subscribe();
    create(&store, &CLASSES, class("WaitForFirstConsumer"));
    create(&store, &VOLUMES, volume("v"));
    wait_for(&mut events, &VOLUMES, "Available", 1).await;
    create(&store, &CLAIMS, claim("c"));
    create(&store, &PODS, pod("p", "c"));
    wait_for(&mut events, &PODS, "Running", 1).await;
    let bound = store.get(&VOLUMES, "", "v").unwrap();
    assert_eq!(bound["status"]["phase"], "Bound");
    assert_eq!(bound["spec"]["claimRef"]["name"], "c");

    // The claim outlives its deletion until the pod is gone.
    delete(&store, &CLAIMS, "c");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(store.get(&CLAIMS, "default", "c").is_ok());
    delete(&store, &PODS, "p");
    wait_for(&mut events, &VOLUMES, "Released", 1).await;
    assert!(store.get(&CLAIMS, "default", "c").is_err());
}

#[tokio::test]
async fn a_deleted_claim_releases_its_volume_without_waiting() {
    let store = Store::default();
    let _controllers = controllers::spawn(store.clone(), options()).unwrap();
    let mut events = store.subscribe();
    create(&store, &CLASSES, class("Immediate"));
    let (mut took, mut waits) = (Vec::new(), Vec::new());
    for round in 0..50 {
        create(&store, &VOLUMES, volume(&format!("v{round}")));
        wait_for(&mut events, &VOLUMES, "Available", 1).await;
        create(&store, &CLAIMS, claim("c"));
        wait_for(&mut events, &CLAIMS, "Bound", 1).await;
        let start = (worked(), waited());
        delete(&store, &CLAIMS, "c");
        wait_for(&mut events, &VOLUMES, "Released", 1).await;
        took.push(worked().saturating_sub(start.0));
        waits.push(waited() - start.1);
    }
    took.sort();
    waits.sort_unstable();
    println!(
        "claim deleted -> PV Released: median {:?} of the processor, worst {:?}",
        took[25], took[49]
    );
    assert!(took[25] < Duration::from_millis(20), "{took:?}");
    assert_eq!(waits[25], 0, "{waits:?}");
}

#[tokio::test]
async fn the_resync_finds_what_no_event_told_of() {
    let store = Store::default();
    let resync = Duration::from_millis(100);
    let options = ControllerOptions {
        resync,
        ..ControllerOptions::default()
    };
    let _controllers = controllers::spawn(store.clone(), options).unwrap();
    let mut events = store.subscribe();
    create(&store, &CLAIMS, claim("c"));
    tokio::time::sleep(Duration::from_millis(10)).await;
    create(&store, &VOLUMES, volume("v"));
    wait_for(&mut events, &CLAIMS, "Bound", 1).await;
}

/// They look from queue to queue; what is written meanwhile may be for one that they have passed. The
/// first write of a round wakes them, and the second comes a little later in each round.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_written_while_they_look_around_is_seen_at_once() {
    let store = Store::default();
    let options = ControllerOptions {
        resync: Duration::from_hours(1),
        ..options()
    };
    let _controllers = controllers::spawn(store.clone(), options).unwrap();
    let rounds = std::thread::spawn(move || {
        // One core looks on.
        let rounds = if support::slow() { 4_000 } else { 1_000 };
        for round in 0..rounds {
            let name = format!("v{round}");
            let map = json!({"metadata": {"name": &name}});
            let volume = volume(&name);
            create(&store, &CONFIG_MAPS, map);
            let woken = Instant::now();
            let later = Duration::from_nanos(round % 400 * 250);
            while woken.elapsed() < later {
                std::hint::spin_loop();
            }
            create(&store, &VOLUMES, volume);
            let phase = || store.get(&VOLUMES, "", &name).unwrap()["status"]["phase"].clone();
            while phase() != "Available" {
                let waited = woken.elapsed();
                assert!(waited < Duration::from_secs(10), "in round {round}");
                std::thread::yield_now();
            }
            delete(&store, &CONFIG_MAPS, &name);
            delete(&store, &VOLUMES, &name);
        }
    });
    tokio::task::spawn_blocking(|| rounds.join().unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn they_stop_with_their_handle() {
    let store = Store::default();
    let controllers = controllers::spawn(store.clone(), ControllerOptions::default()).unwrap();
    let mut events = store.subscribe();
    create(&store, &VOLUMES, volume("v"));
    wait_for(&mut events, &VOLUMES, "Available", 1).await;
    drop(controllers);
    tokio::task::yield_now().await;
    create(&store, &CLAIMS, claim("c"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(
        store.get(&CLAIMS, "default", "c").unwrap()["status"]["phase"],
        "Pending"
    );
}

/// Eight times the volumes and claims take about eight times as long, not sixty-four times. The few
/// are bound before and after the many, as the machine may have become busy meanwhile.
#[tokio::test]
async fn binding_is_not_quadratic() {
    let mut per_claim = Vec::new();
    for count in [200, 1600, 200] {
        for mode in ["Immediate", "WaitForFirstConsumer"] {
            let store = Store::default();
            let _controllers = controllers::spawn(store.clone(), options()).unwrap();
            let mut events = store.subscribe();
            create(&store, &CLASSES, class(mode));
            let start = worked();
            for i in 0..count {
                create(&store, &VOLUMES, volume(&format!("v{i}")));
            }
            wait_for(&mut events, &VOLUMES, "Available", count).await;
            for i in 0..count {
                create(&store, &CLAIMS, claim(&format!("c{i}")));
                if mode == "WaitForFirstConsumer" {
                    create(&store, &PODS, pod(&format!("p{i}"), &format!("c{i}")));
                }
            }
            wait_for(&mut events, &CLAIMS, "Bound", count).await;
            let took = worked().saturating_sub(start);
            println!("{count} claims bound ({mode}) in {took:?}");
            per_claim.push(took / u32::try_from(count).unwrap());
        }
    }
    for mode in 0..2 {
        let few = per_claim[mode].max(per_claim[mode + 4]);
        let many = per_claim[mode + 2];
        assert!(many < few * 4, "{few:?} per claim of 200, {many:?} of 1600");
    }
}
