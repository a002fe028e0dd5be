//! The chart rendered by `helm template` and applied by `kubectl`, where its hook is an ordinary Job.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{SYSTEM, USERS, name};
use crate::release::{NAME, class, render};
use crate::{Cluster, Disks, disks::MIB};

/// The hook of the chart.
const HOOK: &str = "local-volumes-uninstall";
/// How long the hook waits for the absence of the DaemonSet before it acts.
const ABSENCE: Duration = Duration::from_secs(20);

/// Manifests in the cluster; deleted with this.
struct Applied<'a> {
    cluster: &'a Cluster,
    manifests: String,
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hook = format!("job/{HOOK}");
            let log = ["logs", &hook, "--namespace", SYSTEM];
            let said = self.cluster.kubectl(&log);
            eprintln!("=== what the hook logged\n{}", said.unwrap_or_default());
        }
        let delete = "delete --ignore-not-found --cascade=foreground";
        let _ = self.cluster.manifests(delete, &self.manifests);
    }
}

/// Waits until the hook's Job has ended.
fn ended(cluster: &Cluster) {
    cluster.eventually("the hook's Job has ended", || {
        let job = cluster.get("job", HOOK, Some(SYSTEM))?;
        let conditions = job["status"]["conditions"].as_array()?;
        conditions
            .iter()
            .any(|condition| condition["type"] == "Complete" && condition["status"] == "True")
            .then_some(())
    });
}

/// What of the PVs must stay.
fn kept(cluster: &Cluster) -> Vec<Value> {
    let kept = |pv: Value| {
        let metadata = &pv["metadata"];
        json!({
            "name": metadata["name"], "uid": metadata["uid"],
            "finalizers": metadata["finalizers"], "phase": pv["status"]["phase"],
        })
    };
    cluster.pvs().into_iter().map(kept).collect()
}

/// The UID of the DaemonSet that is not being deleted, and whether all its pods are ready.
fn daemon_set(cluster: &Cluster) -> Option<(Value, bool)> {
    let set = cluster.get("daemonset", NAME, Some(SYSTEM))?;
    let status = &set["status"];
    let is_ready = status["numberReady"] == 1 && status["desiredNumberScheduled"] == 1;
    let metadata = &set["metadata"];
    metadata["deletionTimestamp"].is_null().then(|| (metadata["uid"].clone(), is_ready))
}

fn ready(cluster: &Cluster) -> Value {
    cluster.eventually("the provisioner's pod is ready", || {
        let (uid, is_ready) = daemon_set(cluster)?;
        is_ready.then_some(uid)
    })
}

#[test]
fn rendered_and_applied_chart_keeps_its_daemon_set_and_finalizers() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("rendered");
    for disk in ["available", "bound", "released"] {
        disks.filesystem("rendered", disk, "ext4", 32 * MIB);
    }
    disks.filesystem("kept", "disk", "ext4", 32 * MIB);
    let retain = json!({ "storageClass": { "reclaimPolicy": "Retain" } });
    let classes = json!([
        class("rendered", &disks.class("rendered"), json!({})),
        class("kept", &disks.class("kept"), retain),
    ]);
    let render = |args: &[&str]| render(classes.clone(), json!({}), args);
    let all = Applied { cluster: &cluster, manifests: render(&[]) };
    let hook = render(&["--show-only=templates/uninstall.yaml"]);

    cluster.manifests("apply", &render(&["--no-hooks"])).unwrap();
    cluster.available("rendered", 3);
    cluster.available("kept", 1);
    cluster.write("bound", "rendered");
    let retained = cluster.write("retained", "kept");
    cluster.delete_claim("retained");
    cluster.in_phase(&retained, "Released");
    let set = ready(&cluster);
    let before = kept(&cluster);
    for _ in 0..2 {
        cluster.manifests("apply", &all.manifests).unwrap();
        ended(&cluster);
        assert_eq!(daemon_set(&cluster), Some((set.clone(), true)));
        assert_eq!(kept(&cluster), before);
    }

    // Not clean, as cleaning is paused.
    let released = cluster.write("released", "rendered");
    let pause = r#"{"metadata":{"annotations":{"local-volume-provisioner/paused":"true"}}}"#;
    let patch = ["patch", "pv", name(&released), "--type=merge", "-p", pause];
    cluster.kubectl(&patch).unwrap();
    cluster.delete_claim("released");
    cluster.in_phase(&released, "Released");
    let before = kept(&cluster);
    // The Job's pod runs before its DaemonSet exists.
    let delete = "delete --cascade=foreground";
    cluster.manifests(delete, &all.manifests).unwrap();
    cluster.manifests("apply", &hook).unwrap();
    cluster.eventually("the hook runs", || {
        let job = cluster.get("job", HOOK, Some(SYSTEM))?;
        (job["status"]["ready"] == 1).then_some(())
    });
    std::thread::sleep(ABSENCE / 4);
    cluster.manifests("apply", &all.manifests).unwrap();
    // As it has ended, it deletes nothing later.
    ended(&cluster);
    ready(&cluster);
    assert_eq!(kept(&cluster), before);
    assert!(cluster.get("persistentvolumeclaim", "bound", Some(USERS)).is_some());
}
