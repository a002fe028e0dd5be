//! Volumes of type `hostPath` that are really emptied, as a client sees it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod common;

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::common::{
    MERGE, PODS, PVCS, PVS, SOON, claim,
    host_paths::{Ground, RECYCLER},
    pod, volume,
};

#[tokio::test]
async fn a_volume_is_emptied_and_available_again() {
    let ground = Ground::new().await;
    ground.released("Recycle").await;
    ground.phase("Available").await;
    let entries = fs::read_dir(ground.path("root/v")).unwrap();
    assert_eq!(entries.count(), 0, "the directory itself stays");
    assert_eq!(ground.left(), 0);
    ground.until(RECYCLER, "gone", |pod| pod.is_none()).await;
    let pv = ground.get(&format!("{PVS}/v")).await.unwrap();
    assert!(pv["spec"]["claimRef"].is_null());
    assert!(pv["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"].is_null());
    assert_eq!(ground.told("VolumeRecycled").await, ["Volume recycled"]);
    assert_eq!(ground.told("VolumeFailedRecycle").await, [""; 0]);
    // The next one finds nothing of the one before.
    ground.api.post(PVCS, &claim("next")).await.ok();
    ground.phase("Bound").await;
}

/// The option for directories is enough: it takes none for processes.
#[tokio::test]
async fn it_needs_no_option_for_other_processes() {
    let ground = Ground::with(|options| options.processes = None).await;
    ground.released("Recycle").await;
    ground.phase("Available").await;
    assert_eq!(ground.left(), 0);
}

#[tokio::test]
async fn a_scrub_that_fails() {
    let ground = Ground::new().await;
    ground.first("exit 1");
    ground.released("Recycle").await;
    assert_eq!(
        ground.failure("Recycle").await,
        "Recycle failed: failed to recycle volume: pod failed, pod.Status.Message unknown"
    );
    assert_eq!(ground.left(), 4);
    // It is not given up, and said once.
    ground.first("");
    ground.phase("Available").await;
    assert_eq!(ground.left(), 0);
    assert_eq!(ground.told("VolumeFailedRecycle").await.len(), 1);
}

#[tokio::test]
async fn a_volume_in_use() {
    let ground = Ground::new().await;
    let path = ground.path("root/v").display().to_string();
    ground.bound("Recycle", &path).await;
    let mut user = pod("user");
    user["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]);
    ground.api.post(PODS, &user).await.ok();
    let user = format!("{PODS}/user");
    let runs = |pod: Option<&Value>| pod.is_some_and(|p| p["status"]["phase"] == "Running");
    ground.until(&user, "running", runs).await;
    // Somebody takes the claim away under it.
    let claim = format!("{PVCS}/c");
    ground.api.delete(&claim, &Value::Null).await.ok();
    let no_finalizers = json!({"metadata": {"finalizers": null}});
    ground.api.patch(&claim, MERGE, &no_finalizers).await.ok();
    ground.phase("Released").await;
    let deadline = Instant::now() + SOON;
    while ground.told("VolumeFailedRecycle").await.is_empty() {
        assert!(Instant::now() < deadline, "no event");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It is looked at several times more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        ground.told("VolumeFailedRecycle").await,
        ["Volume is used by pods: default/user"]
    );
    assert!(ground.get(RECYCLER).await.is_none());
    assert_eq!(ground.left(), 4);
    ground.api.delete(&user, &Value::Null).await.ok();
    ground.phase("Available").await;
    assert_eq!(ground.left(), 0);
}

#[tokio::test]
async fn a_recycler_pod_that_is_killed() {
    for grace in [0, 30] {
        let ground = Ground::new().await;
        let pid = ground.path("pid");
        ground.first(&format!(
            "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600",
            pid.display()
        ));
        ground.released("Recycle").await;
        ground.recycler_runs().await;
        let deadline = Instant::now() + SOON;
        while !pid.exists() {
            assert!(Instant::now() < deadline, "the scrub does not start");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let process = fs::read_to_string(pid).unwrap();
        ground.first("exit 1");
        let options = json!({"gracePeriodSeconds": grace});
        ground.api.delete(RECYCLER, &options).await.ok();
        let why = ground.failure("Recycle").await;
        assert!(
            why.starts_with("Recycle failed: failed to recycle volume: "),
            "{why}"
        );
        let stat = format!("/proc/{}/stat", process.trim());
        let deadline = Instant::now() + SOON;
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < deadline, "the scrub runs on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(ground.left(), 4);
        ground.first("");
        ground.phase("Available").await;
        assert_eq!(ground.left(), 0);
    }
}

#[tokio::test]
async fn a_slow_scrub_keeps_nobody_waiting() {
    let ground = Ground::with(|options| options.resync = Duration::from_millis(100)).await;
    let hold = ground.path("hold");
    fs::write(&hold, "").unwrap();
    ground.first(&format!(
        "while [ -e '{}' ]; do sleep 0.1; done",
        hold.display()
    ));
    let mut pods = ground.api.watch(&format!("{PODS}?watch=1")).await;
    ground.released("Recycle").await;
    let first = ground.recycler_runs().await;
    let begun = Instant::now();
    for n in 0..100 {
        let mut pv = volume(&format!("other-{n}"));
        pv["metadata"]["labels"] = json!({"other": "yes"});
        ground.api.post(PVS, &pv).await.ok();
        ground
            .api
            .post(PVCS, &claim(&format!("other-{n}")))
            .await
            .ok();
        if n % 50 == 0 {
            // What happens to the volume meanwhile does not start a second scrub.
            let label = json!({"metadata": {"labels": {"n": n.to_string()}}});
            ground
                .api
                .patch(&format!("{PVS}/v"), MERGE, &label)
                .await
                .ok();
        }
    }
    let all_bound = |list: Option<&Value>| {
        let claims = list.unwrap()["items"].as_array().unwrap();
        claims.len() == 100 && claims.iter().all(|c| c["status"]["phase"] == "Bound")
    };
    ground.until(PVCS, "all bound", all_bound).await;
    let took = begun.elapsed();
    let still = ground.get(RECYCLER).await.unwrap();
    assert_eq!(
        still["metadata"]["uid"], first["metadata"]["uid"],
        "after {took:?}"
    );
    assert_eq!(
        still["status"]["phase"], "Running",
        "100 claims took {took:?}"
    );

    // The volume was changed under the scrub, so it is scrubbed once more before it is free.
    ground.first("");
    fs::remove_file(hold).unwrap();
    ground.phase("Available").await;
    let mut uids = Vec::new();
    while uids.len() < 2 {
        let event = pods.next().await;
        let pod = &event["object"]["metadata"];
        if event["type"] == "ADDED" && pod["name"] == "recycler-for-v" {
            uids.push(pod["uid"].clone());
        }
    }
    assert_eq!(uids[0], first["metadata"]["uid"]);
    assert_eq!(ground.told("VolumeFailedRecycle").await, [""; 0]);
    assert_eq!(ground.left(), 0);
}
