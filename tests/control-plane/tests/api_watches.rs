//! Watches.

mod common;

use std::time::{Duration, Instant};

use common::*;
use control_plane::Options;
use serde_json::Value;

#[tokio::test]
async fn bookmarks_and_timeouts() {
    let bookmarks = Duration::from_millis(50);
    let api = Api::with(Options { controllers: false, bookmarks, ..Options::default() }).await;
    let version = version(&api.post(CMS, &config_map("a")).await.ok()).to_owned();
    let watch = format!("{CMS}?watch=1&resourceVersion={version}");
    let is_bookmark = |event: Value| {
        assert_eq!(event["type"], "BOOKMARK");
        assert_eq!(event["object"]["kind"], "ConfigMap");
        assert_eq!(common::version(&event["object"]), version);
    };
    let mut lines = api.watch(&format!("{watch}&allowWatchBookmarks=true")).await;
    for _ in 0..2 {
        is_bookmark(lines.next().await);
    }
    let watch = format!("{watch}&timeoutSeconds=1");
    let begin = Instant::now();
    let mut lines = api.watch(&format!("{watch}&allowWatchBookmarks=true")).await;
    while let Some(event) = lines.try_next().await.unwrap() {
        is_bookmark(event);
    }
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    let mut lines = api.watch(&watch).await;
    assert_eq!(lines.try_next().await.unwrap(), None, "no bookmarks were requested");
}
