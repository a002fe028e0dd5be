//! kube-rs as a client, with its own types.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::SOON;
use control_plane::{ControlPlane, Options};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt, reflector,
        watcher::{self, Event},
    },
};
use serde_json::json;

fn volume(name: &str) -> PersistentVolume {
    serde_json::from_value(common::volume(name)).unwrap()
}

async fn setup() -> (ControlPlane, Api<PersistentVolume>) {
    let options = Options {
        controllers: false,
        ..Options::default()
    };
    let control_plane = ControlPlane::start(options).unwrap();
    let api = Api::all(common::client(&control_plane.kubeconfig()).await);
    (control_plane, api)
}

#[tokio::test]
async fn reflectors_by_list_and_by_stream_hold_the_same() {
    let (control_plane, api) = setup().await;
    api.create(&PostParams::default(), &volume("a"))
        .await
        .unwrap();
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let (reader, writer) = reflector::store();
        let stream = watcher::watcher(api.clone(), config.labels("example.com/owner=me"));
        let stream = stream.default_backoff().reflect(writer).touched_objects();
        let task = tokio::spawn(stream.for_each(|_| std::future::ready(())));
        tokio::time::timeout(SOON, reader.wait_until_ready())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(reader.state().len(), 1);
        let name = format!("b{}", control_plane.requests().all().len());
        api.create(&PostParams::default(), &volume(&name))
            .await
            .unwrap();
        until(|| reader.state().iter().any(|pv| pv.name_any() == name)).await;
        let lost = json!({"metadata": {"labels": {"example.com/owner": "you"}}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&lost))
            .await
            .unwrap();
        until(|| reader.state().len() == 1).await;
        task.abort();
    }
}

#[tokio::test]
async fn a_watcher_survives_cuts_and_expired_versions() {
    let (control_plane, api) = setup().await;
    let mut stream = watcher::watcher(api.clone(), watcher::Config::default()).boxed();
    while !matches!(stream.try_next().await.unwrap().unwrap(), Event::InitDone) {}
    control_plane.store().compact();
    control_plane.faults().cut_watches("persistentvolumes");
    let fault = control_plane
        .faults()
        .on(control_plane::requests::Verb::Watch)
        .times(1)
        .watch_gone();
    api.create(&PostParams::default(), &volume("a"))
        .await
        .unwrap();
    let found = async {
        loop {
            match stream.next().await.unwrap() {
                Ok(Event::Apply(pv) | Event::InitApply(pv)) if pv.name_any() == "a" => break,
                _ => {}
            }
        }
    };
    tokio::time::timeout(SOON, found).await.unwrap();
    assert!(fault.hits() <= 1);
}

/// Polls a local condition.
async fn until(condition: impl Fn() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, poll)
        .await
        .expect("it should come true");
}

#[tokio::test]
async fn events_of_the_recorder_arrive() {
    use kube::runtime::events::{Event, EventType, Recorder, Reporter};
    let (control_plane, api) = setup().await;
    let pv = api
        .create(&PostParams::default(), &volume("a"))
        .await
        .unwrap();
    let client = common::client(&control_plane.kubeconfig()).await;
    let recorder = Recorder::new(client.clone(), Reporter::from("test"));
    let event = Event {
        type_: EventType::Warning,
        reason: "Failed".into(),
        note: Some("it did".into()),
        action: "Wiping".into(),
        secondary: None,
    };
    let reference = kube::Resource::object_ref(&pv, &());
    recorder.publish(&event, &reference).await.unwrap();
    recorder.publish(&event, &reference).await.unwrap();
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(client, "default");
    let params = ListParams::default().fields("involvedObject.name=a");
    let seen = events.list(&params).await.unwrap().items;
    assert_eq!(seen.len(), 1, "the second one counts up the first");
    assert_eq!(seen[0].message.as_deref(), Some("it did"));
    assert_eq!(seen[0].series.as_ref().and_then(|s| s.count), Some(2));
}
