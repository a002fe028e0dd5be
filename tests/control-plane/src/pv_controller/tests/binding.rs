//! The four writes.

use serde_json::{Value, json};

use crate::{
    controllers::tests::{World, claim, volume},
    meta,
    pv_controller::{BIND_COMPLETED, BOUND_BY_CONTROLLER},
    resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES},
    store::EventKind,
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
        let Some(before) = event.previous.filter(|_| ours && event.kind == EventKind::Modified)
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
