//! Volumes of type `hostPath` that are really emptied and deleted, and those of which nothing is touched,
//! as a client sees it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod common;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use control_plane::{HostPaths, NodeOptions, Options};
use serde_json::{Value, json};
use support::Sandbox;
use tempfile::TempDir;

use self::common::{Api, PVCS, PVS, claim, eventually, volume};

const RECYCLER: &str = "/api/v1/namespaces/default/pods/recycler-for-v";
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// A control plane with a node and a test root, in which `v` is the directory of a volume.
struct Fixture {
    api: Api,
    dir: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        for path in ["root/v/sub/deeper", "beside"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for file in ["root/v/data", "root/v/.hidden", "root/v/sub/deeper/x y", "beside/data"] {
            fs::write(dir.path().join(file), "data").unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("beside"), dir.path().join("root/v/link"))
            .unwrap();
        let mut options = Options {
            node: Some(NodeOptions::new("n1")),
            resync: Duration::from_millis(300),
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
        self.api.delete(&format!("{PVCS}/c"), &Value::Null).await.ok();
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.api.get(path).await;
        (answer.code == 200).then_some(answer.body)
    }

    async fn until(&self, path: &str, what: &str, is: impl Fn(Option<&Value>) -> bool) {
        eventually(what, async || is(self.get(path).await.as_ref()).then_some(())).await;
    }

    async fn phase(&self, phase: &str) {
        let path = format!("{PVS}/v");
        let is = |v: Option<&Value>| v.is_some_and(|v| v["status"]["phase"] == phase);
        self.until(&path, phase, is).await;
    }

    /// What the events about the volume say, by their reason.
    async fn events(&self, reason: &str) -> Vec<String> {
        let list = self.api.get(EVENTS).await.ok();
        let events = list["items"].as_array().unwrap().iter();
        let about = events.filter(|event| {
            event["involvedObject"]["kind"] == "PersistentVolume" && event["reason"] == reason
        });
        let messages = about.map(|event| event["message"].as_str().unwrap().to_owned());
        messages.collect()
    }

    /// Why the volume has failed, which one event says, just after the phase.
    async fn failure(&self, policy: &str) -> String {
        self.phase("Failed").await;
        let reason = format!("VolumeFailed{policy}");
        eventually(&reason, async || match &self.events(&reason).await[..] {
            [why] => Some(why.clone()),
            [] => None,
            more => panic!("reported more than once: {more:?}"),
        })
        .await
    }

    /// Whether the directory has all that it had, nothing, or something in between.
    fn left(&self) -> usize {
        self.left_in("root/v")
    }

    /// The same, where the directory is seen at another place.
    fn left_in(&self, place: &str) -> usize {
        let place = self.path(place);
        let file = |path: &&str| place.join(path).symlink_metadata().is_ok();
        let files = ["data", ".hidden", "sub/deeper/x y", "link"];
        assert!(self.path("beside/data").exists(), "a foreign file is lost");
        files.iter().filter(|path| file(path)).count()
    }
}

#[tokio::test]
async fn a_volume_is_emptied_and_available_again() {
    let fixture = Fixture::new().await;
    fixture.released("Recycle").await;
    fixture.phase("Available").await;
    let entries = fs::read_dir(fixture.path("root/v")).unwrap();
    assert_eq!(entries.count(), 0, "the directory itself stays");
    assert_eq!(fixture.left(), 0);
    fixture.until(RECYCLER, "gone", |pod| pod.is_none()).await;
    let pv = fixture.get(&format!("{PVS}/v")).await.unwrap();
    assert!(pv["spec"]["claimRef"].is_null());
    assert!(pv["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"].is_null());
    assert_eq!(fixture.events("VolumeRecycled").await, ["Volume recycled"]);
    assert_eq!(fixture.events("VolumeFailedRecycle").await, [""; 0]);
    // The next one finds nothing of the one before.
    fixture.api.post(PVCS, &claim("next")).await.ok();
    fixture.phase("Bound").await;
}

#[tokio::test]
async fn without_a_root_nothing_is_touched() {
    for policy in ["Recycle", "Delete"] {
        let fixture = Fixture::with(|options| options.host_paths = None).await;
        fixture.released(policy).await;
        let why_not = fixture.failure(policy).await;
        assert!(why_not.contains("--host-paths"), "{policy}: {why_not}");
        assert_eq!(fixture.left(), 4, "{policy}");
    }
}

#[test]
fn what_is_mounted_in_a_volume_is_safe() {
    let Some(_sandbox) = Sandbox::enter() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for policy in ["Recycle", "Delete"] {
            for (place, why) in
                [("root/v/sub", "is mounted in it"), ("root/v", "something is mounted")]
            {
                let fixture = Fixture::new().await;
                fs::create_dir(fixture.path("seen")).unwrap();
                // The volume without what is mounted in it: without that, the next attempt succeeds.
                for (what, there) in [("root/v", "seen"), ("beside", place)] {
                    let mut mount = Command::new("mount");
                    mount.arg("--bind").args([what, there].map(|p| fixture.path(p)));
                    assert!(mount.status().unwrap().success());
                }
                fixture.released(policy).await;
                let why_not = fixture.failure(policy).await;
                assert!(why_not.contains(why), "{policy} {place}: {why_not}");
                assert_eq!(fixture.left_in("seen"), 4, "{policy} {place}");
                for there in [place, "seen"] {
                    let mut unmount = Command::new("umount");
                    assert!(unmount.arg(fixture.path(there)).status().unwrap().success());
                }
            }
        }
    });
}
