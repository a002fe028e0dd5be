//! The Pods of Jobs run where the disks of the stage are.

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use support::{Stage, skip};

#[test]
fn a_job_sees_what_is_mounted_on_the_stage() {
    let Some(stage) = Stage::set("/bin/cp") else {
        return;
    };
    if stage.embedded().is_none() {
        skip("a real cluster runs Pods in containers, by its kubelet");
        return;
    }
    let disk = stage.sandbox.tmpfs("disk", "size=1m").unwrap();
    std::fs::write(disk.join("data"), "of this stage").unwrap();
    let job: Job = serde_json::from_value(json!({
        "metadata": { "name": "copy" },
        "spec": { "template": { "spec": {
            "restartPolicy": "OnFailure",
            "nodeSelector": { "kubernetes.io/hostname": stage.node() },
            "containers": [{
                "name": "cleaner",
                "image": "none",
                "command": ["/local-volume-provisioner", "--verbose"],
                "args": ["$(DISK)/data", "$(DISK)/copy"],
                "env": [{ "name": "DISK", "value": disk }],
            }],
        } } },
    }))
    .unwrap();
    let jobs: Api<Job> = Api::namespaced(stage.client.clone(), &stage.namespace());
    stage
        .block_on(jobs.create(&PostParams::default(), &job))
        .unwrap();
    stage.eventually("the Job is complete", || {
        let status = stage.block_on(jobs.get("copy")).unwrap().status?;
        (status.succeeded? == 1 && status.completion_time.is_some()).then_some(())
    });
    let copy = std::fs::read_to_string(disk.join("copy")).unwrap();
    assert_eq!(copy, "of this stage");
}
