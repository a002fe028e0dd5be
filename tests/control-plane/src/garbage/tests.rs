//! Owners, dependents and namespaces, on a real store.

use serde_json::{Value, json};

use crate::{
    controllers::tests::{World, but, claim, pod, volume},
    resource::{
        CONFIG_MAPS, JOBS, NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS as CLAIMS,
        PERSISTENT_VOLUMES as VOLUMES, PODS, SECRETS,
    },
    store::DeleteOptions,
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

fn policy(policy: &str) -> DeleteOptions {
    DeleteOptions {
        propagation_policy: Some(policy.to_owned()),
        ..DeleteOptions::default()
    }
}

#[test]
fn a_node_takes_its_volumes_along() {
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
    assert!(
        bound["metadata"]["deletionTimestamp"].is_string(),
        "protected while bound"
    );
    world.delete(&CLAIMS, "c");
    assert!(world.get(&VOLUMES, "bound").is_none());
}

#[test]
fn a_dependent_goes_with_its_last_owner() {
    let mut world = World::new();
    let [a, b] = ["a", "b"].map(|name| world.create(&CONFIG_MAPS, config(name)));
    world.create(&SECRETS, owned(config("s"), &[&a, &b]));
    world.delete(&CONFIG_MAPS, "a");
    let owners = world.get(&SECRETS, "s").unwrap()["metadata"]["ownerReferences"].clone();
    assert_eq!(owners.as_array().unwrap().len(), 1);
    assert_eq!(owners[0]["name"], "b");
    world.delete(&CONFIG_MAPS, "b");
    assert!(world.get(&SECRETS, "s").is_none());
}

#[test]
fn an_owner_of_another_uid_is_none() {
    let mut world = World::new();
    let old = world.create(&CONFIG_MAPS, config("a"));
    world.delete(&CONFIG_MAPS, "a");
    world.create(&CONFIG_MAPS, config("a"));
    world.create(&SECRETS, owned(config("s"), &[&old]));
    assert!(world.get(&SECRETS, "s").is_none());
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
    assert!(
        world.get(&VOLUMES, "v").is_some(),
        "a namespaced owner of what is in no namespace"
    );
}

/// The owner `a` is deleted in the foreground, and waits for `s`, which is held by somebody else.
fn foreground() -> World {
    let mut world = World::new();
    let owner = world.create(&CONFIG_MAPS, config("a"));
    let held = but(config("s"), |s| {
        s["metadata"]["finalizers"] = json!(["example.com/held"]);
    });
    world.create(&SECRETS, owned(held, &[&owner]));
    world.delete_with(&CONFIG_MAPS, "a", &policy("Foreground"));
    world
}

#[test]
fn in_the_foreground_the_owner_goes_last() {
    let mut world = foreground();
    let waiting = |world: &World, r, name| {
        world.get(r, name).unwrap()["metadata"]["deletionTimestamp"].is_string()
    };
    assert!(waiting(&world, &SECRETS, "s") && waiting(&world, &CONFIG_MAPS, "a"));
    world.change(&SECRETS, "s", |s| s["metadata"]["finalizers"] = json!([]));
    assert!(world.get(&SECRETS, "s").is_none() && world.get(&CONFIG_MAPS, "a").is_none());
}

#[test]
fn an_owner_that_nothing_blocks_any_more_goes() {
    type Edit = fn(&mut Value);
    let edits: [(&str, Edit); 3] = [
        ("no owner", |s| {
            s["metadata"]["ownerReferences"] = json!([]);
        }),
        ("it does not block", |s| {
            s["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(false);
        }),
        ("gone, and without an owner", |s| {
            s["metadata"]["ownerReferences"] = json!([]);
            s["metadata"]["finalizers"] = json!([]);
        }),
    ];
    for (what, edit) in edits {
        let mut world = foreground();
        assert!(world.get(&CONFIG_MAPS, "a").is_some(), "{what}");
        world.change(&SECRETS, "s", edit);
        assert!(world.get(&CONFIG_MAPS, "a").is_none(), "{what}");
    }
}

#[test]
fn orphans_forget_their_owner() {
    let mut world = World::new();
    let owner = world.create(&CONFIG_MAPS, config("a"));
    world.create(&SECRETS, owned(config("s"), &[&owner]));
    world.delete_with(&CONFIG_MAPS, "a", &policy("Orphan"));
    assert!(world.get(&CONFIG_MAPS, "a").is_none());
    assert!(world.get(&SECRETS, "s").unwrap()["metadata"]["ownerReferences"].is_null());
}

#[test]
fn a_job_takes_its_pods_along_only_when_told() {
    let job = json!({
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}],
        }}},
    });
    for (options, stays) in [
        (DeleteOptions::default(), true),
        (policy("Background"), false),
    ] {
        let mut world = World::new();
        let owner = world.create(&JOBS, job.clone());
        world.create(&PODS, owned(pod("p", &[]), &[&owner]));
        world.delete_with(&JOBS, "j", &options);
        assert!(world.get(&JOBS, "j").is_none());
        assert_eq!(world.get(&PODS, "p").is_some(), stays);
    }
}

#[test]
fn a_namespace_takes_everything_along_and_goes_last() {
    let mut world = World::new();
    world.add_node("n1");
    world.create(&NAMESPACES, config("team"));
    let inside = |object: Value| but(object, |o| o["metadata"]["namespace"] = json!("team"));
    world.create(&VOLUMES, volume("v", "1Gi"));
    world.create(&CLAIMS, inside(claim("c", "1Gi")));
    let user = but(inside(pod("p", &["c"])), |p| {
        p["metadata"]["annotations"] = json!({"control-plane/hold-termination": "true"});
    });
    world.create(&PODS, user);
    world.create(&CONFIG_MAPS, inside(config("a")));
    assert_eq!(world.phase(&VOLUMES, "v"), "Bound");

    world.delete(&NAMESPACES, "team");
    assert!(world.store.get(&CONFIG_MAPS, "team", "a").is_err());
    assert_eq!(world.phase(&NAMESPACES, "team"), "Terminating");
    assert_eq!(world.phase(&VOLUMES, "v"), "Bound", "the pod still runs");

    let mut user = (*world.store.get(&PODS, "team", "p").unwrap()).clone();
    user["metadata"]["annotations"] = json!({});
    world
        .store
        .update(&PODS, "team", "p", user, crate::store::Part::Main)
        .unwrap();
    world.settle();
    assert!(world.store.get(&CLAIMS, "team", "c").is_err());
    assert!(world.get(&NAMESPACES, "team").is_none());
    assert_eq!(world.phase(&VOLUMES, "v"), "Released");
}
