#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use control_plane::requests::Verb;
use control_plane::resource::{NAMESPACES, NODES, STORAGE_CLASSES};
use control_plane::store::{DeleteOptions, Part};
use control_plane::{ControlPlane, Options, Store};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use super::*;

const ID: &str = "lvp-test-0123456789abcdef";
const SOON: std::time::Duration = std::time::Duration::from_secs(10);

#[test]
fn a_maker_is_known_by_its_text_while_it_lives() {
    let this = Maker::this().unwrap().to_string();
    assert_eq!(Maker::is_here(&this), Some(true));
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let that = Maker {
        place: here().unwrap(),
        pid: child.id(),
        started: started(child.id()).unwrap(),
    };
    assert_eq!(Maker::is_here(&that.to_string()), Some(true));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(Maker::is_here(&that.to_string()), Some(false));
}

#[test]
fn what_cannot_be_seen_from_here_is_neither_alive_nor_dead() {
    let elsewhere = "another-boot pid:[1] 1 1";
    for text in [elsewhere, "", "1 1", "x y z w"] {
        assert_eq!(Maker::is_here(text), None, "{text:?}");
    }
}

/// An API server alone: what terminates there stays.
async fn api() -> (ControlPlane, Client) {
    let control_plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&control_plane.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    (control_plane, Client::try_from(config.unwrap()).unwrap())
}

fn namespace_of(maker: &str) -> Value {
    json!({ "metadata": {
        "name": namespace(ID),
        "labels": { STAGE: ID },
        "annotations": { MAKER: maker },
    } })
}

/// A maker that was here once.
fn dead() -> String {
    let this = Maker::this().unwrap();
    Maker { started: 0, ..this }.to_string()
}

fn node() -> String {
    format!("node-{ID}")
}

fn hold_node(store: &Store) {
    let node = json!({ "metadata": { "name": node(), "finalizers": ["example.com/hold"] } });
    store.create(&NODES, "", node).unwrap();
}

#[test]
fn a_stage_from_elsewhere_is_abandoned_after_an_hour() {
    let made = Timestamp::from_second(1_800_000_000).unwrap();
    let is_abandoned_at = |maker: &str, seconds| {
        let mut namespace: Namespace = serde_json::from_value(namespace_of(maker)).unwrap();
        namespace.metadata.creation_timestamp = Some(Time(made));
        is_abandoned(
            &namespace,
            Timestamp::from_second(made.as_second() + seconds).unwrap(),
        )
    };
    let alive = Maker::this().unwrap().to_string();
    for (maker, after, expected) in [
        ("another-boot pid:[1] 1 1", ABANDONED_AFTER_SECONDS, false),
        (
            "another-boot pid:[1] 1 1",
            ABANDONED_AFTER_SECONDS + 1,
            true,
        ),
        (&dead(), 0, true),
        (&alive, 10 * ABANDONED_AFTER_SECONDS, false),
    ] {
        assert_eq!(is_abandoned_at(maker, after), expected, "{maker} {after}");
    }
}

#[tokio::test]
async fn what_a_dead_stage_has_left_goes_also_when_its_namespace_is_going() {
    for deleted_before in [false, true] {
        let (control_plane, client) = api().await;
        let store = control_plane.store();
        let theirs = json!({ "metadata": { "name": "node" } });
        store.create(&NODES, "", theirs).unwrap();
        let class = json!({ "metadata": { "name": format!("fast-{ID}") }, "provisioner": "x" });
        store.create(&STORAGE_CLASSES, "", class).unwrap();
        hold_node(store);
        store
            .create(&NAMESPACES, "", namespace_of(&dead()))
            .unwrap();
        if deleted_before {
            let options = DeleteOptions::default();
            store
                .delete(&NAMESPACES, "", &namespace(ID), &options)
                .unwrap();
        }
        let now = claim_namespace(&client, "lvp-test-alive").await.unwrap();
        sweep_abandoned(&client, now).await.unwrap();
        let left = store.list(&NODES, None).items;
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0]["metadata"]["name"], "node");
        assert!(store.list(&STORAGE_CLASSES, None).items.is_empty());
        let is_going = |name: &str| {
            let namespace = store.get(&NAMESPACES, "", name).unwrap();
            !namespace["metadata"]["deletionTimestamp"].is_null()
        };
        assert!(is_going(&namespace(ID)));
        assert!(!is_going(&namespace("lvp-test-alive")));
    }
}

#[tokio::test]
async fn an_object_that_took_the_name_of_another_stays() {
    for verb in [Verb::Delete, Verb::Patch] {
        let (control_plane, client) = api().await;
        let (store, requests) = (control_plane.store(), control_plane.requests());
        hold_node(store);
        let late = control_plane.faults().on(verb).resource("nodes").hold();
        let mark = requests.mark();
        let replace = async {
            let asked = requests.wait_for(mark, SOON, |it| it.verb == verb).await;
            asked.unwrap();
            store
                .delete(&NODES, "", &node(), &DeleteOptions::default())
                .unwrap();
            let let_go = |old: &Value| {
                let mut new = old.clone();
                new["metadata"]["finalizers"] = json!(null);
                Ok(new)
            };
            store
                .modify(&NODES, "", &node(), Part::Main, let_go)
                .unwrap();
            hold_node(store);
            late.clear();
            store.get(&NODES, "", &node()).unwrap()
        };
        let (swept, new) = tokio::join!(sweep(&client, ID), replace);
        swept.unwrap();
        assert_eq!(store.get(&NODES, "", &node()).unwrap(), new, "{verb}");
    }
}
