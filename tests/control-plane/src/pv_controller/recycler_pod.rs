//! The pod that empties a volume.

use serde_json::{Value, json};

use crate::{
    controllers::object::{Pod, Volume},
    defaults, meta,
    resource::PODS,
};

/// Where recycler pods are made, whatever the namespace of the claim was.
pub(crate) const NAMESPACE: &str = "default";

/// Where the container finds the volume.
pub(crate) const MOUNT_PATH: &str = "/scrub";

/// It fails where there is no volume, and where something is left in it. Another filesystem that
/// is mounted in it meanwhile is left alone. A directory of the same filesystem that is bound
/// there is not: `find` distinguishes filesystems by their device numbers, and mounts not at all.
const SCRIPT: &str = "find /scrub -xdev -mindepth 1 -delete && \
                      [ -z \"$(find /scrub -mindepth 1 -print -quit)\" ]";

/// Any with a shell and find would do; nothing is pulled here.
const IMAGE: &str = "debian:stable-slim";

/// The name of the pod of this volume: a second one cannot be made beside it.
pub(crate) fn name(volume: &Volume) -> String {
    format!("recycler-for-{}", volume.name())
}

/// The pod for a volume; `None` if its kind has no recycler: only `hostPath` volumes have one here.
pub(crate) fn of(volume: &Volume) -> Option<Value> {
    let source = &volume["spec"]["hostPath"];
    source.is_object().then(|| {
        json!({
            "metadata": {"name": name(volume), "namespace": NAMESPACE},
            "spec": spec(&source["path"]),
        })
    })
}

fn spec(path: &Value) -> Value {
    json!({
        "restartPolicy": "Never",
        "volumes": [{"name": "vol", "hostPath": {"path": path}}],
        "containers": [{
            "name": "pv-recycler",
            "image": IMAGE,
            "command": ["/bin/sh"],
            "args": ["-c", SCRIPT],
            "volumeMounts": [{"name": "vol", "mountPath": MOUNT_PATH}],
        }],
    })
}

/// Whether this is such a pod: one that is made exactly as theirs are, and has at most got a node.
pub(crate) fn is(pod: &Pod) -> bool {
    if pod.namespace() != NAMESPACE || !pod.name().starts_with("recycler-for-") {
        return false;
    }
    let path = &pod["spec"]["volumes"][0]["hostPath"]["path"];
    let mut genuine = json!({"spec": spec(path)});
    let mut given = json!({"spec": pod["spec"]});
    meta::child_mut(&mut given, "spec").remove("nodeName");
    for pod in [&mut genuine, &mut given] {
        defaults::apply(&PODS, pod);
    }
    given == genuine
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::controllers::tests::{but, volume};

    fn host_path(size: &str) -> Volume {
        Volume(Arc::new(but(volume("v", size), |v| {
            let spec = v["spec"].as_object_mut().unwrap();
            spec.remove("local");
            spec.insert("hostPath".into(), json!({"path": "/tmp/v", "type": ""}));
        })))
    }

    #[test]
    fn no_other_pod_counts_as_a_provisioner() {
        let genuine = of(&host_path("1Gi")).unwrap();
        let is = |pod: Value| is(&Pod(Arc::new(pod)));
        assert!(is(genuine.clone()));
        for (holder, field, forged) in [
            ("/metadata", "name", json!("other")),
            ("/metadata", "namespace", json!("ns")),
            ("/spec", "containers", json!([])),
            ("/spec", "initContainers", json!([{"name": "x"}])),
            ("/spec/containers/0", "args", json!(["-c", "rm -rf /"])),
            ("/spec/containers/0", "env", json!([{"name": "PATH"}])),
            ("/spec/containers/0/volumeMounts/0", "mountPath", json!("/")),
            ("/spec/volumes/0/hostPath", "type", json!("File")),
        ] {
            let pod = but(genuine.clone(), |pod| {
                pod.pointer_mut(holder).unwrap()[field] = forged;
            });
            assert!(!is(pod), "{holder} {field}");
        }
        let on_node = but(genuine, |pod| pod["spec"]["nodeName"] = json!("n1"));
        assert!(is(on_node));
    }
}
