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
/// somebody mounts in it meanwhile is left alone. A directory of the same filesystem that is bound
/// there is not: `find` tells filesystems apart by their device numbers, mounts not at all.
const SCRIPT: &str = "find /scrub -xdev -mindepth 1 -delete && \
                      [ -z \"$(find /scrub -mindepth 1 -print -quit)\" ]";

/// Any with a shell and find would do; nothing is pulled here.
const IMAGE: &str = "debian:stable-slim";

/// A kind of volume that has a recycler, with how long its pod may take: at least this many
/// seconds, and this many for each GiB.
struct Plugin {
    source: &'static str,
    least: i128,
    per_gib: i128,
}

const PLUGINS: [Plugin; 2] = [
    Plugin {
        source: "hostPath",
        least: 60,
        per_gib: 30,
    },
    Plugin {
        source: "nfs",
        least: 300,
        per_gib: 30,
    },
];

/// The name of the pod of this volume: a second one cannot be made beside it.
pub(crate) fn name(volume: &Volume) -> String {
    format!("recycler-for-{}", volume.name())
}

/// The pod for a volume; `None` if its kind has no recycler.
pub(crate) fn of(volume: &Volume) -> Option<Value> {
    let plugin = plugin(&volume["spec"])?;
    let gib = volume.capacity() / (1 << 30);
    let deadline = i64::try_from((gib * plugin.per_gib).max(plugin.least)).unwrap_or(i64::MAX);
    Some(json!({
        "metadata": {"name": name(volume), "namespace": NAMESPACE},
        "spec": spec(plugin, &volume["spec"], &json!(deadline)),
    }))
}

/// The plug-in for the kind of volume that is described here.
fn plugin(source: &Value) -> Option<&'static Plugin> {
    let mut plugins = PLUGINS.iter();
    plugins.find(|plugin| source[plugin.source].is_object())
}

fn spec(plugin: &Plugin, source: &Value, deadline: &Value) -> Value {
    let given = &source[plugin.source];
    let source = match plugin.source {
        "nfs" => json!({"server": given["server"], "path": given["path"]}),
        _ => json!({"path": given["path"]}),
    };
    json!({
        "activeDeadlineSeconds": deadline,
        "restartPolicy": "Never",
        "volumes": [{"name": "vol", plugin.source: source}],
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
    let source = &pod["spec"]["volumes"][0];
    let Some(plugin) = plugin(source) else {
        return false;
    };
    let deadline = &pod["spec"]["activeDeadlineSeconds"];
    let mut genuine = json!({"spec": spec(plugin, source, deadline)});
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
    fn it_has_time_by_the_size_of_the_volume() {
        for (size, seconds) in [("1Mi", 60), ("2Gi", 60), ("3Gi", 90), ("1Ti", 30720)] {
            let pod = of(&host_path(size)).unwrap();
            assert_eq!(pod["spec"]["activeDeadlineSeconds"], seconds, "{size}");
        }
    }

    #[test]
    fn which_volumes_have_one() {
        let pod = of(&host_path("1Gi")).unwrap();
        assert_eq!(pod["metadata"]["name"], "recycler-for-v");
        assert_eq!(
            pod["spec"]["volumes"][0]["hostPath"],
            json!({"path": "/tmp/v"})
        );
        let nfs = but((*host_path("1Gi").0).clone(), |v| {
            let spec = v["spec"].as_object_mut().unwrap();
            spec.remove("hostPath");
            spec.insert("nfs".into(), json!({"server": "s", "path": "/p"}));
        });
        let pod = of(&Volume(Arc::new(nfs))).unwrap();
        assert_eq!(
            pod["spec"]["volumes"][0]["nfs"],
            json!({"server": "s", "path": "/p"})
        );
        assert_eq!(pod["spec"]["activeDeadlineSeconds"], 300);
        assert!(of(&Volume(Arc::new(volume("local", "1Gi")))).is_none());
    }

    #[test]
    fn no_other_pod_passes_for_one() {
        let genuine = of(&host_path("1Gi")).unwrap();
        let is = |pod: Value| is(&Pod(Arc::new(pod)));
        assert!(is(genuine.clone()));
        for (path, forged) in [
            ("/metadata/name", json!("other")),
            ("/metadata/namespace", json!("ns")),
            ("/spec/containers/0/args/1", json!("rm -rf /")),
            ("/spec/containers/0/command/0", json!("/bin/rm")),
            ("/spec/containers/0/volumeMounts/0/mountPath", json!("/")),
            ("/spec/containers/0/volumeMounts/0/name", json!("x")),
            ("/spec/containers", json!([])),
        ] {
            let pod = but(genuine.clone(), |pod| {
                *pod.pointer_mut(path).unwrap() = forged;
            });
            assert!(!is(pod), "{path}");
        }
        for (holder, field, forged) in [
            ("", "initContainers", json!([{"name": "x"}])),
            ("", "securityContext", json!({"runAsUser": 1000})),
            ("/containers/0", "env", json!([{"name": "PATH"}])),
            ("/containers/0", "workingDir", json!("/tmp")),
            ("/containers/0", "securityContext", json!({"runAsUser": 1})),
            ("/containers/0/volumeMounts/0", "readOnly", json!(true)),
            ("/containers/0/volumeMounts/0", "subPath", json!("sub")),
            ("/containers/0/volumeMounts/0", "subPathExpr", json!("$(A)")),
            ("/volumes/0/hostPath", "type", json!("File")),
        ] {
            let pod = but(genuine.clone(), |pod| {
                pod.pointer_mut(&format!("/spec{holder}")).unwrap()[field] = forged;
            });
            assert!(!is(pod), "{holder} {field}");
        }
        let on_node = but(genuine, |pod| pod["spec"]["nodeName"] = json!("n1"));
        assert!(is(on_node));
    }
}
