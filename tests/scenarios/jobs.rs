//! Devices cleaned by Jobs, which the embedded control plane runs as processes of our own program. What
//! a real kubelet makes of them is told in `tests/installed/jobs.rs`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_plane::ProcessOptions;
use control_plane::faults::Answer;
use control_plane::requests::Verb;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use local_volume_provisioner::names::{LABEL_HOSTNAME, job_name};
use nix::libc;
use serde_json::{Value, json};
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
    stage.configure("useJobForCleaning", "true").unwrap();
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

fn delete_job(stage: &Stage, pv: &PersistentVolume) {
    let params = DeleteParams::foreground();
    stage
        .block_on(jobs(stage).delete(&job_name(&name(pv)), &params))
        .unwrap();
}

fn made_jobs(stage: &Stage) -> usize {
    let made = |verb| {
        let all = stage.requests().all();
        let of_jobs = all
            .iter()
            .filter(|r| r.verb == verb && r.resource == "jobs");
        of_jobs.count()
    };
    made(Verb::Create)
}

/// A released device with a secret; its PV.
fn release_device(stage: &Stage, device: &LoopDevice, path: &Path) -> PersistentVolume {
    let bound = stage.used(&stage.bind("claim", path));
    scribble(device.path());
    stage.delete_claim("claim");
    bound
}

/// A cleaner that waits until it is told to go on, and notes that it ran.
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
        stage.eventually("the cleaner runs", || {
            (!self.ran().is_empty()).then_some(())
        });
    }

    fn go_on(&self) {
        fs::write(self.dir.join("go"), "").unwrap();
    }
}

fn taint_node(stage: &Stage, taints: &Value) {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
    let (node, params) = (stage.node(), PatchParams::default());
    stage.block_on(nodes.patch(&node, &params, &patch)).unwrap();
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
    let Some(stage) = stage_running(BINARY, Some("host-of-another-name")) else {
        return;
    };
    let (held, device, path) = Held::volume(&stage);
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    let shown = format!("{}/{}", stage.namespace(), job_name(&name(&bound)));
    stage.eventually("the status names the Job", || {
        let cleanup = cleanup_of(&mut provisioner, &path);
        (cleanup["state"] == "Running" && cleanup["job"] == shown.as_str()).then_some(())
    });
    let made = job(&stage, &bound).unwrap();
    let selector = &made["spec"]["template"]["spec"]["nodeSelector"];
    assert_eq!(*selector, json!({ LABEL_HOSTNAME: "host-of-another-name" }));
    assert_eq!(made["metadata"]["annotations"]["device"], json!(path));
    assert!(
        is_terminating(&stage.pv(&name(&bound)).unwrap()),
        "nobody can bind it"
    );
    stage.event("VolumeDelete", &shown);

    held.go_on();
    let fresh = offered_anew(&stage, &path, &bound);
    assert_eq!(identity(&fresh), identity(&bound));
    assert!(job(&stage, &bound).is_none(), "it went before the PV");
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(held.ran().len(), 1);
    stage.eventually("it is counted as a Job's", || {
        (total(&mut provisioner, "delete_total", "job") == 1).then_some(())
    });
    assert_eq!(total(&mut provisioner, "delete_total", "process"), 0);
    let (_, metrics) = provisioner.http_get("/metrics").unwrap();
    let duration = "persistentvolume_delete_duration_seconds_count{";
    let mut durations = metrics.lines().filter(|line| line.contains(duration));
    assert!(durations.all(|line| line.contains("type=\"job\"")));
}

#[test]
fn our_own_methods_clean_in_jobs_and_the_second_time_as_well() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let mut provisioner = stage.provisioner().unwrap();
    let first = release_device(&stage, &device, &path);
    let second = offered_anew(&stage, &path, &first);
    assert!(
        fs::read(device.path())
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    assert_eq!(uid(&release_device(&stage, &device, &path)), uid(&second));
    offered_anew(&stage, &path, &second);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(made_jobs(&stage), 2);
    assert_eq!(total(&mut provisioner, "delete_failed_total", "job"), 0);
}

#[test]
fn what_is_mounted_is_cleaned_in_the_process() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.occupy("claim", &volume);
    stage.delete_claim("claim");
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
    assert_eq!(made_jobs(&stage), 0);
}

#[test]
fn a_job_outlives_the_provisioner_and_its_successor_takes_it_over() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    let (held, device, path) = Held::volume(&stage);
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    let made = job(&stage, &bound).unwrap();
    provisioner.kill();
    let mut successor = stage.provisioner().unwrap();
    stage.eventually("it waits for the Job", || {
        (cleanup_of(&mut successor, &path)["state"] == "Running").then_some(())
    });
    // A shutdown stops it no more than a crash.
    assert!(successor.stop(Duration::from_secs(3)).unwrap().success());
    let _third = stage.provisioner().unwrap();
    assert_eq!(
        job(&stage, &bound).unwrap()["metadata"]["uid"],
        made["metadata"]["uid"]
    );
    held.go_on();
    offered_anew(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!((held.ran().len(), made_jobs(&stage)), (1, 1));
}

#[test]
fn a_job_that_runs_is_waited_for_although_jobs_are_switched_off() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    let (held, device, path) = Held::volume(&stage);
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    provisioner.kill();
    stage.configure("useJobForCleaning", "false").unwrap();
    let mut successor = stage.provisioner().unwrap();
    stage.eventually("it waits for the Job", || {
        (cleanup_of(&mut successor, &path)["state"] == "Running").then_some(())
    });
    held.go_on();
    let fresh = offered_anew(&stage, &path, &bound);
    assert_eq!((held.ran().len(), made_jobs(&stage)), (1, 1));
    // From now on it is done in the process.
    assert_eq!(uid(&release_device(&stage, &device, &path)), uid(&fresh));
    offered_anew(&stage, &path, &fresh);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!((held.ran().len(), made_jobs(&stage)), (2, 1));
}

#[test]
fn fault_13_a_failed_job_stays_and_is_told_once_until_somebody_deletes_it() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    let dir = stage.sandbox.path().display().to_string();
    let (device, path) = cleaned_by(
        &stage,
        &format!(
            "echo $$ >>{dir}/ran; [ -e {dir}/mended ] || exit 3\n\
             dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=32 conv=notrunc status=none\n"
        ),
    );
    let ran = || lines(&stage.sandbox.path().join("ran")).len();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    stage.within(GIVEN_UP, "the Job has failed", || {
        has_condition(&job(&stage, &bound)?, "Failed").then_some(())
    });
    let shown = format!("{}/{}", stage.namespace(), job_name(&name(&bound)));
    let remedy = format!(
        "kubectl --namespace {} delete job {}",
        stage.namespace(),
        job_name(&name(&bound))
    );
    let told = stage.event("VolumeFailedDelete", &shown);
    assert!(
        told.contains("BackoffLimitExceeded") && told.contains(&remedy),
        "{told}"
    );
    stage.eventually("the status says so", || {
        let volume = status_of(&mut provisioner, &path);
        let error = volume["cleanup"]["lastError"].as_str().unwrap_or_default();
        (volume["state"] == "CleaningFailed" && error.contains(&remedy)).then_some(())
    });
    let tries = ran();
    stage.stays(Duration::from_secs(2), "nothing is tried again", || {
        job(&stage, &bound).is_some() && ran() == tries && secrets_on(device.path()).len() == 4
    });
    assert_eq!(total(&mut provisioner, "delete_failed_total", "job"), 1);
    assert_eq!(metric(&mut provisioner, "proctable_failed"), Some(1));
    let failures = stage.events("VolumeFailedDelete");
    assert_eq!(failures.len(), 1, "{failures:?}");

    // Its successor says so as well.
    provisioner.kill();
    let mut successor = stage.provisioner().unwrap();
    stage.eventually("it is known to have failed", || {
        (status_of(&mut successor, &path)["state"] == "CleaningFailed").then_some(())
    });
    fs::write(stage.sandbox.path().join("mended"), "").unwrap();
    delete_job(&stage, &bound);
    offered_anew(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!((ran(), made_jobs(&stage)), (tries + 1, 2));
}

/// Its image may be anybody's.
#[test]
fn a_jobs_success_is_not_believed() {
    let Some(stage) = stage_running("/bin/true", None) else {
        return;
    };
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    let told = stage.event("VolumeFailedDelete", "is not zero");
    assert!(told.contains(&job_name(&name(&bound))), "{told}");
    stage.eventually("the Job goes, for the next try to make another", || {
        job(&stage, &bound).is_none().then_some(())
    });
    let now = stage.pv(&name(&bound)).unwrap();
    assert!(is_terminating(&now) && is_protected(&now));
    assert_eq!(secrets_on(device.path()).len(), 4);
    assert_eq!(total(&mut provisioner, "delete_failed_total", "job"), 1);
    assert_eq!(total(&mut provisioner, "delete_total", "job"), 0);
}

/// A Job by the name of ours: of an earlier claim, or the Go provisioner's, which knows no claims.
#[test]
fn fault_2_another_ones_job_is_deleted_and_waited_for() {
    for (annotations, run) in [
        (json!({}), "hold"),
        (
            json!({ "local-volume-provisioner/claim-uid": "an earlier claim's" }),
            "succeed",
        ),
        (json!({}), "succeed"),
    ] {
        let Some(stage) = stage_with_jobs() else {
            return;
        };
        let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
        let _provisioner = stage.provisioner().unwrap();
        let bound = stage.used(&stage.bind("claim", &path));
        scribble(device.path());
        let labels = json!({
            LABEL_HOSTNAME: stage.node(), "pv": name(&bound), "pvuuid": uid(&bound),
        });
        let mut annotations = annotations;
        annotations["device"] = json!(path);
        annotations["start-time"] = json!("2026-11-21T10:00:00.123456789Z");
        annotations["local-volume-provisioner/identity"] = json!(identity(&bound));
        let theirs: Job = serde_json::from_value(json!({
            "metadata": { "name": job_name(&name(&bound)), "labels": labels, "annotations": annotations },
            "spec": { "template": {
                "metadata": { "annotations": { "control-plane/run": run } },
                "spec": {
                    "restartPolicy": "OnFailure",
                    "containers": [{ "name": "cleaner", "image": "go", "command": ["/scripts/shred.sh"] }],
                    "nodeSelector": { LABEL_HOSTNAME: stage.node() },
                },
            } },
        }))
        .unwrap();
        let theirs = stage.block_on(jobs(&stage).create(&PostParams::default(), &theirs));
        let theirs = theirs.unwrap().metadata.uid;
        stage.delete_claim("claim");
        stage.eventually("their Job goes", || {
            let now = job(&stage, &bound)?;
            (now["metadata"]["uid"] != json!(theirs)).then_some(())
        });
        offered_anew(&stage, &path, &bound);
        assert!(secrets_on(device.path()).is_empty(), "{run}");
        let failures = stage.events("VolumeFailedDelete");
        assert!(failures.is_empty(), "nobody believed it: {failures:?}");
    }
}

#[test]
fn jobs_of_pvs_that_are_gone_are_deleted_and_their_devices_wait_for_that() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let job: Job = serde_json::from_value(json!({
        "metadata": {
            "name": "cleanup-gone",
            "labels": { LABEL_HOSTNAME: stage.node(), "pv": "gone", "pvuuid": "gone" },
            "annotations": { "device": path },
        },
        "spec": { "template": {
            "metadata": { "annotations": { "control-plane/run": "fail" } },
            "spec": {
                "restartPolicy": "Never",
                "containers": [{ "name": "cleaner", "image": "go" }],
            },
        }, "backoffLimit": 0 },
    }))
    .unwrap();
    stage
        .block_on(jobs(&stage).create(&PostParams::default(), &job))
        .unwrap();
    let _provisioner = stage.provisioner().unwrap();
    stage.available(&path, None);
    let left = stage
        .block_on(jobs(&stage).get_opt("cleanup-gone"))
        .unwrap();
    assert!(left.is_none(), "first the Job goes");
    stage.event("VolumeDelete", "cleanup-gone");
    drop(device);
}

/// The Job is made for one disk, and when its pod can start at last another one is there.
#[test]
fn a_disk_that_was_exchanged_before_the_job_ran_is_left_alone() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &path));
    taint_node(&stage, &json!([{ "key": "full", "effect": "NoSchedule" }]));
    scribble(device.path());
    stage.delete_claim("claim");
    stage.eventually("the Job is made", || job(&stage, &bound));
    let other = raw(&stage);
    scribble(other.path());
    fs::remove_file(&path).unwrap();
    link(&other, path.parent().unwrap(), "disk");
    taint_node(&stage, &json!(null));
    stage.within(GIVEN_UP, "the Job is given up", || {
        has_condition(&job(&stage, &bound)?, "Failed").then_some(())
    });
    stage.event("VolumeFailedDelete", &job_name(&name(&bound)));
    for disk in [&device, &other] {
        assert_eq!(secrets_on(disk.path()).len(), 4);
    }
    assert_eq!(
        stage.pv(&name(&bound)).unwrap().metadata.uid,
        bound.metadata.uid
    );
}

#[test]
fn job_tolerations_bring_it_to_a_tainted_node_and_a_disk_in_use_there_is_waited_for() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    stage
        .configure("jobTolerations", "- {key: full, operator: Exists}\n")
        .unwrap();
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &path));
    let (full, fuller) = (
        json!({ "key": "full", "effect": "NoSchedule" }),
        json!({ "key": "fuller", "effect": "NoSchedule" }),
    );
    taint_node(&stage, &json!([full, fuller]));
    scribble(device.path());
    stage.delete_claim("claim");
    stage.eventually("the Job is made", || job(&stage, &bound));
    let user = File::options()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(device.path())
        .unwrap();
    taint_node(&stage, &json!([full]));
    stage.eventually("its pod runs", || {
        (job(&stage, &bound)?["status"]["ready"] == 1).then_some(())
    });
    stage.stays(
        Duration::from_secs(1),
        "what is in use is not touched",
        || secrets_on(device.path()).len() == 4,
    );
    drop(user);
    offered_anew(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(made_jobs(&stage), 1);
}

#[test]
fn without_the_right_to_make_jobs_nothing_is_cleaned_and_the_right_is_named() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
    let denied = stage.faults().on(Verb::Create).resource("jobs").forbid();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    let told = stage.event("PermissionMissing", "create jobs.batch");
    assert!(told.contains("deploy/rbac.yaml"), "{told}");
    let right = "missing_permission{resource=\"jobs.batch\",verb=\"create\"}";
    stage.eventually("the metric says so", || {
        (metric(&mut provisioner, right) == Some(1)).then_some(())
    });
    assert_eq!(
        secrets_on(device.path()).len(),
        4,
        "it is not done in the process instead"
    );
    denied.clear();
    stage.within(Duration::from_secs(20), "a Job cleans it", || {
        secrets_on(device.path()).is_empty().then_some(())
    });
    offered_anew(&stage, &path, &bound);
    assert_eq!(metric(&mut provisioner, right), Some(0));
}

#[test]
fn answers_that_are_lost_make_no_second_job_and_no_second_wipe() {
    let Some(stage) = stage_with_jobs() else {
        return;
    };
    let (held, device, path) = Held::volume(&stage);
    // It is made, and that is not heard of; it is deleted, and that is not heard of; nor is it read.
    let faults = [Verb::Create, Verb::Delete].map(|verb| {
        let lost = stage.faults().on(verb).resource("jobs").times(1);
        lost.reset_after()
    });
    let unread = stage.faults().on(Verb::Get).resource("jobs").times(2);
    let unread = unread.answer(Answer::code(500));
    let _provisioner = stage.provisioner().unwrap();
    let bound = release_device(&stage, &device, &path);
    held.runs(&stage);
    held.go_on();
    stage.within(Duration::from_secs(20), "it is offered anew", || {
        let pv = stage.pvs_at(&path).pop()?;
        (pv.metadata.uid != bound.metadata.uid).then_some(())
    });
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(held.ran().len(), 1);
    assert!(job(&stage, &bound).is_none());
    assert_eq!(faults.map(|fault| fault.hits()), [1, 1]);
    assert_eq!(unread.hits(), 2);
}

/// Neither before there is anything to clean nor afterwards.
#[test]
fn jobs_are_watched_where_there_are_any_and_listed_once_elsewhere() {
    for on in [true, false] {
        let Some(stage) = stage_with_jobs() else {
            return;
        };
        stage
            .configure("useJobForCleaning", if on { "true" } else { "false" })
            .unwrap();
        let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
        let _provisioner = stage.provisioner().unwrap();
        let bound = release_device(&stage, &device, &path);
        offered_anew(&stage, &path, &bound);
        let count = |verb: Verb| {
            let all = stage.requests().all();
            let of_jobs = all
                .iter()
                .filter(|r| r.verb == verb && r.resource == "jobs");
            let selects = |path: &str| path.contains("kubernetes.io%2Fhostname%3D");
            assert!(of_jobs.clone().all(|r| selects(&r.path)));
            of_jobs.count()
        };
        assert_eq!(
            (count(Verb::List), count(Verb::Watch)),
            (1, usize::from(on))
        );
    }
}
