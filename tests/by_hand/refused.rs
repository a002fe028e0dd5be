//! What is not touched, whatever the command line says.

use std::fs::{self, File};
use std::path::Path;

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use local_volume_provisioner::host::access::Access;
use local_volume_provisioner::host::lock::VolumeLock;
use nix::mount::MsFlags;
use serde_json::json;
use std::os::fd::AsFd;
use support::LoopDevice;
use support::stage::{name, uid};

use crate::fixture::{
    assert_ends, assert_refused, command, fill, has_secret, is_full, raw, stage, volume,
};

const NO_ENTRY: &str = "is no entry of a configured class";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn paths_outside_of_the_configured_classes() {
    let stage = or_skip!(stage());
    stage.class("some", &json!({ "namePattern": "disk-*" }));
    let outside = stage.sandbox.tmpfs("outside", "size=1m").unwrap();
    fill(&outside);
    let unmatched = stage.sandbox.tmpfs("disks/some/other", "size=1m").unwrap();
    fill(&unmatched);
    let root = volume(&stage, "volume");
    let disks = stage.sandbox.path().join("disks/fast");
    for path in [
        outside.as_path(),
        &unmatched,
        &root.join("dir"),
        &disks,
        &disks.join("missing"),
        Path::new("/"),
        Path::new("local-pv-0"),
    ] {
        assert_refused(&stage, text(path), NO_ENTRY);
    }
    let plain = stage.sandbox.dir("disks/fast/plain").unwrap();
    fill(&plain);
    assert_refused(&stage, text(&plain), "is not a valid mount point");
    assert!([outside, unmatched, root, plain].iter().all(|root| is_full(root)));
}

#[test]
fn volumes_of_available_bound_and_terminating_pvs_and_with_a_job() {
    let stage = or_skip!(stage());
    stage.configure("pauseCleaning", "true");
    let root = volume(&stage, "volume");
    let provisioner = stage.provisioner();
    stage.available(&root, None);
    assert_refused(&stage, text(&root), "reserve it first");
    let pv = stage.used(&stage.bind("claim", &root));
    assert_refused(&stage, text(&root), "belongs to a claim");
    stage.delete_claim("claim");
    stage.in_phase(&name(&pv), "Released");
    drop(provisioner);

    let jobs: Api<Job> = Api::namespaced(stage.client.clone(), &stage.namespace());
    let job = json!({
        "metadata": {
            "name": format!("cleanup-{}", name(&pv)),
            "labels": { "kubernetes.io/hostname": stage.node(), "pv": name(&pv), "pvuuid": uid(&pv) },
        },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "cleaner", "image": "none" }],
        } } },
    });
    let job = stage.create(&jobs, job);
    assert_refused(&stage, &name(&pv), "has the cleaning Job");
    let job = job.metadata.name.unwrap();
    let params = kube::api::DeleteParams::background();
    stage.request(jobs.delete(&job, &params));
    stage.eventually("the Job is gone", || stage.request(jobs.get_opt(&job)).is_none());

    stage.delete_pv(&name(&pv));
    assert_refused(&stage, text(&root), "is Terminating");
    assert!(is_full(&root));
}

#[test]
fn volumes_in_use() {
    let stage = or_skip!(stage());
    let root = volume(&stage, "volume");
    let path = text(&root);
    {
        let file = File::open(&root).unwrap();
        let _lock = VolumeLock::acquire(file.as_fd(), &root, Access::Clean).unwrap();
        assert_refused(&stage, path, "locked");
    }
    stage.pod_with_host_path("user", path);
    assert_refused(&stage, path, "mount it by hostPath");
    stage.delete_pod("user", true);

    let of_pod = "kubelet/pods/uid/volumes/kubernetes.io~local-volume/pv";
    let bind = stage.sandbox.bind(&root, of_pod).unwrap();
    assert_refused(&stage, path, "the kubelet has it mounted for a Pod");
    stage.sandbox.umount(&bind).unwrap();

    let inner = root.join("dir/inner");
    fs::create_dir(&inner).unwrap();
    let none = None::<&str>;
    nix::mount::mount(Some("t"), &inner, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    assert_refused(&stage, path, "is mounted inside the volume");
    stage.sandbox.umount(&inner).unwrap();

    let twin = stage.sandbox.bind(&root, "disks/fast/volume-twin").unwrap();
    assert_refused(&stage, text(&twin), "volume");
    assert!(is_full(&root));
}

#[test]
fn devices_in_use() {
    let stage = or_skip!(stage());
    let (device, path) = raw(&stage, &json!({}), stage.sandbox.path());
    let upon = LoopDevice::over(&File::open(device.path()).unwrap()).unwrap();
    assert_refused(&stage, text(&path), "in use");
    drop(upon);
    let alone = device.open_alone().unwrap();
    assert_refused(&stage, text(&path), "in use");
    drop(alone);
    assert!(has_secret(&device));
}

#[test]
fn volumes_whose_pods_or_pvs_are_unknown() {
    let stage = or_skip!(stage());
    let root = volume(&stage, "volume");
    let args = [text(&root), "--yes"];
    let nowhere = json!({
        "clusters": [{ "name": "c", "cluster": { "server": "http://127.0.0.1:1" } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": {} }], "current-context": "c",
    });
    let kubeconfig = stage.sandbox.path().join("nowhere");
    fs::write(&kubeconfig, nowhere.to_string()).unwrap();
    let mut unreachable = command(&stage, &args);
    assert_ends(unreachable.env("KUBECONFIG", kubeconfig), 2, &["reading the Node"]);

    let mut blind = command(&stage, &args);
    let elsewhere = stage.sandbox.dir("elsewhere").unwrap();
    blind.arg("--kubelet-dir").arg(elsewhere);
    assert_ends(&mut blind, 2, &["--kubelet-dir", "nothing was touched"]);

    let mut unasked = command(&stage, &args[..1]);
    assert_ends(&mut unasked, 2, &["no terminal", "--dry-run", "--yes"]);
    assert!(is_full(&root));
}
