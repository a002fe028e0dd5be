//! Objects: create, get, update, patch, delete, and what the server does to them on the way.

mod common;

use common::*;
use serde_json::{Value, json};

#[tokio::test]
async fn a_created_object_carries_system_fields_and_defaults() {
    let api = Api::start().await;
    let answer = api.post(PVS, &volume("a")).await;
    assert_eq!(answer.code, 201);
    let created = answer.ok();
    let metadata = &created["metadata"];
    assert_eq!(created["kind"], "PersistentVolume");
    assert_eq!(created["apiVersion"], "v1");
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert!(
        metadata["creationTimestamp"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    assert_eq!(
        metadata["finalizers"],
        json!(["kubernetes.io/pv-protection"])
    );
    assert_eq!(created["spec"]["volumeMode"], "Filesystem");
    assert_eq!(created["status"]["phase"], "Pending");
    assert_eq!(api.get(&format!("{PVS}/a")).await.ok(), created);

    let created = api.post(PVCS, &claim("c")).await.ok();
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(
        created["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
    assert_eq!(created["status"]["phase"], "Pending");
}

#[tokio::test]
async fn what_the_client_says_about_system_fields_is_ignored() {
    let api = Api::start().await;
    let mut object = config_map("a");
    object["metadata"]["uid"] = json!("mine");
    object["metadata"]["creationTimestamp"] = json!("1999-01-01T00:00:00Z");
    object["metadata"]["deletionTimestamp"] = json!("1999-01-01T00:00:00Z");
    let created = api.post(CMS, &object).await.ok();
    assert_ne!(created["metadata"]["uid"], "mine");
    assert_ne!(
        created["metadata"]["creationTimestamp"],
        "1999-01-01T00:00:00Z"
    );
    assert_eq!(created["metadata"]["deletionTimestamp"], Value::Null);
}

#[tokio::test]
async fn quantities_are_kept_canonical() {
    let api = Api::start().await;
    let mut object = volume("a");
    object["spec"]["capacity"]["storage"] = json!("1.5Gi");
    let created = api.post(PVS, &object).await.ok();
    assert_eq!(created["spec"]["capacity"]["storage"], "1536Mi");
    object["spec"]["capacity"]["storage"] = json!("1.5GiB");
    object["metadata"]["name"] = json!("b");
    api.post(PVS, &object).await.refused(400, "BadRequest");
}

#[tokio::test]
async fn one_version_counts_all_writes() {
    let api = Api::start().await;
    let version = |o: &Value| version(o).parse::<u64>().unwrap();
    let first = version(&api.post(CMS, &config_map("a")).await.ok());
    let second = version(&api.post(PVS, &volume("a")).await.ok());
    let mut object = api.get(&format!("{CMS}/a")).await.ok();
    object["data"]["k"] = json!("w");
    let third = version(&api.put(&format!("{CMS}/a"), &object).await.ok());
    assert!(first < second && second < third);
    assert_eq!(version(&api.get(CMS).await.ok()), third);
}

#[tokio::test]
async fn an_update_that_changes_nothing_is_no_write() {
    let api = Api::start().await;
    let created = api.post(PVS, &volume("a")).await.ok();
    let same = api.put(&format!("{PVS}/a"), &created).await.ok();
    assert_eq!(version(&same), version(&created));
    let patch = json!({"metadata": {"labels": {"example.com/owner": "me"}}});
    let same = api.patch(&format!("{PVS}/a"), MERGE, &patch).await.ok();
    assert_eq!(version(&same), version(&created));
}

#[tokio::test]
async fn names_taken_missing_and_generated() {
    let api = Api::start().await;
    api.post(PVS, &volume("a")).await.ok();
    let message = api
        .post(PVS, &volume("a"))
        .await
        .refused(409, "AlreadyExists");
    assert_eq!(message, "persistentvolumes \"a\" already exists");
    let message = api.get(&format!("{PVS}/b")).await.refused(404, "NotFound");
    assert_eq!(message, "persistentvolumes \"b\" not found");
    let missing = api.get("/apis/batch/v1/namespaces/default/jobs/x").await;
    assert_eq!(
        missing.refused(404, "NotFound"),
        "jobs.batch \"x\" not found"
    );
    api.post(CMS, &json!({"metadata": {}}))
        .await
        .refused(422, "Invalid");
    api.post(CMS, &config_map("Upper"))
        .await
        .refused(422, "Invalid");

    let generated = json!({"metadata": {"generateName": "x".repeat(70)}});
    let one = api.post(CMS, &generated).await.ok();
    let two = api.post(CMS, &generated).await.ok();
    assert_eq!(one["metadata"]["name"].as_str().unwrap().len(), 63);
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test]
async fn namespaces_must_exist_and_live() {
    let api = Api::start().await;
    let namespaces = api.get("/api/v1/namespaces").await.ok();
    assert_eq!(names(&namespaces), ["default", "kube-system"]);
    let there = "/api/v1/namespaces/other/configmaps";
    let message = api
        .post(there, &config_map("a"))
        .await
        .refused(404, "NotFound");
    assert_eq!(message, "namespaces \"other\" not found");
    api.post(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "other"}}),
    )
    .await
    .ok();
    api.post(there, &config_map("a")).await.ok();

    let mut elsewhere = config_map("b");
    elsewhere["metadata"]["namespace"] = json!("default");
    api.post(there, &elsewhere).await.refused(400, "BadRequest");

    let deleted = api
        .delete("/api/v1/namespaces/other", &Value::Null)
        .await
        .ok();
    assert_eq!(deleted["status"]["phase"], "Terminating");
    let message = api
        .post(there, &config_map("c"))
        .await
        .refused(403, "Forbidden");
    assert!(message.contains("it is being terminated"), "{message}");

    let mut finalized = api.get("/api/v1/namespaces/other").await.ok();
    finalized["spec"]["finalizers"] = json!([]);
    api.put("/api/v1/namespaces/other", &finalized).await.ok();
    api.get("/api/v1/namespaces/other").await.ok();
    api.put("/api/v1/namespaces/other/finalize", &finalized)
        .await
        .ok();
    api.get("/api/v1/namespaces/other")
        .await
        .refused(404, "NotFound");
}

#[tokio::test]
async fn updates_need_the_current_version_and_the_same_identity() {
    let api = Api::start().await;
    let path = format!("{CMS}/a");
    let first = api.post(CMS, &config_map("a")).await.ok();
    let mut second = first.clone();
    second["data"]["k"] = json!("w");
    api.put(&path, &second).await.ok();
    let message = api.put(&path, &first).await.refused(409, "Conflict");
    assert!(
        message.contains("the object has been modified"),
        "{message}"
    );

    // Without a version the last writer wins.
    second["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    second["data"]["k"] = json!("x");
    api.put(&path, &second).await.ok();

    let mut stranger = second.clone();
    stranger["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let message = api.put(&path, &stranger).await.refused(409, "Conflict");
    assert!(message.contains("UID in precondition"), "{message}");
    let mut renamed = second.clone();
    renamed["metadata"]["name"] = json!("b");
    api.put(&path, &renamed).await.refused(400, "BadRequest");
    api.put(&format!("{CMS}/b"), &renamed)
        .await
        .refused(404, "NotFound");

    let stale = json!({"metadata": {"resourceVersion": version(&first)}, "data": {"z": "1"}});
    api.patch(&path, MERGE, &stale)
        .await
        .refused(409, "Conflict");
}

#[tokio::test]
async fn status_and_main_part_are_written_apart() {
    let api = Api::start().await;
    let (whole, status) = (format!("{PVS}/a"), format!("{PVS}/a/status"));
    let mut object = volume("a");
    object["status"] = json!({"phase": "Bound"});
    let mut object = api.post(PVS, &object).await.ok();
    assert_eq!(
        object["status"]["phase"], "Pending",
        "a status cannot be created"
    );

    object["status"]["phase"] = json!("Available");
    object["spec"]["storageClassName"] = json!("slow");
    let main = api.put(&whole, &object).await.ok();
    assert_eq!(main["spec"]["storageClassName"], "slow");
    assert_eq!(main["status"]["phase"], "Pending");

    let both = json!({"spec": {"storageClassName": "x"}, "status": {"phase": "Available"}});
    let both = api.patch(&status, MERGE, &both).await.ok();
    assert_eq!(both["spec"]["storageClassName"], "slow");
    assert_eq!(both["status"]["phase"], "Available");
    assert!(both["status"]["lastPhaseTransitionTime"].is_string());
    assert_eq!(api.get(&status).await.ok(), both);

    api.get(&format!("{CMS}/a/status"))
        .await
        .refused(404, "NotFound");
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec() {
    let api = Api::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let path = format!("{jobs}/j");
    let created = api.post(jobs, &job("j")).await.ok();
    assert_eq!(created["metadata"]["generation"], 1);
    let uid = &created["metadata"]["uid"];
    let labels = &created["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["batch.kubernetes.io/controller-uid"], *uid);
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let same = api.patch(&path, MERGE, &labelled).await.ok();
    assert_eq!(same["metadata"]["generation"], 1);
    let suspended = api
        .patch(&path, MERGE, &json!({"spec": {"suspend": true}}))
        .await
        .ok();
    assert_eq!(suspended["metadata"]["generation"], 2);
    let status = json!({"status": {"active": 1}});
    let same = api
        .patch(&format!("{path}/status"), MERGE, &status)
        .await
        .ok();
    assert_eq!(same["metadata"]["generation"], 2);

    let image =
        json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "x"}]);
    let message = api
        .patch(&path, JSON_PATCH, &image)
        .await
        .refused(422, "Invalid");
    assert!(message.contains("field is immutable"), "{message}");
}

#[tokio::test]
async fn patches() {
    let api = Api::start().await;
    let path = format!("{PVS}/a");
    api.post(PVS, &volume("a")).await.ok();
    let merged = json!({"metadata": {"labels": {"x": "1", "example.com/owner": null}}});
    let object = api.patch(&path, MERGE, &merged).await.ok();
    assert_eq!(object["metadata"]["labels"], json!({"x": "1"}));

    let finalizer = json!({"metadata": {"finalizers": ["example.com/f"]}});
    let object = api.patch(&path, STRATEGIC, &finalizer).await.ok();
    let both = json!(["example.com/f", "kubernetes.io/pv-protection"]);
    assert_eq!(object["metadata"]["finalizers"], both, "finalizers merge");

    let failed_test = json!([{"op": "test", "path": "/metadata/labels/x", "value": "2"}]);
    api.patch(&path, JSON_PATCH, &failed_test)
        .await
        .refused(422, "Invalid");
    let replaced = json!([
        {"op": "test", "path": "/metadata/labels/x", "value": "1"},
        {"op": "replace", "path": "/metadata/labels/new", "value": "y"},
    ]);
    let object = api.patch(&path, JSON_PATCH, &replaced).await.ok();
    assert_eq!(
        object["metadata"]["labels"]["new"], "y",
        "replace of a missing key creates it"
    );

    api.patch(&path, JSON, &json!({}))
        .await
        .refused(415, "UnsupportedMediaType");
    api.patch(&path, JSON_PATCH, &json!({"op": "add"}))
        .await
        .refused(400, "BadRequest");
    api.patch(&format!("{PVS}/b"), MERGE, &merged)
        .await
        .refused(404, "NotFound");
    let moved = json!({"spec": {"local": {"path": "/elsewhere"}}});
    let message = api
        .patch(&path, MERGE, &moved)
        .await
        .refused(422, "Invalid");
    assert!(
        message.contains("spec.persistentvolumesource is immutable"),
        "{message}"
    );
}

#[tokio::test]
async fn server_side_apply() {
    let api = Api::start().await;
    let path = |manager: &str| format!("{CMS}/a?fieldManager={manager}");
    let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    let first = config(json!({"k": "1", "l": "1"}));
    let created = api.patch(&path("me"), APPLY, &first).await;
    assert_eq!(created.code, 201);
    let created = created.ok();
    let again = api.patch(&path("me"), APPLY, &first).await;
    assert_eq!(again.code, 200);
    assert_eq!(version(&again.ok()), version(&created), "nothing changed");

    let dropped = api
        .patch(&path("me"), APPLY, &config(json!({"k": "1"})))
        .await
        .ok();
    assert_eq!(dropped["data"], json!({"k": "1"}));
    let other = config(json!({"k": "2"}));
    let message = api
        .patch(&path("you"), APPLY, &other)
        .await
        .refused(409, "Conflict");
    assert!(
        message.contains("conflict with \"me\": .data.k"),
        "{message}"
    );
    let forced = api
        .patch(&format!("{}&force=true", path("you")), APPLY, &other)
        .await
        .ok();
    assert_eq!(forced["data"]["k"], "2");

    let edited = json!({"data": {"k": "3"}});
    api.patch(&path("editor"), MERGE, &edited).await.ok();
    let message = api
        .patch(&path("you"), APPLY, &other)
        .await
        .refused(409, "Conflict");
    assert!(message.contains("conflict with \"editor\""), "{message}");
    api.patch(&format!("{CMS}/a"), APPLY, &other)
        .await
        .refused(422, "Invalid");

    let yaml = "apiVersion: v1\nkind: ConfigMap\ndata:\n  k: text\n"
        .as_bytes()
        .to_vec();
    let path = format!("{CMS}/yaml?fieldManager=me");
    let answer = api
        .send("PATCH", &path, &[("content-type", APPLY)], yaml)
        .await
        .unwrap();
    assert_eq!(answer.ok()["data"]["k"], "text");
}

#[tokio::test]
async fn deletion_with_preconditions() {
    let api = Api::start().await;
    let path = format!("{CMS}/a");
    let created = api.post(CMS, &config_map("a")).await.ok();
    let on = |field: &str, value: &str| json!({"preconditions": {field: value}});
    let message = api
        .delete(&path, &on("uid", "other"))
        .await
        .refused(409, "Conflict");
    assert!(
        message.contains("the UID in the precondition (other) does not match"),
        "{message}"
    );
    api.delete(&path, &on("resourceVersion", "1"))
        .await
        .refused(409, "Conflict");
    api.delete(&path, &on("resourceVersion", version(&created)))
        .await
        .ok();
    api.delete(&path, &Value::Null)
        .await
        .refused(404, "NotFound");
}

#[tokio::test]
async fn deletion_answers_with_the_object_or_with_a_status() {
    let api = Api::start().await;
    let class = json!({"metadata": {"name": "s"}, "provisioner": "p"});
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    api.post(classes, &class).await.ok();
    let deleted = api.delete(&format!("{classes}/s"), &Value::Null).await.ok();
    assert_eq!(deleted["kind"], "StorageClass");
    let created = api.post(CMS, &config_map("a")).await.ok();
    let deleted = api.delete(&format!("{CMS}/a"), &Value::Null).await.ok();
    assert_eq!(
        (&deleted["kind"], &deleted["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(deleted["details"]["uid"], created["metadata"]["uid"]);
}

#[tokio::test]
async fn finalizers_hold_a_terminating_object() {
    let api = Api::start().await;
    let path = format!("{CMS}/a");
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    api.post(CMS, &object).await.ok();
    let deleted = api.delete(&path, &Value::Null).await.ok();
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    let again = api.delete(&path, &Value::Null).await.ok();
    assert_eq!(
        version(&again),
        version(&deleted),
        "deleting twice changes nothing"
    );

    let more = json!({"metadata": {"finalizers": ["example.com/one", "example.com/three"]}});
    let message = api.patch(&path, MERGE, &more).await.refused(422, "Invalid");
    assert!(
        message.contains("no new finalizers can be added"),
        "{message}"
    );
    let undead = json!({"metadata": {"deletionTimestamp": null}});
    let same = api.patch(&path, MERGE, &undead).await.ok();
    assert!(same["metadata"]["deletionTimestamp"].is_string());

    let one = json!({"metadata": {"finalizers": ["example.com/two"]}});
    api.patch(&path, MERGE, &one).await.ok();
    api.get(&path).await.ok();
    let none = json!({"metadata": {"finalizers": null}});
    api.patch(&path, MERGE, &none).await.ok();
    api.get(&path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn propagation_policies_leave_their_finalizers() {
    let api = Api::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    api.post(jobs, &job("j")).await.ok();
    let answer = api.delete(&format!("{jobs}/j"), &Value::Null).await;
    let warning = answer.headers["warning"].to_str().unwrap().to_owned();
    assert!(
        warning.contains("child pods are preserved by default"),
        "{warning}"
    );
    assert_eq!(answer.ok()["metadata"]["finalizers"], json!(["orphan"]));

    api.post(CMS, &config_map("a")).await.ok();
    let foreground = json!({"propagationPolicy": "Foreground"});
    let object = api.delete(&format!("{CMS}/a"), &foreground).await.ok();
    assert_eq!(
        object["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    let odd = json!({"propagationPolicy": "Sideways"});
    api.delete(&format!("{CMS}/a"), &odd)
        .await
        .refused(422, "Invalid");
}

#[tokio::test]
async fn pods_on_a_node_stop_gracefully() {
    let api = Api::start().await;
    let (path, now) = (format!("{PODS}/p"), json!({"gracePeriodSeconds": 0}));
    let mut running = pod("p");
    running["spec"]["nodeName"] = json!("n1");
    api.post(PODS, &running).await.ok();
    let deleted = api.delete(&path, &Value::Null).await.ok();
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 30);
    let deleted = api
        .delete(&path, &json!({"gracePeriodSeconds": 5}))
        .await
        .ok();
    assert_eq!(
        deleted["metadata"]["deletionGracePeriodSeconds"], 5,
        "it can only get shorter"
    );
    let deleted = api
        .delete(&path, &json!({"gracePeriodSeconds": 60}))
        .await
        .ok();
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 5);
    api.delete(&path, &now).await.ok();
    api.get(&path).await.refused(404, "NotFound");

    api.post(PODS, &pod("p")).await.ok();
    api.delete(&path, &Value::Null).await.ok();
    api.get(&path).await.refused(404, "NotFound");

    api.post(PODS, &running).await.ok();
    api.patch(
        &format!("{path}/status"),
        MERGE,
        &json!({"status": {"phase": "Succeeded"}}),
    )
    .await
    .ok();
    api.delete(&path, &Value::Null).await.ok();
    api.get(&path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let api = Api::start().await;
    for name in ["a", "b", "c"] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"keep": (name == "b").to_string()});
        api.post(CMS, &object).await.ok();
    }
    let gone = api
        .delete(&format!("{CMS}?labelSelector=keep%21%3Dtrue"), &Value::Null)
        .await
        .ok();
    assert_eq!(names(&gone), ["a", "c"]);
    assert_eq!(names(&api.get(CMS).await.ok()), ["b"]);
}

#[tokio::test]
async fn dry_runs_answer_but_change_nothing() {
    let api = Api::start().await;
    let a = format!("{CMS}/a");
    let created = api
        .post(&format!("{CMS}?dryRun=All"), &config_map("a"))
        .await
        .ok();
    assert!(created["metadata"]["uid"].is_string());
    api.get(&a).await.refused(404, "NotFound");
    let created = api.post(CMS, &config_map("a")).await.ok();
    api.post(&format!("{CMS}?dryRun=All"), &config_map("a"))
        .await
        .refused(409, "AlreadyExists");
    let patch = json!({"data": {"k": "w"}});
    let patched = api
        .patch(&format!("{a}?dryRun=All"), MERGE, &patch)
        .await
        .ok();
    assert_eq!(patched["data"]["k"], "w");
    api.delete(&a, &json!({"dryRun": ["All"]})).await.ok();
    api.delete(&format!("{a}?dryRun=All"), &Value::Null)
        .await
        .ok();
    assert_eq!(api.get(&a).await.ok(), created);
    api.delete(&format!("{a}?dryRun=Some"), &Value::Null)
        .await
        .refused(422, "Invalid");
}

#[tokio::test]
async fn invalid_objects_are_refused_with_every_fault() {
    let api = Api::start().await;
    let mut object = volume("a");
    object["spec"].as_object_mut().unwrap().remove("capacity");
    object["spec"].as_object_mut().unwrap().remove("local");
    let answer = api.post(PVS, &object).await;
    let causes = answer.body["details"]["causes"].as_array().unwrap().clone();
    let fields: Vec<_> = causes
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["spec.capacity", "spec.capacity", "spec"]);
    answer.refused(422, "Invalid");

    let mut wrong = volume("a");
    wrong["kind"] = json!("Pod");
    api.post(PVS, &wrong).await.refused(400, "BadRequest");
    api.post(PVS, &json!([])).await.refused(400, "BadRequest");
    let nonsense = api.send("POST", PVS, &[], b"{".to_vec()).await.unwrap();
    nonsense.refused(400, "BadRequest");
    let proto = [("content-type", "application/x-unknown")];
    let refused = api.send("POST", PVS, &proto, b"x".to_vec()).await.unwrap();
    refused.refused(415, "UnsupportedMediaType");
}

#[tokio::test]
async fn claims_take_the_default_class_and_grow_only_where_allowed() {
    let api = Api::start().await;
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let class = |name: &str, expand: bool| {
        json!({
            "metadata": {
                "name": name,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "example.com/p",
            "allowVolumeExpansion": expand,
        })
    };
    let mut unnamed = claim("none");
    unnamed["spec"]
        .as_object_mut()
        .unwrap()
        .remove("storageClassName");
    let created = api.post(PVCS, &unnamed).await.ok();
    assert_eq!(created["spec"]["storageClassName"], Value::Null);
    api.post(classes, &class("rigid", false)).await.ok();
    unnamed["metadata"]["name"] = json!("some");
    let created = api.post(PVCS, &unnamed).await.ok();
    assert_eq!(created["spec"]["storageClassName"], "rigid");
    unnamed["metadata"]["name"] = json!("named");
    unnamed["spec"]["volumeName"] = json!("pv");
    let created = api.post(PVCS, &unnamed).await.ok();
    assert_eq!(created["spec"]["storageClassName"], "rigid");
    unnamed["metadata"]["name"] = json!("annotated");
    unnamed["metadata"]["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "old"});
    let created = api.post(PVCS, &unnamed).await.ok();
    assert_eq!(created["spec"]["storageClassName"], Value::Null);

    let path = format!("{PVCS}/some");
    let grown = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    api.patch(&path, MERGE, &grown)
        .await
        .refused(422, "Invalid");
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    api.patch(&format!("{path}/status"), MERGE, &bound)
        .await
        .ok();
    let message = api
        .patch(&path, MERGE, &grown)
        .await
        .refused(403, "Forbidden");
    assert!(message.contains("must support resize"), "{message}");
    let allow = json!({"allowVolumeExpansion": true});
    api.patch(&format!("{classes}/rigid"), MERGE, &allow)
        .await
        .ok();
    let bigger = api.patch(&path, MERGE, &grown).await.ok();
    assert_eq!(bigger["spec"]["resources"]["requests"]["storage"], "2Gi");
}

#[tokio::test]
async fn both_groups_show_the_same_events() {
    let api = Api::start().await;
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let old = "/api/v1/namespaces/default/events";
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Warning", "reason": "R",
        "action": "A", "note": "text", "reportingController": "c", "reportingInstance": "i",
        "regarding": {"kind": "PersistentVolume", "name": "pv"},
    });
    let created = api.post(new, &event).await.ok();
    assert_eq!(created["note"], "text");
    let selected = api
        .get(&format!("{old}?fieldSelector=involvedObject.name%3Dpv"))
        .await
        .ok();
    assert_eq!(selected["items"][0]["message"], "text");
    assert_eq!(selected["items"][0]["reportingComponent"], "c");
    let patch = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    api.patch(&format!("{new}/e"), MERGE, &patch).await.ok();
    assert_eq!(
        api.get(&format!("{old}/e")).await.ok()["series"]["count"],
        2
    );
    let mut lines = api.watch(&format!("{new}?watch=1")).await;
    assert_eq!(lines.next().await["object"]["note"], "text");
}
