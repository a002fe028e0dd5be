//! The four writes, and what undoes them.

use serde_json::{Value, json};

use crate::{
    controllers::{
        object::Key,
        tests::{World, but, claim, provisioned, volume},
    },
    meta,
    pv_controller::{BIND_COMPLETED, BOUND_BY_CONTROLLER, volume as rule},
    resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES},
    store::{EventKind, Part},
};

fn annotation(object: &Value, key: &str) -> bool {
    object["metadata"]["annotations"][key] == "yes"
}

#[test]
fn four_writes_in_order() {
    let mut world = World::new();
    world.create(&VOLUMES, volume("v", "2Gi"));
    let mut events = world.store.subscribe();
    world.create(&CLAIMS, claim("c", "1Gi"));
    let mut writes = Vec::new();
    while let Ok(event) = events.try_recv() {
        let ours = event.resource == &VOLUMES || event.resource == &CLAIMS;
        let Some(before) = event
            .previous
            .filter(|_| ours && event.kind == EventKind::Modified)
        else {
            continue;
        };
        let (before, now) = (&*before, &*event.object);
        for (what, pointer) in [
            ("claimRef", "/spec/claimRef/uid"),
            ("volumeName", "/spec/volumeName"),
            ("phase", "/status/phase"),
        ] {
            if before.pointer(pointer) != now.pointer(pointer) {
                writes.push(format!("{} {what}", meta::name(now)));
            }
        }
    }
    assert_eq!(writes, ["v claimRef", "v phase", "c volumeName", "c phase"]);
    let (volume, claim) = (world.volume("v"), world.claim("c"));
    assert!(annotation(&volume, BOUND_BY_CONTROLLER));
    assert!(annotation(&claim, BOUND_BY_CONTROLLER) && annotation(&claim, BIND_COMPLETED));
    assert_eq!(claim["status"]["capacity"]["storage"], "2Gi");
    assert_eq!(claim["status"]["accessModes"], json!(["ReadWriteOnce"]));
}

/// Every prefix of the four writes, made by an earlier controller that died, is completed.
#[test]
fn resumes_after_any_write() {
    for done in 0..=4 {
        for from_volume in [true, false] {
            let mut world = World::new();
            world.put(&VOLUMES, volume("v", "1Gi"));
            // Something better must not be taken once the first write is done.
            let better = if done == 0 { "2Gi" } else { "1023Mi" };
            world.put(&VOLUMES, volume("other", better));
            let uid = world.put(&CLAIMS, claim("c", "1000Mi"))["metadata"]["uid"].clone();
            for name in ["v", "other"] {
                world.edit(&VOLUMES, name, Part::Status, |v| {
                    v["status"]["phase"] = json!("Available");
                });
            }
            if done >= 1 {
                world.edit(&VOLUMES, "v", Part::Main, |v| {
                    v["spec"]["claimRef"] =
                        json!({"namespace": "default", "name": "c", "uid": uid});
                    v["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
                });
            }
            if done >= 2 {
                world.edit(&VOLUMES, "v", Part::Status, |v| {
                    v["status"]["phase"] = json!("Bound");
                });
            }
            if done >= 3 {
                world.edit(&CLAIMS, "c", Part::Main, |c| {
                    c["spec"]["volumeName"] = json!("v");
                    c["metadata"]["annotations"] =
                        json!({BOUND_BY_CONTROLLER: "yes", BIND_COMPLETED: "yes"});
                });
            }
            if done >= 4 {
                world.edit(&CLAIMS, "c", Part::Status, |c| {
                    c["status"]["phase"] = json!("Bound");
                });
            }
            world.restart();
            if from_volume {
                // Only an event of the volume, as after the death of the claim's worker.
                world.change(&VOLUMES, "v", |v| {
                    v["metadata"]["labels"] = json!({"touched": "yes"});
                });
            }
            world.settle();
            assert_eq!(
                world.bound("c").as_deref(),
                Some("v"),
                "after {done} writes"
            );
            assert_eq!(world.phase(&VOLUMES, "other"), "Available");
        }
    }
}

/// A volume that was provisioned a moment ago comes to the controller before its claim does.
#[test]
fn a_claim_that_the_cache_does_not_know_is_read_before_its_volume_is_released() {
    let mut world = World::new();
    let made = world.put(&CLAIMS, claim("c", "1Gi"));
    let reserved = but(provisioned("v", "1Gi"), |v| {
        v["spec"]["claimRef"] =
            json!({"namespace": "default", "name": "c", "uid": made["metadata"]["uid"]});
    });
    let reserved = world.put(&VOLUMES, reserved);
    let cx = &mut world.manager.cx;
    cx.cache.store(&VOLUMES, &reserved);
    rule::sync(cx, &Key::cluster("v")).unwrap();
    assert_ne!(world.phase(&VOLUMES, "v"), "Released");
    world.settle();
    assert_eq!(world.bound("c").as_deref(), Some("v"));
}
