//! Pods that mount the volume as a path of the node, under another name or by the claim of another PV.

use control_plane::requests::{Request, Verb};

use super::*;

fn is_read(request: &Request, verb: Verb, resource: &str) -> bool {
    request.verb == verb && request.resource == resource
}

#[test]
fn volume_that_a_pod_uses_by_the_claim_of_a_host_path_pv_is_kept() {
    let mut volume = or_skip!(occupied());
    let (stage, path) = (&volume.stage, &volume.path);
    let other = stage.named("host-path");
    let mut pv = pv_by_hand(stage, &other, "elsewhere", path, "1Gi");
    pv["metadata"]["annotations"] = json!({});
    pv["spec"].as_object_mut().unwrap().remove("local");
    pv["spec"]["hostPath"] = json!({ "path": path.join("dir") });
    stage.create_pv(pv);
    stage.claim("other", "elsewhere", Some(&other));
    stage.in_phase(&other, "Bound");
    stage.pod("pod", "other");
    stage.pod_in_phase("pod", "Running");
    let mark = stage.requests().mark();
    volume.release();
    let user = format!("by hostPath: {}/pod", volume.stage.namespace());
    volume.stage.event("VolumeInUse", &user);
    volume.is_kept("Released", "the pod uses it");
    let requests = || volume.stage.requests().since(mark);
    volume.stage.eventually("it inspects again", || {
        let lists = requests();
        let lists = lists.iter().filter(|it| is_read(it, Verb::List, "pods"));
        lists.count() > 2
    });
    let requests = requests();
    let claims = requests.iter().filter(|it| is_read(it, Verb::Get, "persistentvolumeclaims"));
    let others = claims.filter(|it| it.path.ends_with("/other"));
    assert_eq!(others.count(), 1, "the claim was read once");
    volume.stage.delete_pod("pod", true);
    volume.stage.delete_claim("other");
    volume.stage.delete_pv(&other);
    volume.is_cleaned();
}

#[test]
fn volume_that_a_pod_mounts_by_host_path_is_not_offered() {
    let mut stage = or_skip!(stage());
    stage.add_arg("--discovery-period=1s");
    let (device, raw) = raw_volume(&stage, &json!({}));
    let [path, free] = fast_volumes(&stage, ["disk", "free"]);
    for (pod, path) in [("directory", path.as_path()), ("device", device.path())] {
        stage.pod_with_host_path(pod, path.to_str().unwrap());
        stage.pod_in_phase(pod, "Running");
    }
    let mut provisioner = stage.provisioner();
    for (path, reason, pod) in
        [(&path, "VolumeInUse", "directory"), (&raw, "DeviceInUse", "device")]
    {
        skipped(&stage, &mut provisioner, path, reason);
        let detail = status_of(&mut provisioner, path)["detail"].to_string();
        let user = format!("by hostPath: {}/{pod}", stage.namespace());
        assert!(detail.contains(&user), "{detail}");
    }
    stage.available(&free, None);
    for pod in ["directory", "device"] {
        stage.delete_pod(pod, true);
    }
    stage.available(&path, None);
    stage.available(&raw, None);
}
