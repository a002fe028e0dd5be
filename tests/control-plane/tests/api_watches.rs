//! Watches.

mod common;

use std::time::{Duration, Instant};

use common::*;
use control_plane::Options;
use serde_json::{Value, json};

#[tokio::test]
async fn a_watch_from_a_version_tells_what_came_after() {
    let api = Api::start().await;
    api.post(CMS, &config_map("before")).await.ok();
    let list = api.get(CMS).await.ok();
    api.post(CMS, &config_map("a")).await.ok();
    let mut lines = api
        .watch(&format!("{CMS}?watch=1&resourceVersion={}", version(&list)))
        .await;
    assert_eq!(lines.next_short().await, is("ADDED", "a"));
    let patched = api
        .patch(&format!("{CMS}/a"), MERGE, &json!({"data": {"k": "w"}}))
        .await
        .ok();
    let event = lines.next().await;
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(event["object"], patched);
    api.delete(&format!("{CMS}/a"), &Value::Null).await.ok();
    let event = lines.next().await;
    assert_eq!(short(&event), is("DELETED", "a"));
    let deleted_at: u64 = version(&event["object"]).parse().unwrap();
    assert!(
        deleted_at > version(&patched).parse().unwrap(),
        "a deletion has its own version"
    );
    lines.expect_silence().await;
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_the_state() {
    let api = Api::start().await;
    api.post(CMS, &config_map("a")).await.ok();
    api.post(CMS, &config_map("b")).await.ok();
    for query in ["", "&resourceVersion=0"] {
        let mut lines = api.watch(&format!("{CMS}?watch=true{query}")).await;
        assert_eq!(lines.next_short().await, is("ADDED", "a"));
        assert_eq!(lines.next_short().await, is("ADDED", "b"));
        lines.expect_silence().await;
    }
}

#[tokio::test]
async fn a_watch_hears_of_its_namespace_and_type_only() {
    let api = Api::start().await;
    api.post(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "other"}}),
    )
    .await
    .ok();
    let mut here = api.watch(&format!("{CMS}?watch=1")).await;
    let mut all = api.watch("/api/v1/configmaps?watch=1").await;
    api.post("/api/v1/namespaces/other/configmaps", &config_map("a"))
        .await
        .ok();
    api.post(PVS, &volume("pv")).await.ok();
    assert_eq!(all.next_short().await, is("ADDED", "a"));
    here.expect_silence().await;
    all.expect_silence().await;
}

#[tokio::test]
async fn what_stops_matching_is_deleted_in_its_last_matching_state() {
    let api = Api::start().await;
    let path = format!("{CMS}/a");
    let mut object = config_map("a");
    object["metadata"]["labels"] = json!({"mine": "yes"});
    let created = api.post(CMS, &object).await.ok();
    let mut lines = api
        .watch(&format!("{CMS}?watch=1&labelSelector=mine%3Dyes"))
        .await;
    assert_eq!(lines.next_short().await, is("ADDED", "a"));
    let lost = json!({"metadata": {"labels": {"mine": "no"}}, "data": {"k": "w"}});
    let patched = api.patch(&path, MERGE, &lost).await.ok();
    let event = lines.next().await;
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["mine"], "yes");
    assert_eq!(event["object"]["data"], created["data"]);
    assert_eq!(version(&event["object"]), version(&patched));
    api.patch(&path, MERGE, &json!({"data": {"k": "x"}}))
        .await
        .ok();
    let found = json!({"metadata": {"labels": {"mine": "yes"}}});
    api.patch(&path, MERGE, &found).await.ok();
    assert_eq!(lines.next_short().await, is("ADDED", "a"));
    api.delete(&path, &Value::Null).await.ok();
    assert_eq!(lines.next_short().await, is("DELETED", "a"));
}

#[tokio::test]
async fn one_object_can_be_watched() {
    let api = Api::start().await;
    api.post(CMS, &config_map("a")).await.ok();
    api.post(CMS, &config_map("b")).await.ok();
    let path = format!("{CMS}?watch=1&fieldSelector=metadata.name%3Db");
    let mut lines = api.watch(&path).await;
    assert_eq!(lines.next_short().await, is("ADDED", "b"));
    lines.expect_silence().await;
    // Its own path answers with the object, whatever it is asked.
    let object = api.get(&format!("{CMS}/b?watch=1")).await.ok();
    assert_eq!(object["metadata"]["name"], "b");
}

#[tokio::test]
async fn an_expired_version_is_an_error_event() {
    let api = Api::start().await;
    let old = version(&api.post(CMS, &config_map("a")).await.ok()).to_owned();
    api.post(CMS, &config_map("b")).await.ok();
    api.control_plane.store().compact();
    let mut lines = api
        .watch(&format!("{CMS}?watch=1&resourceVersion={old}"))
        .await;
    let event = lines.next().await;
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["kind"], "Status");
    assert_eq!(event["object"]["code"], 410);
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(lines.try_next().await.unwrap(), None);
    let now = version(&api.get(CMS).await.ok()).to_owned();
    let mut lines = api
        .watch(&format!("{CMS}?watch=1&resourceVersion={now}"))
        .await;
    lines.expect_silence().await;
    let future = api
        .get(&format!("{CMS}?watch=1&resourceVersion=999999"))
        .await;
    future.refused(504, "Timeout");
}

#[tokio::test]
async fn a_short_history_expires_by_itself() {
    let options = Options {
        controllers: false,
        history: 2,
        ..Options::default()
    };
    let api = Api::with(options).await;
    let versions: Vec<_> = {
        let mut versions = Vec::new();
        for name in ["a", "b", "c", "d"] {
            versions.push(version(&api.post(CMS, &config_map(name)).await.ok()).to_owned());
        }
        versions
    };
    let watch = |version: &str| format!("{CMS}?watch=1&resourceVersion={version}");
    assert_eq!(
        api.watch(&watch(&versions[0])).await.next().await["type"],
        "ERROR"
    );
    let mut lines = api.watch(&watch(&versions[1])).await;
    assert_eq!(lines.next_short().await, is("ADDED", "c"));
    assert_eq!(lines.next_short().await, is("ADDED", "d"));
}

#[tokio::test]
async fn bookmarks_and_timeouts() {
    let bookmarks = Duration::from_millis(50);
    let api = Api::with(Options {
        controllers: false,
        bookmarks,
        ..Options::default()
    })
    .await;
    let version = version(&api.post(CMS, &config_map("a")).await.ok()).to_owned();
    let watch = format!("{CMS}?watch=1&resourceVersion={version}");
    let is_bookmark = |event: Value| {
        assert_eq!(event["type"], "BOOKMARK");
        assert_eq!(event["object"]["kind"], "ConfigMap");
        assert_eq!(common::version(&event["object"]), version);
    };
    let mut lines = api
        .watch(&format!("{watch}&allowWatchBookmarks=true"))
        .await;
    for _ in 0..2 {
        is_bookmark(lines.next().await);
    }
    let watch = format!("{watch}&timeoutSeconds=1");
    let begin = Instant::now();
    let mut lines = api
        .watch(&format!("{watch}&allowWatchBookmarks=true"))
        .await;
    while let Some(event) = lines.try_next().await.unwrap() {
        is_bookmark(event);
    }
    assert!(
        begin.elapsed() >= Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    let mut lines = api.watch(&watch).await;
    assert_eq!(
        lines.try_next().await.unwrap(),
        None,
        "nobody asked for bookmarks"
    );
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let api = Api::start().await;
    api.post(CMS, &config_map("a")).await.ok();
    let list = api.get(CMS).await.ok();
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = api.watch(&format!("{CMS}?{query}")).await;
    assert_eq!(lines.next_short().await, is("ADDED", "a"));
    let end = lines.next().await;
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(version(&end["object"]), version(&list));
    api.post(CMS, &config_map("b")).await.ok();
    assert_eq!(lines.next_short().await, is("ADDED", "b"));

    let none = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    api.watch(&format!("{CMS}?{none}"))
        .await
        .expect_silence()
        .await;
    for odd in [
        "watch=1&sendInitialEvents=true",
        "watch=1&resourceVersionMatch=NotOlderThan",
    ] {
        api.get(&format!("{CMS}?{odd}"))
            .await
            .refused(422, "Invalid");
    }
}

#[tokio::test]
async fn watches_as_tables_and_as_metadata() {
    let api = Api::start().await;
    api.post(PVS, &volume("a")).await.ok();
    let watch = format!("{PVS}?watch=1");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let event = api.watch_as(&watch, table).await.next().await;
    assert_eq!(event["object"]["kind"], "Table");
    assert_eq!(event["object"]["rows"][0]["cells"][0], "a");
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let event = api.watch_as(&watch, metadata).await.next().await;
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(event["object"]["spec"], Value::Null);
}
