//! Jobs whose pods are processes, as a client sees them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod common;

use std::{fs, time::Duration};

use control_plane::{NodeOptions, Options, ProcessOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::common::{A_MOMENT, Api, Lines, PODS, eventually};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// A control plane with a node, and a directory for what its processes do.
struct Fixture {
    api: Api,
    dir: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let programs = [("/shell".into(), "/bin/sh".into())];
        let api = Api::with(Options {
            node: Some(NodeOptions::new("n1")),
            back_off: Duration::from_millis(50),
            processes: Some(ProcessOptions {
                programs: programs.into(),
                logs: dir.path().join("logs"),
            }),
            ..Options::default()
        })
        .await;
        Self { api, dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// A Job that runs a script, which gets the directory as `DIR`. Kubernetes makes one dollar sign
    /// of two.
    async fn run(&self, script: &str, change: impl FnOnce(&mut Value)) -> Lines {
        let mut job = json!({
            "metadata": {"name": "j"},
            "spec": {"template": {"spec": {
                "restartPolicy": "OnFailure",
                "containers": [{
                    "name": "c",
                    "image": "none",
                    "command": ["/shell", "-c"],
                    "args": [script],
                    "env": [{"name": "DIR", "value": self.dir.path()}],
                }],
            }}},
        });
        change(&mut job);
        let watch = self.api.watch(&format!("{JOBS}?watch=1")).await;
        self.api.post(JOBS, &job).await.ok();
        watch
    }

    async fn pods(&self) -> Vec<Value> {
        let list = self.api.get(PODS).await.ok();
        list["items"].as_array().unwrap().clone()
    }

    /// Waits for the only pod to be as it should be.
    async fn pod(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(what, async || match &self.pods().await[..] {
            [pod] if is(pod) => Some(pod.clone()),
            _ => None,
        })
        .await
    }

    /// The first process id that a script has written.
    async fn pid(&self) -> String {
        let file = self.path("pid");
        let started =
            async || fs::read_to_string(&file).ok()?.strip_suffix('\n').map(str::to_owned);
        eventually("it starts", started).await
    }
}

/// A zombie is dead, although it is not reaped yet.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_job_that_is_deleted_while_it_runs_stays_until_its_process_is_gone() {
    let fixture = Fixture::new().await;
    // It takes its time to end.
    let script = "trap 'while ! test -e $DIR/go; do sleep 0.01; done; exit 0' TERM
        echo $$$$ > $DIR/pid; while true; do sleep 0.01; done";
    let mut jobs = fixture.run(script, |_| {}).await;
    let pid = fixture.pid().await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    let path = format!("{JOBS}/j");
    fixture.api.delete(&path, &foreground).await.ok();
    fixture
        .pod("terminating, and not held by its Job", |p| {
            p["metadata"]["deletionTimestamp"].is_string() && p["metadata"]["finalizers"].is_null()
        })
        .await;
    tokio::time::sleep(A_MOMENT).await;
    let job = fixture.api.get(&path).await.ok();
    let finalizers = &job["metadata"]["finalizers"];
    assert_eq!(finalizers, &json!(["foregroundDeletion"]));
    assert!(is_alive(&pid));

    fs::write(fixture.path("go"), "").unwrap();
    while jobs.next().await["type"] != "DELETED" {}
    assert!(!is_alive(&pid));
    assert!(fixture.pods().await.is_empty());
}

#[tokio::test]
async fn a_process_that_does_not_stop_is_killed_after_its_grace_period() {
    for (grace, force) in [(1, false), (3600, true)] {
        let fixture = Fixture::new().await;
        let patient = |j: &mut Value| {
            j["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(grace);
        };
        let script = "trap '' TERM; sleep 600 & echo $! > $DIR/pid; wait; wait";
        let mut jobs = fixture.run(script, patient).await;
        let pid = fixture.pid().await;
        let background = json!({"propagationPolicy": "Background"});
        fixture.api.delete(&format!("{JOBS}/j"), &background).await.ok();
        while jobs.next().await["type"] != "DELETED" {}
        if force {
            let pod = fixture.pod("is there", |_| true).await;
            assert!(is_alive(&pid));
            let name = pod["metadata"]["name"].as_str().unwrap();
            let at_once = json!({"gracePeriodSeconds": 0});
            fixture.api.delete(&format!("{PODS}/{name}"), &at_once).await.ok();
        }
        eventually("it is killed", async || {
            (!is_alive(&pid) && fixture.pods().await.is_empty()).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn nothing_outlives_the_control_plane() {
    let fixture = Fixture::new().await;
    let script = "trap '' TERM; sleep 600 & echo $! > $DIR/pid; wait";
    fixture.run(script, |_| {}).await;
    let pid = fixture.pid().await;
    assert!(is_alive(&pid));
    drop(fixture.api);
    // It was killed; the last of it may still be about to go.
    eventually("it is killed", async || (!is_alive(&pid)).then_some(())).await;
}
