//! Volumes of type `hostPath` that are really recycled and deleted, as a client sees it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod common;

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use control_plane::{HostPaths, NodeOptions, Options, ProcessOptions};
use serde_json::{Value, json};
use support::Sandbox;
use tempfile::TempDir;

use self::common::{Api, MERGE, PODS, PVCS, PVS, SOON, claim, pod, volume};

const RECYCLER: &str = "/api/v1/namespaces/default/pods/recycler-for-v";
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// A control plane with a node and a test root, in which `v` is the directory of a volume. Recycler
/// pods get a shell that first does what the file `first` says.
struct Ground {
    api: Api,
    dir: TempDir,
}

impl Ground {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        for path in ["root/v/sub/deeper", "beside"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for file in [
            "root/v/data",
            "root/v/.hidden",
            "root/v/sub/deeper/x y",
            "beside/data",
        ] {
            fs::write(dir.path().join(file), "data").unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("beside"), dir.path().join("root/v/link"))
            .unwrap();
        fs::write(dir.path().join("first"), "").unwrap();
        // Made by a process of its own: a file that this one holds open for writing might be inherited
        // by the child of another test, and then cannot be run.
        let script =
            "printf '#!/bin/sh\\n. %s/first\\nexec /bin/sh \"$@\"\\n' . > shell && chmod +x shell";
        let script = script.replace(" . >", &format!(" '{}' >", dir.path().display()));
        let mut make = Command::new("/bin/sh");
        make.args(["-c", &script]).current_dir(dir.path());
        assert!(make.status().unwrap().success());

        let shell = ("/bin/sh".into(), dir.path().join("shell"));
        let mut options = Options {
            node: Some(NodeOptions::new("n1")),
            resync: Duration::from_millis(300),
            processes: Some(ProcessOptions {
                programs: [shell].into(),
                logs: dir.path().join("logs"),
            }),
            host_paths: Some(HostPaths::below(dir.path().join("root")).unwrap()),
            ..Options::default()
        };
        change(&mut options);
        let api = Api::with(options).await;
        Self { api, dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// What the shell of recycler pods does first from now on.
    fn first(&self, script: &str) {
        fs::write(self.path("new"), script).unwrap();
        fs::rename(self.path("new"), self.path("first")).unwrap();
    }

    /// A bound volume of this directory, and its claim `c`.
    async fn bound(&self, policy: &str, path: &str) {
        let mut pv = volume("v");
        let spec = pv["spec"].as_object_mut().unwrap();
        spec.remove("local");
        spec.remove("nodeAffinity");
        spec.insert("hostPath".into(), json!({"path": path}));
        spec.insert("persistentVolumeReclaimPolicy".into(), json!(policy));
        self.api.post(PVS, &pv).await.ok();
        self.api.post(PVCS, &claim("c")).await.ok();
        self.phase("Bound").await;
    }

    /// A volume of the directory `v` that is released right now.
    async fn released(&self, policy: &str) {
        let path = self.path("root/v").display().to_string();
        self.bound(policy, &path).await;
        self.api
            .delete(&format!("{PVCS}/c"), &Value::Null)
            .await
            .ok();
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.api.get(path).await;
        (answer.code == 200).then_some(answer.body)
    }

    async fn until(&self, path: &str, what: &str, is: impl Fn(Option<&Value>) -> bool) {
        let deadline = Instant::now() + SOON;
        loop {
            let object = self.get(path).await;
            if is(object.as_ref()) {
                return;
            }
            assert!(Instant::now() < deadline, "not {what}: {object:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn phase(&self, phase: &str) {
        let path = format!("{PVS}/v");
        let is = |v: Option<&Value>| v.is_some_and(|v| v["status"]["phase"] == phase);
        self.until(&path, phase, is).await;
    }

    async fn recycler_runs(&self) -> Value {
        let runs = |pod: Option<&Value>| pod.is_some_and(|p| p["status"]["phase"] == "Running");
        self.until(RECYCLER, "running", runs).await;
        self.get(RECYCLER).await.unwrap()
    }

    /// What the events about the volume say, by their reason.
    async fn told(&self, reason: &str) -> Vec<String> {
        let list = self.api.get(EVENTS).await.ok();
        let events = list["items"].as_array().unwrap().iter();
        let about = events.filter(|event| {
            event["involvedObject"]["kind"] == "PersistentVolume" && event["reason"] == reason
        });
        let messages = about.map(|event| event["message"].as_str().unwrap().to_owned());
        messages.collect()
    }

    /// Why the volume has failed, which is told once, and just after its phase.
    async fn failure(&self, policy: &str) -> String {
        self.phase("Failed").await;
        let reason = format!("VolumeFailed{policy}");
        let deadline = Instant::now() + SOON;
        loop {
            match &self.told(&reason).await[..] {
                [why] => return why.clone(),
                [] => assert!(Instant::now() < deadline, "no event {reason}"),
                more => panic!("told more than once: {more:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether the directory has all that it had, nothing, or something in between.
    fn left(&self) -> usize {
        let file = |path: &&str| self.path(path).symlink_metadata().is_ok();
        let files = [
            "root/v/data",
            "root/v/.hidden",
            "root/v/sub/deeper/x y",
            "root/v/link",
        ];
        assert!(
            self.path("beside/data").exists(),
            "a stranger's file is lost"
        );
        files.iter().filter(|path| file(path)).count()
    }
}

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
    assert_eq!(
        ground.told("RecyclerPod").await,
        ["Recycler pod: Successfully assigned default/recycler-for-v to n1"]
    );
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

#[tokio::test]
async fn a_directory_is_deleted_with_its_volume() {
    let ground = Ground::new().await;
    ground.released("Delete").await;
    let volume = format!("{PVS}/v");
    ground.until(&volume, "gone", |pv| pv.is_none()).await;
    assert_eq!(ground.left(), 0);
    assert!(!ground.path("root/v").exists());
    assert!(ground.path("root").exists());
}

#[tokio::test]
async fn a_volume_deleted_while_bound_waits_for_its_directory() {
    let ground = Ground::new().await;
    let path = ground.path("root/v").display().to_string();
    ground.bound("Delete", &path).await;
    let volume = format!("{PVS}/v");
    let by = json!({"metadata": {"annotations": {
        "pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path",
    }}});
    ground.api.patch(&volume, MERGE, &by).await.ok();
    let held = |pv: Option<&Value>| {
        let finalizers = pv.unwrap()["metadata"]["finalizers"].as_array();
        finalizers
            .unwrap()
            .contains(&json!("kubernetes.io/pv-controller"))
    };
    ground.until(&volume, "held", held).await;
    ground.api.delete(&volume, &Value::Null).await.ok();
    tokio::time::sleep(Duration::from_millis(500)).await;
    ground.phase("Bound").await;
    assert_eq!(ground.left(), 4);
    ground
        .api
        .delete(&format!("{PVCS}/c"), &Value::Null)
        .await
        .ok();
    ground.until(&volume, "gone", |pv| pv.is_none()).await;
    assert!(!ground.path("root/v").exists());
}

#[tokio::test]
async fn nothing_outside_of_the_root_is_touched() {
    for (policy, path, why) in [
        ("Recycle", "beside", "is not below the test root"),
        ("Delete", "beside", "is not below the test root"),
        ("Recycle", "root", "is the test root itself"),
        ("Delete", "root", "is the test root itself"),
        ("Recycle", "root/v/link", "symbolic link"),
        ("Delete", "root/v/link", "symbolic link"),
        ("Recycle", "root/none", "does not exist"),
    ] {
        let ground = Ground::new().await;
        let path = ground.path(path).display().to_string();
        ground.bound(policy, &path).await;
        ground
            .api
            .delete(&format!("{PVCS}/c"), &Value::Null)
            .await
            .ok();
        let told = ground.failure(policy).await;
        assert!(told.contains(why), "{policy} {path}: {told}");
        assert_eq!(ground.left(), 4, "{policy} {path}");
    }
}

#[tokio::test]
async fn without_a_root_nothing_is_touched() {
    for policy in ["Recycle", "Delete"] {
        let ground = Ground::with(|options| options.host_paths = None).await;
        ground.released(policy).await;
        let told = ground.failure(policy).await;
        assert!(told.contains("--host-paths"), "{policy}: {told}");
        assert_eq!(ground.left(), 4, "{policy}");
    }
}

#[test]
fn the_program_does_not_take_every_root() {
    for (root, why) in [
        ("/", "root of this machine"),
        ("/no/such/root", "cannot be opened"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_control-plane"));
        program.args(["--kubeconfig", "/no/such/file", "--host-paths", root]);
        let output = program.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains(why),
            "{root}: {said}"
        );
    }
}

/// Another filesystem, or the same one bound there, is somebody else's.
#[test]
fn what_is_mounted_in_a_volume_is_safe() {
    let Some(_sandbox) = Sandbox::enter() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for policy in ["Recycle", "Delete"] {
            for (place, why) in [
                ("root/v/sub", "is mounted in it"),
                ("root/v", "something is mounted"),
            ] {
                let ground = Ground::new().await;
                let mut mount = Command::new("mount");
                mount
                    .arg("--bind")
                    .arg(ground.path("beside"))
                    .arg(ground.path(place));
                assert!(mount.status().unwrap().success());
                ground.released(policy).await;
                let told = ground.failure(policy).await;
                assert!(told.contains(why), "{policy} {place}: {told}");
                let mut unmount = Command::new("umount");
                assert!(unmount.arg(ground.path(place)).status().unwrap().success());
                assert_eq!(ground.left(), 4, "{policy} {place}");
            }
        }
    });
}
