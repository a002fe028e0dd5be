//! Jobs whose pods start late, as on a node that is cordoned: much may have been decided by then.

use k8s_openapi::api::core::v1::Pod;

use super::*;

const PAUSED: &str = "local-volume-provisioner/paused";

/// A released device with secrets, and the Job for it, whose pod cannot be scheduled.
struct Late {
    stage: Stage,
    device: LoopDevice,
    path: PathBuf,
    bound: PersistentVolume,
}

impl Late {
    /// With the provisioner that made the Job.
    fn job() -> Option<(Self, Program)> {
        let stage = stage_with_jobs()?;
        let (device, path) = raw_volume(&stage, &json!({ "cleanMethod": "zero" }));
        let provisioner = stage.provisioner();
        let bound = stage.used(&stage.bind("claim", &path));
        cordon(&stage);
        scribble(device.path());
        stage.delete_claim("claim");
        stage.eventually("the Job is made", || job(&stage, &bound));
        let late = Self { stage, device, path, bound };
        Some((late, provisioner))
    }

    fn keep(&self) {
        let keep = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
        self.stage.patch_pv(&name(&self.bound), &keep);
    }

    fn take_finalizer_off(&self) {
        let none = json!({ "metadata": { "finalizers": null } });
        self.stage.patch_pv(&name(&self.bound), &none);
    }

    fn annotate(&self, key: &str, value: &str) {
        annotate(&self.stage, &name(&self.bound), key, value);
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.stage.client.clone(), &self.stage.namespace())
    }

    fn listed(&self) -> Vec<Pod> {
        let (pods, params) = (self.pods(), ListParams::default());
        self.stage.request(pods.list(&params)).items
    }

    fn job_goes(&self) {
        self.stage.eventually("the Job goes", || job(&self.stage, &self.bound).is_none());
    }

    /// Nothing is left that the node could start.
    fn stays_whole(&self) {
        self.stage.eventually("the Job's pod goes", || self.listed().is_empty());
        uncordon(&self.stage);
        assert_eq!(secrets_on(self.device.path()).len(), 4);
        assert_eq!(made_jobs(&self.stage), 1);
    }

    /// Nor is anything made that it could.
    fn is_left_alone(&self, provisioner: &mut Program) {
        self.stays_whole();
        self.stage.still(provisioner, "the data is there", || {
            secrets_on(self.device.path()).len() == 4 && made_jobs(&self.stage) == 1
        });
    }

    fn is_cleaned(&self) {
        offered_again(&self.stage, &self.path, &self.bound);
        assert!(secrets_on(self.device.path()).is_empty());
    }
}

fn cordon(stage: &Stage) {
    taint_node(stage, &json!([{ "key": "full", "effect": "NoSchedule" }]));
}

fn uncordon(stage: &Stage) {
    taint_node(stage, &json!(null));
}

#[test]
fn the_data_is_kept_although_its_job_waits_to_start() {
    let gestures: [fn(&Late); 3] = [
        Late::keep,
        |late| {
            let consent = forget(&late.bound);
            late.annotate("local-volume-provisioner/consent", &consent);
        },
        Late::take_finalizer_off,
    ];
    for gesture in gestures {
        let (late, mut provisioner) = or_skip!(Late::job());
        gesture(&late);
        late.job_goes();
        late.is_left_alone(&mut provisioner);
        // No other tenant gets it.
        late.stage.event("VolumeDirty", "disk");
        assert!(late.stage.pvs_at(&late.path).is_empty());
        assert_eq!(secrets_on(late.device.path()).len(), 4);
    }
}

#[test]
fn a_pause_is_noticed_although_a_job_waits_to_start() {
    let gestures: [fn(&Late, &str); 2] = [
        |late, paused| late.annotate(PAUSED, paused),
        |late, paused| annotate_node(&late.stage, PAUSED, paused),
    ];
    for pause in gestures {
        let (late, mut provisioner) = or_skip!(Late::job());
        pause(&late, "true");
        late.job_goes();
        late.is_left_alone(&mut provisioner);
        let now = late.stage.pv(&name(&late.bound)).unwrap();
        assert!(is_terminating(&now) && is_protected(&now));
        pause(&late, "false");
        late.is_cleaned();
    }
}

#[test]
fn a_job_is_deleted_with_its_pv_although_no_provisioner_runs() {
    let (late, mut provisioner) = or_skip!(Late::job());
    provisioner.kill();
    late.take_finalizer_off();
    late.job_goes();
    late.stays_whole();
}

/// Most clients that are not kubectl leave the pods of a Job that they delete.
#[test]
fn a_pod_whose_job_is_gone_is_named_and_waited_for() {
    let (late, _provisioner) = or_skip!(Late::job());
    let pod = late
        .stage
        .eventually("its pod is made", || late.listed().into_iter().next()?.metadata.name);
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    let (jobs, its) = (jobs(&late.stage), job_name(&name(&late.bound)));
    late.stage.request(jobs.delete(&its, &params));
    let event = late.stage.event("VolumeInUse", &pod);
    assert!(event.contains("delete pod"), "{event}");
    assert_eq!(made_jobs(&late.stage), 1);
    let (pods, params) = (late.pods(), DeleteParams::default());
    late.stage.request(pods.delete(&pod, &params));
    uncordon(&late.stage);
    late.is_cleaned();
    assert_eq!(made_jobs(&late.stage), 2);
}
