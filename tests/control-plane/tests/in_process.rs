//! The control plane without sockets, in the runtime of its client and on a clock that is stopped.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use control_plane::{InProcess, NodeOptions, Options};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client,
    api::{PostParams, WatchEvent, WatchParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, from_value, json};
use tokio::time::Instant;

const RESYNC: Duration = Duration::from_mins(4);

fn start() -> (InProcess, Client) {
    let options =
        Options { node: Some(NodeOptions::new("n1")), resync: RESYNC, ..Options::default() };
    let control_plane = InProcess::start(&options).unwrap();
    let client = Client::new(control_plane.service(), "default");
    (control_plane, client)
}

fn typed<T: serde::de::DeserializeOwned>(object: Value) -> T {
    from_value(object).unwrap()
}

/// The claim waits for the resync, which is four minutes away, and the test is over in a moment.
#[tokio::test(start_paused = true)]
async fn a_claim_is_bound_and_a_watch_reports_it() {
    let (_control_plane, client) = start();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client);
    let create = PostParams::default();
    let begin = Instant::now();
    let everything = WatchParams::default();
    let mut phases = claims.watch(&everything, "0").await.unwrap().boxed();
    claims.create(&create, &typed(claim("c"))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    volumes.create(&create, &typed(volume("v"))).await.unwrap();
    let mut mounting = pod("p");
    mounting["spec"]["volumes"] =
        json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]);
    pods.create(&create, &typed(mounting)).await.unwrap();
    let running = |pod: Option<&Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
    };
    await_condition(pods, "p", running).await.unwrap();

    let waited = begin.elapsed();
    assert!(waited >= RESYNC && waited < 2 * RESYNC, "on its own clock: {waited:?}");
    let mut seen = Vec::new();
    while let Some(event) = phases.try_next().await.unwrap() {
        let (kind, claim) = match event {
            WatchEvent::Added(claim) => ("added", claim),
            WatchEvent::Modified(claim) => ("modified", claim),
            WatchEvent::Bookmark(_) => continue,
            other => panic!("{other:?}"),
        };
        let phase = claim.status.and_then(|status| status.phase).unwrap();
        seen.push(format!("{kind} {phase}"));
        if phase == "Bound" {
            break;
        }
    }
    assert_eq!(seen.first().unwrap(), "added Pending");
    assert_eq!(seen.last().unwrap(), "modified Bound");
}
