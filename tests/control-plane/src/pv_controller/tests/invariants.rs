//! What holds after any sequence of events.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    controllers::tests::{World, but, claim, class, on_node, pod, provisioned, volume},
    meta,
    resource::{
        EVENTS, PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES, PODS, Resource,
        STORAGE_CLASSES,
    },
    store::{DeleteOptions, EventKind},
};

#[derive(Debug, Clone)]
enum Step {
    Volume {
        name: u8,
        size: u8,
        provisioned: bool,
        node: u8,
        reserved: Option<u8>,
    },
    Claim {
        name: u8,
        size: u8,
        late: bool,
        volume: Option<u8>,
    },
    Pod {
        name: u8,
        claims: Vec<u8>,
    },
    Delete(&'static Resource, u8),
    /// Somebody else's write in between: what the controller cached is stale.
    Touch(&'static Resource, u8),
    ClearClaimRef(u8),
    Settle,
    Work,
    Resync,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0_u8..5;
    let kind = prop_oneof![Just(&VOLUMES), Just(&CLAIMS), Just(&PODS)];
    let touched = prop_oneof![Just(&VOLUMES), Just(&CLAIMS)];
    let step = prop_oneof![
        4 => (name.clone(), 1_u8..4, any::<bool>(), 1_u8..3, prop::option::weighted(0.2, name.clone()))
            .prop_map(|(name, size, provisioned, node, reserved)| Step::Volume { name, size, provisioned, node, reserved }),
        4 => (name.clone(), 1_u8..4, any::<bool>(), prop::option::weighted(0.2, name.clone()))
            .prop_map(|(name, size, late, volume)| Step::Claim { name, size, late, volume }),
        2 => (name.clone(), prop::collection::vec(name.clone(), 1..3)).prop_map(|(name, claims)| Step::Pod { name, claims }),
        4 => (kind, name.clone()).prop_map(|(kind, name)| Step::Delete(kind, name)),
        1 => (touched, name.clone()).prop_map(|(kind, name)| Step::Touch(kind, name)),
        1 => name.prop_map(Step::ClearClaimRef),
        3 => Just(Step::Settle),
        3 => Just(Step::Work),
        1 => Just(Step::Resync),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

fn prefix(r: &'static Resource) -> &'static str {
    match r {
        r if r == &VOLUMES => "v",
        r if r == &CLAIMS => "c",
        _ => "p",
    }
}

fn take(world: &mut World, step: &Step) {
    match step {
        Step::Volume {
            name,
            size,
            provisioned: external,
            node,
            reserved,
        } => {
            let (name, size) = (format!("v{name}"), format!("{size}Gi"));
            let made = if *external {
                provisioned(&name, &size)
            } else {
                volume(&name, &size)
            };
            let made = but(on_node(made, &format!("n{node}")), |v| {
                if let Some(claim) = reserved {
                    v["spec"]["claimRef"] =
                        json!({"namespace": "default", "name": format!("c{claim}")});
                }
            });
            let _ = world.store.create(&VOLUMES, "", made);
        }
        Step::Claim {
            name,
            size,
            late,
            volume,
        } => {
            let made = but(claim(&format!("c{name}"), &format!("{size}Gi")), |c| {
                c["spec"]["storageClassName"] = json!(if *late { "late" } else { "fast" });
                if let Some(volume) = volume {
                    c["spec"]["volumeName"] = json!(format!("v{volume}"));
                }
            });
            let _ = world.store.create(&CLAIMS, "default", made);
        }
        Step::Pod { name, claims } => {
            let claims: Vec<_> = claims.iter().map(|claim| format!("c{claim}")).collect();
            let claims: Vec<_> = claims.iter().map(String::as_str).collect();
            let _ = world
                .store
                .create(&PODS, "default", pod(&format!("p{name}"), &claims));
        }
        Step::Delete(r, name) => {
            let ns = if r.namespaced { "default" } else { "" };
            let _ = world.store.delete(
                r,
                ns,
                &format!("{}{name}", prefix(r)),
                &DeleteOptions::default(),
            );
        }
        Step::Touch(r, name) => {
            let name = format!("{}{name}", prefix(r));
            if world
                .get(r, &name)
                .is_some_and(|object| !meta::is_terminating(&object))
            {
                world.edit(r, &name, crate::store::Part::Main, |o| {
                    let version = o["metadata"]["resourceVersion"].clone();
                    o["metadata"]["labels"] = json!({"touched": version});
                });
            }
        }
        Step::ClearClaimRef(name) => {
            let name = format!("v{name}");
            if world.get(&VOLUMES, &name).is_some() {
                world.edit(&VOLUMES, &name, crate::store::Part::Main, |v| {
                    v["spec"].as_object_mut().unwrap().remove("claimRef");
                });
            }
        }
        Step::Settle => world.settle(),
        Step::Work => {
            world.manager.work();
        }
        Step::Resync => world.resync(),
        Step::Restart => world.restart(),
    }
}

fn check(world: &World) -> Result<(), TestCaseError> {
    let mut owner_of = HashMap::new();
    for claim in world.store.list(&CLAIMS, None).items {
        let name = claim["spec"]["volumeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if claim["status"]["phase"] != "Bound" {
            continue;
        }
        let volume = world.get(&VOLUMES, &name);
        let volume = volume.ok_or_else(|| TestCaseError::fail(format!("{claim}: no volume")))?;
        prop_assert_eq!(
            &volume["spec"]["claimRef"]["uid"],
            &claim["metadata"]["uid"]
        );
        prop_assert_eq!(&volume["status"]["phase"], "Bound");
        prop_assert_eq!(owner_of.insert(name, meta::name(&claim).to_owned()), None);
    }
    let mut claimed = HashSet::new();
    for volume in world.store.list(&VOLUMES, None).items {
        let (phase, reference) = (&volume["status"]["phase"], &volume["spec"]["claimRef"]);
        let claim = world.get(&CLAIMS, reference["name"].as_str().unwrap_or_default());
        let lives = claim.is_some_and(|claim| claim["metadata"]["uid"] == reference["uid"]);
        if phase == "Bound" {
            prop_assert!(
                lives && owner_of.contains_key(meta::name(&volume)),
                "{}",
                volume
            );
            prop_assert!(claimed.insert(reference["uid"].to_string()));
        } else if phase == "Available" {
            prop_assert!(reference["uid"].is_null(), "{}", volume);
        }
    }
    for pod in world.store.list(&PODS, None).items {
        if pod["status"]["phase"] == "Running" && !meta::is_terminating(&pod) {
            prop_assert!(pod["spec"]["nodeName"].is_string(), "{}", pod);
        }
    }
    // What the controllers think is what is there.
    let volumes = &world.manager.cx.cache.volumes;
    prop_assert_eq!(
        volumes.keys().count(),
        world.store.list(&VOLUMES, None).items.len()
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_sides_agree_and_nothing_alive_is_released(steps in steps()) {
        let mut world = World::new();
        for node in ["n1", "n2"] {
            world.add_node(node);
        }
        world.create(&STORAGE_CLASSES, class("fast", "Immediate"));
        world.create(&STORAGE_CLASSES, class("late", "WaitForFirstConsumer"));
        let mut writes = world.store.subscribe();
        for step in &steps {
            take(&mut world, step);
        }
        world.resync();
        world.resync();
        check(&world)?;
        // What is settled stays as it is; only events may be counted up.
        let mut quiet = world.store.subscribe();
        world.resync();
        while let Ok(event) = quiet.try_recv() {
            prop_assert_eq!(event.resource, &EVENTS, "{}", event.object);
        }
        let mut living = HashSet::new();
        while let Ok(event) = writes.try_recv() {
            let (object, kind) = (&event.object, event.kind);
            if event.resource == &CLAIMS && kind == EventKind::Deleted {
                living.remove(meta::uid(object));
            } else if event.resource == &CLAIMS {
                living.insert(meta::uid(object).to_owned());
            }
            let Some(before) = event.previous.filter(|_| event.resource == &VOLUMES) else { continue };
            let owner = |volume: &Value| {
                volume["spec"]["claimRef"]["uid"].as_str().unwrap_or_default().to_owned()
            };
            let (owned, owns) = (owner(&before), owner(object));
            let robbed = !owns.is_empty() && owns != owned && living.contains(&owned);
            prop_assert!(!robbed, "{object} was taken from the living claim {owned}");
            let freed = before["status"]["phase"] == "Bound"
                && matches!(object["status"]["phase"].as_str(), Some("Released" | "Failed"));
            prop_assert!(!(freed && living.contains(&owns)), "{object} was released while its claim lives");
        }
    }
}
