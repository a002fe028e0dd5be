//! Lists, selectors, pages, tables, discovery.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod common;

use common::*;
use serde_json::{Value, json};

async fn get_as(api: &Api, path: &str, accept: &str) -> Value {
    api.send("GET", path, &[("accept", accept)], Vec::new())
        .await
        .unwrap()
        .ok()
}

#[tokio::test]
async fn lists_are_sorted_and_limited_to_their_namespace() {
    let api = Api::start().await;
    api.post(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "other"}}),
    )
    .await
    .ok();
    for (ns, name) in [("other", "a"), ("default", "c"), ("default", "b")] {
        api.post(
            &format!("/api/v1/namespaces/{ns}/configmaps"),
            &config_map(name),
        )
        .await
        .ok();
    }
    let list = api.get(CMS).await.ok();
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["apiVersion"], "v1");
    assert_eq!(names(&list), ["b", "c"]);
    assert_eq!(
        list["items"][0]["kind"],
        Value::Null,
        "items do not repeat their kind"
    );
    assert_eq!(
        names(&api.get("/api/v1/configmaps").await.ok()),
        ["b", "c", "a"]
    );
    assert_eq!(
        names(&api.get("/api/v1/namespaces/none/configmaps").await.ok()),
        [""; 0]
    );
    api.post("/api/v1/configmaps", &config_map("x"))
        .await
        .refused(405, "MethodNotAllowed");
}

#[tokio::test]
async fn selectors() {
    let api = Api::start().await;
    for (name, node, tier) in [("a", "n1", "web"), ("b", "n2", "db"), ("c", "", "web")] {
        let mut object = pod(name);
        object["metadata"]["labels"] = json!({"tier": tier});
        if !node.is_empty() {
            object["spec"]["nodeName"] = json!(node);
        }
        api.post(PODS, &object).await.ok();
    }
    for (query, expected) in [
        ("labelSelector=tier%3Dweb", vec!["a", "c"]),
        ("labelSelector=tier+in+%28db%2Cx%29", vec!["b"]),
        ("labelSelector=tier+notin+%28db%29", vec!["a", "c"]),
        ("labelSelector=%21tier", vec![]),
        ("fieldSelector=spec.nodeName%3Dn1", vec!["a"]),
        ("fieldSelector=spec.nodeName%21%3Dn1", vec!["b", "c"]),
        ("fieldSelector=metadata.name%3Dc", vec!["c"]),
        (
            "fieldSelector=metadata.namespace%3Ddefault,metadata.name%3Da",
            vec!["a"],
        ),
        (
            "labelSelector=tier%3Dweb&fieldSelector=spec.nodeName%3D",
            vec!["c"],
        ),
    ] {
        assert_eq!(
            names(&api.get(&format!("{PODS}?{query}")).await.ok()),
            expected,
            "{query}"
        );
    }
    let message = api.get(&format!("{PODS}?fieldSelector=spec.x%3Dy")).await;
    assert!(
        message
            .refused(400, "BadRequest")
            .contains("field label not supported")
    );
    api.get(&format!("{PODS}?labelSelector=a+b"))
        .await
        .refused(400, "BadRequest");
}

#[tokio::test]
async fn pages_show_one_version() {
    let api = Api::start().await;
    for i in 0..5 {
        api.post(CMS, &config_map(&format!("c{i}"))).await.ok();
    }
    let first = api.get(&format!("{CMS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["c0", "c1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    // What happens between two pages is not seen by them.
    api.delete(&format!("{CMS}/c2"), &Value::Null).await.ok();
    api.post(CMS, &config_map("c33")).await.ok();
    let token = first["metadata"]["continue"]
        .as_str()
        .unwrap()
        .replace(':', "%3A")
        .replace('/', "%2F");
    let rest = api
        .get(&format!("{CMS}?limit=10&continue={token}"))
        .await
        .ok();
    assert_eq!(names(&rest), ["c2", "c3", "c4"]);
    assert_eq!(version(&rest), version(&first));
    assert_eq!(rest["metadata"]["continue"], Value::Null);

    api.control_plane.store().compact();
    let message = api
        .get(&format!("{CMS}?continue={token}"))
        .await
        .refused(410, "Expired");
    assert!(
        message.contains("continue parameter is too old"),
        "{message}"
    );
    api.get(&format!("{CMS}?continue=x"))
        .await
        .refused(400, "BadRequest");
}

#[tokio::test]
async fn versions_of_lists() {
    let api = Api::start().await;
    let old = version(&api.post(CMS, &config_map("a")).await.ok()).to_owned();
    let new = version(&api.post(CMS, &config_map("b")).await.ok()).to_owned();
    for query in [
        String::new(),
        "resourceVersion=0".into(),
        format!("resourceVersion={old}"),
    ] {
        let list = api.get(&format!("{CMS}?{query}")).await.ok();
        assert_eq!(
            (names(&list), version(&list)),
            (vec!["a", "b"], new.as_str()),
            "{query}"
        );
    }
    let exact = format!("{CMS}?resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(names(&api.get(&exact).await.ok()), ["a"]);
    api.get(&format!("{CMS}?resourceVersion=999999"))
        .await
        .refused(504, "Timeout");
    api.control_plane.store().compact();
    api.get(&exact).await.refused(410, "Expired");
}

#[tokio::test]
async fn tables_and_metadata_only() {
    let api = Api::start().await;
    api.post(PVS, &volume("a")).await.ok();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = get_as(&api, PVS, accept).await;
    assert_eq!(table["kind"], "Table");
    let headings: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str())
        .collect();
    assert_eq!(
        headings[..4].iter().flatten().collect::<Vec<_>>(),
        [&"Name", &"Capacity", &"Access Modes", &"Reclaim Policy"]
    );
    assert_eq!(table["rows"][0]["cells"][1], "1Gi");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let one = get_as(&api, &format!("{PVS}/a?includeObject=Object"), accept).await;
    assert_eq!(one["rows"][0]["object"]["spec"]["storageClassName"], "fast");

    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = get_as(&api, PVS, accept).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    assert_eq!(list["items"][0]["spec"], Value::Null);

    let accept = "application/vnd.kubernetes.protobuf,application/json";
    assert_eq!(
        get_as(&api, PVS, accept).await["kind"],
        "PersistentVolumeList"
    );
    let accept = "application/vnd.kubernetes.protobuf";
    assert_eq!(
        get_as(&api, PVS, accept).await["kind"],
        "PersistentVolumeList"
    );
}

#[tokio::test]
async fn discovery() {
    let api = Api::start().await;
    assert_eq!(api.get("/api").await.ok()["versions"], json!(["v1"]));
    let groups = api.get("/apis").await.ok();
    let groups: Vec<_> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        groups,
        [
            "apps",
            "batch",
            "coordination.k8s.io",
            "events.k8s.io",
            "rbac.authorization.k8s.io",
            "storage.k8s.io"
        ]
    );
    let batch = api.get("/apis/batch").await.ok();
    assert_eq!(batch["preferredVersion"]["groupVersion"], "batch/v1");
    let core = api.get("/api/v1").await.ok();
    let resource = |name: &str| {
        let resources = core["resources"].as_array().unwrap();
        resources
            .iter()
            .find(|r| r["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(resource("persistentvolumes")["shortNames"], json!(["pv"]));
    assert_eq!(resource("persistentvolumes")["namespaced"], false);
    assert_eq!(
        resource("persistentvolumes/status")["kind"],
        "PersistentVolume"
    );
    api.get("/apis/batch/v2").await.refused(404, "NotFound");
    api.get("/apis/none").await.refused(404, "NotFound");
    api.get("/nonsense").await.refused(404, "NotFound");
    for path in ["/healthz", "/readyz", "/livez"] {
        assert_eq!(api.get(path).await.ok(), "ok");
    }
    assert_eq!(api.get("/version").await.ok()["major"], "1");
    let schemas = api.get("/openapi/v3").await.ok();
    let url = schemas["paths"]["apis/batch/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let document = api.get(&url).await.ok();
    let patch = &document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Job");
}
