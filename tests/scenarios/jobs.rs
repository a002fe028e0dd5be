//! Devices cleaned by Jobs, which the embedded control plane runs as processes of our own program. What
//! a real kubelet makes of them is tested in `tests/installed/jobs.rs`.

mod failing;
mod gone;
mod late;
mod requests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_plane::ProcessOptions;
use control_plane::faults::Answer;
use control_plane::requests::{Request, Verb};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};
use support::names::LABEL_HOSTNAME;
use support::stage::{is_terminating, name, on_real_cluster, uid};
use support::{LoopDevice, Program, Stage};

use crate::BINARY;
use crate::kit::*;

/// Long enough for a Job to be tried as often as it is.
const GIVEN_UP: Duration = Duration::from_secs(40);

/// A stage on which Jobs run `program` as the image's, with `useJobForCleaning` on.
fn stage_running(program: &str, hostname: Option<&str>) -> Option<Stage> {
    if on_real_cluster() {
        support::skip("the node of a stage has no kubelet: tests/installed runs Jobs as pods");
        return None;
    }
    let stage = Stage::set_with(BINARY, |options| {
        options.back_off = Duration::from_millis(50);
        options.processes = Some(ProcessOptions {
            programs: BTreeMap::from([("/local-volume-provisioner".into(), program.into())]),
            // Below the stage's scratch directory.
            logs: "/mnt/pods".into(),
        });
        if let (Some(hostname), Some(node)) = (hostname, &mut options.node) {
            node.labels.insert(LABEL_HOSTNAME.into(), hostname.into());
        }
    })?;
    stage.configure("useJobForCleaning", "true");
    Some(stage)
}

fn stage_with_jobs() -> Option<Stage> {
    stage_running(BINARY, None)
}

fn jobs(stage: &Stage) -> Api<Job> {
    Api::namespaced(stage.client.clone(), &stage.namespace())
}

fn job(stage: &Stage, pv: &PersistentVolume) -> Option<Value> {
    let found = stage.block_on(jobs(stage).get_opt(&job_name(&name(pv))));
    found.unwrap().map(|job| json!(job))
}

fn has_condition(job: &Value, wanted: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == wanted && it["status"] == "True")
}

/// The name of the Job that cleans a PV's device.
fn job_name(pv: &str) -> String {
    format!("cleanup-{pv}")
}

fn delete_job(stage: &Stage, pv: &PersistentVolume) {
    let params = DeleteParams::foreground();
    stage.request(jobs(stage).delete(&job_name(&name(pv)), &params));
}

fn made_jobs(stage: &Stage) -> usize {
    let is_made = |r: &Request| r.verb == Verb::Create && r.resource == "jobs";
    stage.requests().count(is_made)
}

/// A released device with a secret; its PV.
fn release_device(stage: &Stage, device: &LoopDevice, path: &Path) -> PersistentVolume {
    let bound = stage.used(&stage.bind("claim", path));
    scribble(device.path());
    stage.delete_claim("claim");
    bound
}

/// A cleaner that waits until it is released, and records that it ran.
struct Held {
    dir: PathBuf,
}

impl Held {
    /// With one device that it cleans.
    fn volume(stage: &Stage) -> (Self, LoopDevice, PathBuf) {
        let dir = stage.sandbox.path().to_owned();
        let at = dir.display();
        let (device, path) = cleaned_by(
            stage,
            &format!(
                "echo $$ >>{at}/ran\n\
                 while ! [ -e {at}/go ]; do sleep 0.02; done\n\
                 dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=32 conv=notrunc status=none\n"
            ),
        );
        (Self { dir }, device, path)
    }

    fn ran(&self) -> Vec<String> {
        lines(&self.dir.join("ran"))
    }

    /// Waits until it runs.
    fn runs(&self, stage: &Stage) {
        stage.eventually("the cleaner runs", || !self.ran().is_empty());
    }

    fn go_on(&self) {
        fs::write(self.dir.join("go"), "").unwrap();
    }
}

/// A provisioner, and a released device whose Job runs until it is released.
fn held_job(stage: &Stage) -> (Held, LoopDevice, PathBuf, Program, PersistentVolume) {
    let (held, device, path) = Held::volume(stage);
    let provisioner = stage.provisioner();
    let bound = release_device(stage, &device, &path);
    held.runs(stage);
    (held, device, path, provisioner, bound)
}

fn taint_node(stage: &Stage, taints: &Value) {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
    let (node, params) = (stage.node(), PatchParams::default());
    stage.request(nodes.patch(&node, &params, &patch));
}

fn cleanup_of(provisioner: &mut Program, path: &Path) -> Value {
    status_of(provisioner, path)["cleanup"].clone()
}

fn total(provisioner: &mut Program, what: &str, by: &str) -> u64 {
    let series = format!("persistentvolume_{what}{{mode=\"Block\",type=\"{by}\"}}");
    metric(provisioner, &series).unwrap_or_default()
}

/// On a node whose label is not its name.
#[test]
fn fault_13_a_job_goes_to_the_node_by_its_label_and_cleans_the_device() {
    let stage = or_skip!(stage_running(BINARY, Some("host-of-another-name")));
    let (held, device, path, mut provisioner, bound) = held_job(&stage);
    let shown = format!("{}/{}", stage.namespace(), job_name(&name(&bound)));
    stage.eventually("the status names the Job", || {
        let cleanup = cleanup_of(&mut provisioner, &path);
        cleanup["state"] == "Running" && cleanup["job"] == shown.as_str()
    });
    let made = job(&stage, &bound).unwrap();
    let selector = &made["spec"]["template"]["spec"]["nodeSelector"];
    assert_eq!(*selector, json!({ LABEL_HOSTNAME: "host-of-another-name" }));
    assert_eq!(made["metadata"]["annotations"]["device"], json!(path));
    assert!(is_terminating(&stage.pv(&name(&bound)).unwrap()), "no claim can bind it");
    stage.event("VolumeDelete", &shown);

    held.go_on();
    let fresh = offered_again(&stage, &path, &bound);
    assert_eq!(identity(&fresh), identity(&bound));
    assert!(job(&stage, &bound).is_none(), "it went before the PV");
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(held.ran().len(), 1);
    stage.eventually("it is counted as a Job's", || {
        total(&mut provisioner, "delete_total", "job") == 1
    });
    assert_eq!(total(&mut provisioner, "delete_total", "process"), 0);
    let (_, metrics) = provisioner.http_get("/metrics").unwrap();
    let duration = "persistentvolume_delete_duration_seconds_count{";
    let durations = metrics.lines().filter(|line| line.contains(duration));
    let durations: Vec<_> = durations.collect();
    assert_eq!(durations.len(), 1, "{durations:?}");
    assert!(durations[0].contains("type=\"job\""), "{durations:?}");
}

#[test]
fn our_own_methods_clean_in_jobs_and_the_second_time_as_well() {
    let stage = or_skip!(stage_with_jobs());
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let mut provisioner = stage.provisioner();
    let first = release_device(&stage, &device, &path);
    let second = offered_again(&stage, &path, &first);
    assert!(fs::read(device.path()).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(uid(&release_device(&stage, &device, &path)), uid(&second));
    offered_again(&stage, &path, &second);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(made_jobs(&stage), 2);
    assert_eq!(total(&mut provisioner, "delete_failed_total", "job"), 0);
}

#[test]
fn a_job_outlives_the_provisioner_and_its_successor_takes_it_over() {
    let stage = or_skip!(stage_with_jobs());
    let (held, device, path, mut provisioner, bound) = held_job(&stage);
    let made = job(&stage, &bound).unwrap();
    provisioner.kill();
    let mut successor = stage.provisioner();
    stage.eventually("it waits for the Job", || {
        cleanup_of(&mut successor, &path)["state"] == "Running"
    });
    // A shutdown does not stop it either.
    assert!(successor.stop(stage.timeout()).unwrap().success());
    let _third = stage.provisioner();
    assert_eq!(job(&stage, &bound).unwrap()["metadata"]["uid"], made["metadata"]["uid"]);
    held.go_on();
    offered_again(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!((held.ran().len(), made_jobs(&stage)), (1, 1));
}
