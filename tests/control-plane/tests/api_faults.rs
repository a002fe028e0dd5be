//! Injected faults and the record of requests: of the control plane itself, and of a front before
//! another API server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use control_plane::{faults::Answer, requests::Verb};
use serde_json::{Value, json};

macro_rules! on_both {
    ($($test:ident)*) => {
        mod direct {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Api::start().await).await;
            })*
        }
        mod behind_a_front {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Api::behind_a_front().await).await;
            })*
        }
    };
}

on_both! {
    errors_by_verb_resource_and_name_so_many_times
    connections_are_reset_before_or_after_the_store_acted
    running_watches_are_cut
    a_watch_can_be_told_that_its_version_expired
    held_watches_are_stale_while_reads_are_fresh
    a_held_watch_that_times_out_loses_nothing
    every_request_is_on_record
}

async fn errors_by_verb_resource_and_name_so_many_times(api: Api) {
    let faults = api.faults();
    let fault = faults
        .on(Verb::Create)
        .resource("persistentvolumes")
        .skip(1)
        .times(2)
        .answer(Answer::code(503).retry_after(7).message("try later"));
    api.post(PVS, &volume("a")).await.ok();
    api.post(CMS, &config_map("a")).await.ok();
    let answer = api.post(PVS, &volume("b")).await;
    assert_eq!(answer.headers["retry-after"], "7");
    assert_eq!(answer.body["details"]["retryAfterSeconds"], 7);
    assert_eq!(answer.refused(503, "ServiceUnavailable"), "try later");
    api.post(PVS, &volume("b")).await.refused(503, "ServiceUnavailable");
    assert_eq!(fault.hits(), 2);
    api.post(PVS, &volume("b")).await.ok();
    assert_eq!(fault.hits(), 2);

    faults.on_any().name("special").answer(Answer::code(500));
    api.post(CMS, &config_map("special")).await.refused(500, "InternalError");
    api.get(&format!("{CMS}/special")).await.refused(500, "InternalError");
    api.get(&format!("{CMS}/a")).await.ok();
    faults.clear();
    api.get(&format!("{CMS}/special")).await.refused(404, "NotFound");

    let fault = faults.on(Verb::Patch).subresource("status").forbid();
    let patch = json!({"status": {"phase": "Available"}});
    api.patch(&format!("{PVS}/a/status"), MERGE, &patch).await.refused(403, "Forbidden");
    api.patch(&format!("{PVS}/a"), MERGE, &patch).await.ok();
    fault.clear();
    api.patch(&format!("{PVS}/a/status"), MERGE, &patch).await.ok();
}

async fn connections_are_reset_before_or_after_the_store_acted(api: Api) {
    let faults = api.faults();
    let body = |name: &str| config_map(name).to_string().into_bytes();
    let json = [("content-type", JSON)];
    faults.on(Verb::Create).times(1).reset_before();
    assert!(api.send("POST", CMS, &json, body("a")).await.is_err());
    api.get(&format!("{CMS}/a")).await.refused(404, "NotFound");
    faults.on(Verb::Create).times(1).reset_after();
    assert!(api.send("POST", CMS, &json, body("a")).await.is_err());
    api.get(&format!("{CMS}/a")).await.ok();
    let unanswered = api.requests().count(|r| r.verb == Verb::Create && r.status() == 0);
    assert_eq!(unanswered, 2);
}

async fn running_watches_are_cut(api: Api) {
    let mut claims = api.watch(&format!("{PVCS}?watch=1")).await;
    let mut maps = api.watch(&format!("{CMS}?watch=1")).await;
    api.post(CMS, &config_map("a")).await.ok();
    maps.next().await;
    api.faults().cut_watches("configmaps");
    assert!(maps.try_next().await.is_err(), "cut is not the same as ended");
    claims.expect_silence().await;
    let mut again = api.watch(&format!("{CMS}?watch=1")).await;
    assert_eq!(again.next_short().await, is("ADDED", "a"));
}

async fn a_watch_can_be_told_that_its_version_expired(api: Api) {
    let fault = api.faults().on_any().resource("configmaps").times(1).watch_gone();
    api.get(CMS).await.ok();
    assert_eq!(fault.hits(), 0, "what is no watch has no stale version");
    let mut lines = api.watch(&format!("{CMS}?watch=1&resourceVersion=1")).await;
    assert_eq!(lines.next().await["object"]["code"], 410);
    assert_eq!(fault.hits(), 1);
    api.watch(&format!("{CMS}?watch=1")).await.expect_silence().await;
}

async fn held_watches_are_stale_while_reads_are_fresh(api: Api) {
    let mut lines = api.watch(&format!("{CMS}?watch=1")).await;
    let mut others = api.watch(&format!("{PVS}?watch=1")).await;
    api.post(CMS, &config_map("a")).await.ok();
    assert_eq!(lines.next_short().await, is("ADDED", "a"));
    let hold = api.faults().hold_watches("configmaps");
    api.post(CMS, &config_map("b")).await.ok();
    api.delete(&format!("{CMS}/a"), &Value::Null).await.ok();
    api.post(PVS, &volume("pv")).await.ok();
    assert_eq!(others.next_short().await, is("ADDED", "pv"));
    assert_eq!(names(&api.get(CMS).await.ok()), ["b"]);
    lines.expect_silence().await;
    let mut late = api.watch(&format!("{CMS}?watch=1")).await;
    // What is gone by now, a front can no longer show.
    if !api.is_behind_a_front() {
        assert_eq!(late.next_short().await, is("ADDED", "a"), "a new watch sees the past");
    }
    late.expect_silence().await;
    hold.release();
    for lines in [&mut lines, &mut late] {
        assert_eq!(lines.next_short().await, is("ADDED", "b"));
    }
    assert_eq!(lines.next_short().await, is("DELETED", "a"));
}

async fn a_held_watch_that_times_out_loses_nothing(api: Api) {
    let before = version(&api.post(CMS, &config_map("a")).await.ok()).to_owned();
    let hold = api.faults().hold_watches("configmaps");
    let query = "watch=1&timeoutSeconds=1&allowWatchBookmarks=true";
    let mut lines = api.watch(&format!("{CMS}?{query}&resourceVersion={before}")).await;
    api.post(CMS, &config_map("b")).await.ok();
    let bookmark = lines.next().await;
    assert_eq!((&bookmark["type"], version(&bookmark["object"])), (&json!("BOOKMARK"), &*before));
    assert_eq!(lines.try_next().await.unwrap(), None);
    drop(hold);
    let mut lines = api.watch(&format!("{CMS}?watch=1&resourceVersion={before}")).await;
    assert_eq!(lines.next_short().await, is("ADDED", "b"));
}

async fn every_request_is_on_record(api: Api) {
    let requests = api.requests();
    api.post(CMS, &config_map("a")).await.ok();
    let mark = requests.mark();
    let headers = [("user-agent", "me/1.0")];
    let path = format!("{CMS}/a?pretty=0");
    let body = api.send("GET", &path, &headers, Vec::new()).await.unwrap().ok();
    let seen = requests.since(mark);
    let [get] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(
        (get.verb, get.resource.as_str(), get.name.as_str()),
        (Verb::Get, "configmaps", "a")
    );
    assert_eq!((get.namespace.as_str(), get.path.as_str()), ("default", path.as_str()));
    assert_eq!((get.status(), get.user_agent.as_str()), (200, "me/1.0"));
    assert_eq!(get.bytes(), body.to_string().len() as u64);
    assert!(!get.writes());
    assert_eq!(requests.count(|r| r.verb == Verb::Create && r.writes()), 1);
    api.delete(CMS, &Value::Null).await.ok();
    assert_eq!(requests.count(|r| r.verb == Verb::DeleteCollection), 1);
    api.get("/version").await.ok();
    assert_eq!(requests.all().last().map(|r| r.resource.clone()), Some(String::new()));
}
