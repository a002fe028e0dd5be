//! Owners and dependents, on a real store.

use serde_json::{Value, json};

use crate::{
    controllers::tests::{World, but, claim, volume},
    resource::{
        CONFIG_MAPS, NODES, PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES,
        SECRETS,
    },
};

fn owned(object: Value, owners: &[&Value]) -> Value {
    but(object, |o| {
        o["metadata"]["ownerReferences"] = owners
            .iter()
            .map(|owner| {
                json!({
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "blockOwnerDeletion": true,
                })
            })
            .collect();
    })
}

fn config(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[test]
fn a_nodes_volumes_are_deleted_with_it() {
    let mut world = World::new();
    world.add_node("n1");
    let node = world.get(&NODES, "n1").unwrap();
    world.create(&VOLUMES, owned(volume("bound", "1Gi"), &[&node]));
    world.create(&CLAIMS, claim("c", "1Gi"));
    world.create(&VOLUMES, owned(volume("free", "1Gi"), &[&node]));
    world.create(&VOLUMES, volume("other", "1Gi"));
    world.delete(&NODES, "n1");
    assert!(world.get(&VOLUMES, "free").is_none());
    assert!(world.get(&VOLUMES, "other").is_some());
    let bound = world.volume("bound");
    assert!(bound["metadata"]["deletionTimestamp"].is_string(), "protected while bound");
    world.delete(&CLAIMS, "c");
    assert!(world.get(&VOLUMES, "bound").is_none());
}

#[test]
fn what_is_not_understood_is_not_deleted() {
    let mut world = World::new();
    let custom = json!({"apiVersion": "example.com/v1", "kind": "Custom", "metadata": {"name": "x", "uid": "1"}});
    world.create(&SECRETS, owned(config("s"), &[&custom]));
    let namespaced = world.create(&CONFIG_MAPS, config("a"));
    world.create(&VOLUMES, owned(volume("v", "1Gi"), &[&namespaced]));
    world.delete(&CONFIG_MAPS, "a");
    assert!(world.get(&SECRETS, "s").is_some());
    assert!(world.get(&VOLUMES, "v").is_some(), "a namespaced owner of what is in no namespace");
}
