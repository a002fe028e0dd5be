//! The subresource `proxy` of pods.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use axum::{
    Router,
    http::{HeaderMap, Method, StatusCode, Uri},
};
use common::*;
use control_plane::requests::Verb;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A port at which no program listens.
const CLOSED_PORT: u16 = 1;

/// Serves, as a pod does, the request as it arrived; returns the port.
async fn echo() -> u16 {
    let echo = |method: Method, uri: Uri, headers: HeaderMap| async move {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let seen = json!({
            "method": method.as_str(), "uri": uri.to_string(), "host": text("host"),
            "custom": text("x-custom"), "authorization": text("authorization"),
        });
        (StatusCode::IM_A_TEAPOT, [("x-pod", "yes")], seen.to_string())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(echo)).await });
    port
}

/// Creates a pod with these containers at an address.
async fn create(api: &Api, name: &str, containers: Value, ip: &str) {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": containers}});
    api.post(PODS, &pod).await.ok();
    let status = json!({"status": {"podIP": ip}});
    let path = format!("{PODS}/{name}/status");
    api.patch(&path, MERGE, &status).await.ok();
}

fn container(name: &str, ports: &[u16]) -> Value {
    let ports: Vec<_> = ports.iter().map(|port| json!({"containerPort": port})).collect();
    json!({"name": name, "image": "i", "ports": ports})
}

#[tokio::test]
async fn requests_reach_the_first_port_or_the_named_one() {
    let api = Api::start().await;
    let (first, second) = (echo().await, echo().await);
    let containers = json!([container("a", &[]), container("b", &[first, second])]);
    create(&api, "p", containers, "127.0.0.1").await;
    for (path, port, uri) in [
        ("p/proxy/", first, "/"),
        ("p/proxy/status", first, "/status"),
        ("p/proxy/a%2Fb/proxy/?x=/1&y", first, "/a%2Fb/proxy/?x=/1&y"),
        (&format!("p:{second}/proxy/status"), second, "/status"),
        (&format!("http:p:{second}/proxy/"), second, "/"),
    ] {
        let headers = [("x-custom", "1"), ("authorization", "Bearer secret")];
        let path = format!("{PODS}/{path}");
        let answer = api.send("GET", &path, &headers, Vec::new()).await.unwrap();
        assert_eq!(answer.code, 418, "{path}: {}", answer.body);
        assert_eq!(answer.headers["x-pod"], "yes");
        let seen = json!({
            "method": "GET", "uri": uri, "host": format!("127.0.0.1:{port}"),
            "custom": "1", "authorization": null,
        });
        assert_eq!(answer.body, seen, "{path}");
    }
    let path = format!("{PODS}/p/proxy");
    let answer = api.get(&format!("{path}?x=/1")).await;
    assert_eq!(answer.code, 301);
    assert_eq!(answer.headers["location"], format!("{path}/?x=/1"));
}

#[tokio::test]
async fn pods_that_cannot_be_reached_are_errors() {
    let api = Api::start().await;
    let containers = json!([container("c", &[CLOSED_PORT])]);
    create(&api, "closed", containers.clone(), "127.0.0.1").await;
    for (name, ip) in [("none", ""), ("all", "0.0.0.0"), ("group", "224.0.0.1")] {
        create(&api, name, containers.clone(), ip).await;
        let answer = api.get(&format!("{PODS}/{name}/proxy/status")).await;
        assert_eq!(answer.refused(400, "BadRequest"), "address not allowed");
    }
    let ask = async |path: &str| api.get(&format!("{PODS}/{path}")).await;
    let message = ask("closed/proxy/status").await;
    let message = message.refused(503, "ServiceUnavailable");
    let begin =
        format!("error trying to reach service: dial tcp 127.0.0.1:{CLOSED_PORT}: connect: ");
    assert!(message.starts_with(&begin), "{message}");
    ask("unknown/proxy/status").await.refused(404, "NotFound");
    for name in ["https:closed:1", "closed:65536", "a:b:c:d"] {
        let answer = ask(&format!("{name}/proxy/status")).await;
        answer.refused(400, "BadRequest");
    }
    // Other subresources have no path, and nothing but a pod has a proxy.
    for path in ["closed/log/x", "closed/status/", "closed/status/x"] {
        ask(path).await.refused(404, "NotFound");
    }
    let claim = format!("{PVCS}/c/proxy/");
    api.get(&claim).await.refused(404, "NotFound");
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let path = format!("{PODS}/closed/proxy/status");
        let answer = api.with_body(method, &path, JSON, &json!({})).await;
        answer.refused(405, "MethodNotAllowed");
    }
}

#[tokio::test]
async fn a_permission_for_the_subresource_is_denied_by_its_name() {
    for api in [Api::start().await, Api::behind_a_front().await] {
        let containers = json!([container("c", &[echo().await])]);
        create(&api, "p", containers, "127.0.0.1").await;
        let path = format!("{PODS}/p/proxy/status");
        let mark = api.requests().mark();
        assert_eq!(api.get(&path).await.code, 418);
        let proxied = api.faults().on(Verb::Get).resource("pods");
        proxied.subresource("proxy").forbid();
        let message = api.get(&path).await.refused(403, "Forbidden");
        let part = r#"cannot get resource "pods/proxy" in API group """#;
        assert!(message.contains(part), "{message}");
        api.get(&format!("{PODS}/p")).await.ok();
        let codes: Vec<_> = api
            .requests()
            .since(mark)
            .iter()
            .map(|request| (request.subresource.clone(), request.name.clone(), request.status()))
            .collect();
        let proxied = |code| ("proxy".to_owned(), "p".to_owned(), code);
        assert_eq!(codes, [proxied(418), proxied(403), (String::new(), "p".into(), 200)]);
    }
}
