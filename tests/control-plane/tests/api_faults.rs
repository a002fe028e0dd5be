//! Injected faults and the record of requests.

mod common;

use std::time::{Duration, Instant};

use common::*;
use control_plane::{faults::Answer, requests::Verb};
use serde_json::{Value, json};

#[tokio::test]
async fn errors_by_verb_resource_and_name_so_many_times() {
    let api = Api::start().await;
    let faults = api.control_plane.faults();
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
    api.post(PVS, &volume("b"))
        .await
        .refused(503, "ServiceUnavailable");
    assert_eq!(fault.hits(), 2);
    api.post(PVS, &volume("b")).await.ok();
    assert_eq!(fault.hits(), 2);

    faults.on_any().name("special").answer(Answer::code(500));
    api.post(CMS, &config_map("special"))
        .await
        .refused(500, "InternalError");
    api.get(&format!("{CMS}/special"))
        .await
        .refused(500, "InternalError");
    api.get(&format!("{CMS}/a")).await.ok();
    faults.clear();
    api.get(&format!("{CMS}/special"))
        .await
        .refused(404, "NotFound");

    let fault = faults.on(Verb::Patch).subresource("status").forbid();
    let patch = json!({"status": {"phase": "Available"}});
    api.patch(&format!("{PVS}/a/status"), MERGE, &patch)
        .await
        .refused(403, "Forbidden");
    api.patch(&format!("{PVS}/a"), MERGE, &patch).await.ok();
    fault.clear();
    api.patch(&format!("{PVS}/a/status"), MERGE, &patch)
        .await
        .ok();
}

#[tokio::test]
async fn connections_are_reset_before_or_after_the_store_acted() {
    let api = Api::start().await;
    let faults = api.control_plane.faults();
    let body = |name: &str| config_map(name).to_string().into_bytes();
    let json = [("content-type", JSON)];
    faults.on(Verb::Create).times(1).reset_before();
    assert!(api.send("POST", CMS, &json, body("a")).await.is_err());
    api.get(&format!("{CMS}/a")).await.refused(404, "NotFound");
    faults.on(Verb::Create).times(1).reset_after();
    assert!(api.send("POST", CMS, &json, body("a")).await.is_err());
    api.get(&format!("{CMS}/a")).await.ok();
    let unanswered = api
        .control_plane
        .requests()
        .count(|r| r.verb == Verb::Create && r.status() == 0);
    assert_eq!(unanswered, 2);
}

#[tokio::test]
async fn latency_adds_up_with_what_follows() {
    let api = Api::start().await;
    let faults = api.control_plane.faults();
    faults.on(Verb::Get).latency(Duration::from_millis(60));
    faults.on(Verb::Get).latency(Duration::from_millis(60));
    faults.on(Verb::Get).answer(Answer::code(500));
    let begin = Instant::now();
    api.get(&format!("{CMS}/a"))
        .await
        .refused(500, "InternalError");
    assert!(
        begin.elapsed() >= Duration::from_millis(120),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test]
async fn running_watches_are_cut() {
    let api = Api::start().await;
    let mut claims = api.watch(&format!("{PVCS}?watch=1")).await;
    let mut maps = api.watch(&format!("{CMS}?watch=1")).await;
    api.post(CMS, &config_map("a")).await.ok();
    maps.next().await;
    api.control_plane.faults().cut_watches("configmaps");
    assert!(
        maps.try_next().await.is_err(),
        "cut is not the same as ended"
    );
    claims.expect_silence().await;
    let mut again = api.watch(&format!("{CMS}?watch=1")).await;
    assert_eq!(again.next_short().await, is("ADDED", "a"));
}

#[tokio::test]
async fn a_watch_can_be_told_that_its_version_expired() {
    let api = Api::start().await;
    let fault = api
        .control_plane
        .faults()
        .on(Verb::Watch)
        .resource("configmaps")
        .times(1)
        .watch_gone();
    let mut lines = api.watch(&format!("{CMS}?watch=1&resourceVersion=1")).await;
    assert_eq!(lines.next().await["object"]["code"], 410);
    assert_eq!(fault.hits(), 1);
    api.watch(&format!("{CMS}?watch=1"))
        .await
        .expect_silence()
        .await;
}

#[tokio::test]
async fn held_watches_are_stale_while_reads_are_fresh() {
    let api = Api::start().await;
    let mut lines = api.watch(&format!("{CMS}?watch=1")).await;
    let mut others = api.watch(&format!("{PVS}?watch=1")).await;
    api.post(CMS, &config_map("a")).await.ok();
    assert_eq!(lines.next_short().await, is("ADDED", "a"));
    let hold = api.control_plane.faults().hold_watches("configmaps");
    api.post(CMS, &config_map("b")).await.ok();
    api.delete(&format!("{CMS}/a"), &Value::Null).await.ok();
    api.post(PVS, &volume("pv")).await.ok();
    assert_eq!(others.next_short().await, is("ADDED", "pv"));
    assert_eq!(names(&api.get(CMS).await.ok()), ["b"]);
    lines.expect_silence().await;
    let mut late = api.watch(&format!("{CMS}?watch=1")).await;
    assert_eq!(
        late.next_short().await,
        is("ADDED", "a"),
        "a new watch sees the past"
    );
    late.expect_silence().await;
    hold.release();
    for lines in [&mut lines, &mut late] {
        assert_eq!(lines.next_short().await, is("ADDED", "b"));
        assert_eq!(lines.next_short().await, is("DELETED", "a"));
    }
}

#[tokio::test]
async fn a_held_watch_that_times_out_loses_nothing() {
    let api = Api::start().await;
    let before = version(&api.post(CMS, &config_map("a")).await.ok()).to_owned();
    let hold = api.control_plane.faults().hold_watches("configmaps");
    let query = "watch=1&timeoutSeconds=1&allowWatchBookmarks=true";
    let mut lines = api
        .watch(&format!("{CMS}?{query}&resourceVersion={before}"))
        .await;
    api.post(CMS, &config_map("b")).await.ok();
    let bookmark = lines.next().await;
    assert_eq!(
        (&bookmark["type"], version(&bookmark["object"])),
        (&json!("BOOKMARK"), &*before)
    );
    assert_eq!(lines.try_next().await.unwrap(), None);
    drop(hold);
    let mut lines = api
        .watch(&format!("{CMS}?watch=1&resourceVersion={before}"))
        .await;
    assert_eq!(lines.next_short().await, is("ADDED", "b"));
}

#[tokio::test]
async fn watches_can_lag() {
    let api = Api::start().await;
    let delay = Duration::from_millis(200);
    let lag = api
        .control_plane
        .faults()
        .delay_watches("configmaps", delay);
    let mut lines = api.watch(&format!("{CMS}?watch=1")).await;
    let begin = Instant::now();
    for name in ["a", "b", "c"] {
        api.post(CMS, &config_map(name)).await.ok();
    }
    for name in ["a", "b", "c"] {
        assert_eq!(lines.next_short().await, is("ADDED", name));
    }
    let took = begin.elapsed();
    assert!(
        took >= delay && took < 3 * delay,
        "each event lags, they do not queue: {took:?}"
    );
    drop(lag);
    let begin = Instant::now();
    api.post(CMS, &config_map("d")).await.ok();
    lines.next().await;
    assert!(begin.elapsed() < delay);
}

#[tokio::test]
async fn every_request_is_on_record() {
    let api = Api::start().await;
    let requests = api.control_plane.requests();
    api.post(CMS, &config_map("a")).await.ok();
    let mark = requests.mark();
    let headers = [("user-agent", "me/1.0")];
    let path = format!("{CMS}/a?pretty=0");
    let body = api
        .send("GET", &path, &headers, Vec::new())
        .await
        .unwrap()
        .ok();
    let seen = requests.since(mark);
    let [get] = seen.as_slice() else {
        panic!("{seen:?}")
    };
    assert_eq!(
        (get.verb, get.resource.as_str(), get.name.as_str()),
        (Verb::Get, "configmaps", "a")
    );
    assert_eq!(
        (get.namespace.as_str(), get.path.as_str()),
        ("default", path.as_str())
    );
    assert_eq!((get.status(), get.user_agent.as_str()), (200, "me/1.0"));
    assert_eq!(get.bytes(), body.to_string().len() as u64);
    assert!(!get.writes());
    assert_eq!(requests.count(|r| r.verb == Verb::Create && r.writes()), 1);
    api.delete(CMS, &Value::Null).await.ok();
    assert_eq!(requests.count(|r| r.verb == Verb::DeleteCollection), 1);
    api.get("/version").await.ok();
    assert_eq!(
        requests.all().last().map(|r| r.resource.clone()),
        Some(String::new())
    );
}

#[tokio::test]
async fn a_watch_counts_its_bytes_while_it_streams() {
    let api = Api::start().await;
    let requests = api.control_plane.requests();
    let mark = requests.mark();
    let mut lines = api.watch(&format!("{CMS}?watch=1")).await;
    let watch = requests
        .wait_for(mark, SOON, |r| r.verb == Verb::Watch)
        .await
        .unwrap();
    assert_eq!(watch.bytes(), 0);
    api.post(CMS, &config_map("a")).await.ok();
    let first = lines.next().await.to_string().len() as u64;
    assert_eq!(watch.bytes(), first + 1, "the line and its end");
    let mark = requests.mark();
    let nothing = requests.wait_for(mark, A_MOMENT, |_| true).await;
    assert!(
        nothing.is_none(),
        "an idle watch asks for nothing: {nothing:?}"
    );
}
