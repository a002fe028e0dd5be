//! A control plane that may recycle and delete directories, and some directories.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use control_plane::{HostPaths, NodeOptions, Options, ProcessOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Api, PVCS, PVS, SOON, claim, volume};

pub const RECYCLER: &str = "/api/v1/namespaces/default/pods/recycler-for-v";
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// A control plane with a node and a test root, in which `v` is the directory of a volume. Recycler
/// pods get a shell that first does what the file `first` says.
pub struct Ground {
    pub api: Api,
    dir: TempDir,
}

impl Ground {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Options)) -> Self {
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

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// What the shell of recycler pods does first from now on.
    pub fn first(&self, script: &str) {
        fs::write(self.path("new"), script).unwrap();
        fs::rename(self.path("new"), self.path("first")).unwrap();
    }

    /// A bound volume of this directory, and its claim `c`.
    pub async fn bound(&self, policy: &str, path: &str) {
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
    pub async fn released(&self, policy: &str) {
        let path = self.path("root/v").display().to_string();
        self.bound(policy, &path).await;
        self.api
            .delete(&format!("{PVCS}/c"), &Value::Null)
            .await
            .ok();
    }

    pub async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.api.get(path).await;
        (answer.code == 200).then_some(answer.body)
    }

    pub async fn until(&self, path: &str, what: &str, is: impl Fn(Option<&Value>) -> bool) {
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

    pub async fn phase(&self, phase: &str) {
        let path = format!("{PVS}/v");
        let is = |v: Option<&Value>| v.is_some_and(|v| v["status"]["phase"] == phase);
        self.until(&path, phase, is).await;
    }

    pub async fn recycler_runs(&self) -> Value {
        let runs = |pod: Option<&Value>| pod.is_some_and(|p| p["status"]["phase"] == "Running");
        self.until(RECYCLER, "running", runs).await;
        self.get(RECYCLER).await.unwrap()
    }

    /// What the events about the volume say, by their reason.
    pub async fn told(&self, reason: &str) -> Vec<String> {
        let list = self.api.get(EVENTS).await.ok();
        let events = list["items"].as_array().unwrap().iter();
        let about = events.filter(|event| {
            event["involvedObject"]["kind"] == "PersistentVolume" && event["reason"] == reason
        });
        let messages = about.map(|event| event["message"].as_str().unwrap().to_owned());
        messages.collect()
    }

    /// Why the volume has failed, which is told once, and just after its phase.
    pub async fn failure(&self, policy: &str) -> String {
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
    pub fn left(&self) -> usize {
        self.left_in("root/v")
    }

    /// The same, where the directory is seen at another place.
    pub fn left_in(&self, place: &str) -> usize {
        let place = self.path(place);
        let file = |path: &&str| place.join(path).symlink_metadata().is_ok();
        let files = ["data", ".hidden", "sub/deeper/x y", "link"];
        assert!(
            self.path("beside/data").exists(),
            "a stranger's file is lost"
        );
        files.iter().filter(|path| file(path)).count()
    }
}
