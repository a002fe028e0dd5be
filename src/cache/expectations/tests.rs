use axum::Router;
use axum::http::StatusCode;
use kube::Client;
use serde_json::{Value, json};

use crate::metrics::Metrics;
use crate::names::LABEL_HOSTNAME;

use super::*;

fn pv(uid: &str, version: &str) -> Value {
    let metadata = json!({ "name": "pv", "uid": uid, "resourceVersion": version });
    json!({ "metadata": metadata, "spec": {} })
}

fn view(version: &str) -> PvView {
    PvView::from_api(&serde_json::from_value(pv("uid", version)).unwrap())
}

fn node() -> NodeView {
    let metadata = json!({ "name": "n1", "labels": { LABEL_HOSTNAME: "host-1" } });
    NodeView::from_metadata(&serde_json::from_value(metadata).unwrap()).unwrap()
}

/// Expectations whose API server returns `answer` to each read.
fn expectations(answer: Option<&Value>) -> Expectations {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "gone", "reason": "NotFound", "code": 404,
    });
    let answer = answer
        .map_or((StatusCode::NOT_FOUND, status.to_string()), |pv| (StatusCode::OK, pv.to_string()));
    expectations_of(Router::new().fallback(move || std::future::ready(answer.clone())))
}

fn expectations_of(server: Router) -> Expectations {
    let metrics = Arc::new(Metrics::new().unwrap());
    let cluster = Cluster::new(Client::new(server, "default"), metrics);
    let (_, watched) = watch::channel(None);
    Expectations {
        cluster,
        watched,
        node: Arc::new(node()),
        wake: Arc::default(),
        urgent: Arc::default(),
        state: Arc::default(),
    }
}

/// The version that a pass sees while the watch shows `watched`.
fn seen(expectations: &Expectations, watched: Option<PvView>) -> Option<String> {
    let watched = watched.map(|view| ("pv".to_owned(), view));
    let mut views = watched.into_iter().collect();
    expectations.apply_to(&mut views);
    views.remove("pv").map(|view| view.resource_version)
}

#[tokio::test]
async fn pv_that_another_node_has_taken_over_is_gone() {
    let link = "/run/local-volume-provisioner/0123456789abcdef0123456789abcdef";
    for (path, hostname, by, is_gone) in [
        (link, "host-2", "n2", true),
        (link, "host-1", "n2", false),
        // After a change of our hostname.
        (link, "host-2", "n1", false),
        ("/mnt/fast/a", "host-2", "n2", false),
    ] {
        let mut found = pv("uid", "9");
        let by = format!("local-volume-provisioner-{by}");
        found["metadata"]["labels"] = json!({ LABEL_HOSTNAME: hostname });
        found["metadata"]["annotations"] = json!({ "pv.kubernetes.io/provisioned-by": by });
        found["spec"]["local"] = json!({ "path": path });
        let expectations = expectations(Some(&found));
        expectations.left(view("8"));
        assert!(seen(&expectations, None).is_some());
        expectations.read(&view("8").reference()).await;
        let seen = seen(&expectations, None);
        assert_eq!(seen.is_none(), is_gone, "{path} {hostname} {by}");
    }
}

#[tokio::test]
async fn answer_that_the_deletion_of_an_unused_pv_has_overtaken_does_not_count() {
    let offered = || PvView { offer: Some("token".into()), deleting: true, ..view("8") };
    let known = Arc::<Mutex<Option<Expectations>>>::default();
    let shared = Arc::clone(&known);
    let server = Router::new().fallback(move || {
        let expectations = known.lock().clone();
        expectations.unwrap().left(offered());
        std::future::ready(pv("uid", "8").to_string())
    });
    let expectations = expectations_of(server);
    *shared.lock() = Some(expectations.clone());
    expectations.read(&offered().reference()).await;
    assert_eq!(seen(&expectations, None), None);
    assert_eq!(expectations.state.lock().ended.len(), 1);
}

#[tokio::test]
async fn write_counts_until_the_watch_shows_it_or_a_later_version() {
    let expectations = expectations(None);
    for version in ["9", "10"] {
        expectations.expect(view(version));
    }
    for watched in [None, Some(view("8")), Some(view("9"))] {
        assert_eq!(seen(&expectations, watched).as_deref(), Some("10"));
    }
    let later = seen(&expectations, Some(view("11")));
    assert_eq!(later.as_deref(), Some("11"));
    assert!(expectations.state.lock().expected.is_empty());
}

#[tokio::test]
async fn deleted_pv_is_no_longer_expected() {
    let expectations = expectations(None);
    expectations.expect(view("2"));
    for (uid, expected) in [("another", Some("2")), ("uid", None)] {
        let mut deleted = view("3");
        (deleted.uid, deleted.deleting) = (uid.to_owned(), true);
        expectations.left(deleted);
        assert_eq!(seen(&expectations, None).as_deref(), expected);
    }
}

#[tokio::test]
async fn read_settles_what_the_watch_does_not_show() {
    for (found, expected) in [(None, None), (Some(pv("uid", "1")), Some("1"))] {
        let expectations = expectations(found.as_ref());
        expectations.expect(view("2"));
        assert_eq!(seen(&expectations, None).as_deref(), Some("2"));
        let now = Instant::now();
        assert_eq!(expectations.due(now), []);
        let [due] = &expectations.due(now + UNSEEN_WRITE)[..] else {
            panic!("it is not read");
        };
        expectations.read(due).await;
        assert_eq!(seen(&expectations, None).as_deref(), expected);
        assert_eq!(expectations.due(now + UNSEEN_WRITE), []);
    }
}

#[tokio::test]
async fn pv_that_no_watch_shows_is_read_every_minute() {
    let expectations = expectations(Some(&pv("uid", "2")));
    expectations.expect(view("2"));
    let due = |pause| expectations.due(Instant::now() + pause).len();
    assert_eq!(due(UNSEEN_WRITE), 1);
    expectations.read(&view("2").reference()).await;
    assert_eq!((due(UNSEEN_WRITE), due(UNSEEN_READ)), (0, 1));
    assert_eq!(seen(&expectations, None).as_deref(), Some("2"));
}
