//! The controller for nodes that are gone.

use serde_json::{Value, json};

use crate::helm::{Helm, Objects};

const NAME: &str = "lvp-local-volume-provisioner-node-cleanup";
const ON: &str = "nodeCleanup.enabled=true";

fn pod(objects: &Objects) -> &Value {
    &objects.only("Deployment")["spec"]["template"]["spec"]
}

fn args(objects: &Objects) -> Vec<&str> {
    let args = pod(objects)["containers"][0]["args"].as_array().unwrap();
    args.iter().map(|arg| arg.as_str().unwrap()).collect()
}

#[test]
fn nothing_of_it_is_there_unless_it_is_asked_for() {
    let helm = or_skip!(Helm::find());
    let off = helm.render(&[]);
    assert!(off.names("Deployment").is_empty());
    let on = helm.render(&[ON]);
    let of_it = |object: &&Value| object["metadata"]["name"] == NAME;
    assert_eq!(on.0.iter().filter(of_it).count(), on.0.len() - off.0.len());
    for object in &off.0 {
        let name = object["metadata"]["name"].as_str().unwrap();
        let kind = object["kind"].as_str().unwrap();
        assert_eq!(on.get(kind, name), object, "it changes nothing of the rest");
    }
}

#[test]
fn one_pod_runs_without_privileges_and_acts_on_the_classes() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render(&[
        ON,
        "classes[0].name=a,classes[0].hostDir=/mnt/a",
        "classes[1].name=b,classes[1].hostDir=/mnt/b",
    ]);
    let spec = &objects.only("Deployment")["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(spec["strategy"], json!({ "type": "Recreate" }));
    assert!(args(&objects).contains(&"--storageclass-names=a,b"));
    let pod = pod(&objects);
    assert_eq!(pod["serviceAccountName"], NAME);
    assert!(pod["hostPID"].is_null() && pod["volumes"].is_null());
    assert_eq!(pod["containers"][0]["image"], objects.container()["image"]);
    let budgets = objects.names("PodDisruptionBudget");
    assert!(budgets.is_empty(), "one would stop every drain");
}

/// Neither the DaemonSet nor what waits for its pods at helm uninstall may take them for its own.
#[test]
fn its_pods_are_none_of_the_daemon_sets() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render(&[ON]);
    let selector = &objects.only("DaemonSet")["spec"]["selector"]["matchLabels"];
    let deployment = &objects.only("Deployment")["spec"];
    let labels = &deployment["template"]["metadata"]["labels"];
    assert_eq!(*labels, deployment["selector"]["matchLabels"]);
    assert_ne!(selector["app.kubernetes.io/name"], labels["app.kubernetes.io/name"]);
}

#[test]
fn its_values_have_their_effect() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render_values(&json!({ "nodeCleanup": {
        "enabled": "yes",
        "storageClassNames": ["x", "y"],
        "csiDrivers": ["lis.csi.aws.com", "x=annotation:a|affinity:b"],
        "pvcDeletionDelay": "5m",
        "stalePvDiscoveryInterval": "30s",
        "requestsPerSecond": 50,
        "resources": { "limits": { "memory": "64Mi" } },
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": { "role": "infra" },
        "affinity": { "nodeAffinity": {} },
        "tolerations": [{ "operator": "Exists" }],
    } }));
    let args = args(&objects);
    for arg in [
        "--storageclass-names=x,y",
        "--csi-drivers=lis.csi.aws.com,x=annotation:a|affinity:b",
        "--pvc-deletion-delay=5m",
        "--stale-pv-discovery-interval=30s",
        "--requests-per-second=50",
    ] {
        assert!(args.contains(&arg), "no {arg} in {args:?}");
    }
    let pod = pod(&objects);
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(pod["nodeSelector"], json!({ "role": "infra", "kubernetes.io/os": "linux" }));
    assert_eq!(pod["affinity"], json!({ "nodeAffinity": {} }));
    assert_eq!(pod["tolerations"], json!([{ "operator": "Exists" }]));
    let resources = &pod["containers"][0]["resources"];
    assert_eq!(*resources, json!({ "limits": { "memory": "64Mi" } }));
}

#[test]
fn cleanup_timeouts_are_those_of_the_classes() {
    let helm = or_skip!(Helm::find());
    let timeouts = |first: &str, second: &str| {
        let class = |(name, timeout): (&str, &str)| json!({ "name": name, "hostDir": format!("/mnt/{name}"), "cleanupTimeout": timeout });
        let classes = [("a", first), ("b", second)].map(class);
        let enabled = json!({ "enabled": true });
        let objects = helm.render_values(&json!({ "nodeCleanup": enabled, "classes": classes }));
        let args = args(&objects).join(" ");
        let (_, rest) = args.split_once("--cleanup-timeouts=").unwrap();
        rest.split(' ').next().unwrap().to_owned()
    };
    assert_eq!(timeouts("6h", "90m"), "6h,90m");
    assert_eq!(timeouts("6h", ""), "6h,24h", "without a limit");
    assert_eq!(timeouts("", ""), "24h");
}

#[test]
fn without_roles_it_runs_as_an_account_that_has_them() {
    let helm = or_skip!(Helm::find());
    let own = helm.render(&[ON, "rbac.create=false", "nodeCleanup.serviceAccountName=mine"]);
    assert_eq!(pod(&own)["serviceAccountName"], "mine");
    for kind in ["ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"] {
        assert!(own.names(kind).is_empty(), "{kind}");
    }
    assert!(!own.names("ServiceAccount").contains(&NAME));
}

#[test]
fn its_metrics_are_found_where_the_provisioners_are() {
    let helm = or_skip!(Helm::find());
    assert!(helm.render(&[ON]).names("Service").is_empty());
    let relabel = json!([{ "action": "labeldrop", "regex": "x" }]);
    let settings = json!({
        "enabled": true,
        "interval": "1m",
        "scrapeTimeout": "5s",
        "namespace": "monitoring",
        "additionalLabels": { "release": "prometheus" },
        "relabelings": relabel,
        "metricRelabelings": relabel,
    });
    for (key, kind, endpoints) in [
        ("serviceMonitor", "ServiceMonitor", "endpoints"),
        ("podMonitor", "PodMonitor", "podMetricsEndpoints"),
    ] {
        let values = json!({ "nodeCleanup": { "enabled": true }, key: settings });
        let objects = helm.render_values(&values);
        let services = objects.names("Service").len();
        assert_eq!(services, if kind == "ServiceMonitor" { 2 } else { 0 });
        let labels = &objects.only("Deployment")["spec"]["selector"]["matchLabels"];
        let (own, main) =
            (objects.get(kind, NAME), objects.get(kind, "lvp-local-volume-provisioner"));
        assert_eq!(own["spec"]["selector"]["matchLabels"], *labels);
        assert_eq!(own["metadata"]["namespace"], "monitoring");
        assert_eq!(own["metadata"]["labels"]["release"], "prometheus");
        let endpoint = &own["spec"][endpoints][0];
        assert_eq!(*endpoint, main["spec"][endpoints][0]);
        assert_eq!(endpoint["interval"], "1m");
        assert_eq!(endpoint["scrapeTimeout"], "5s");
        assert_eq!(endpoint["relabelings"][1], relabel[0]);
        assert_eq!(endpoint["metricRelabelings"], relabel);
    }
    let objects = helm.render(&[ON, "serviceMonitor.enabled=true"]);
    let labels = &objects.only("Deployment")["spec"]["selector"]["matchLabels"];
    assert_eq!(objects.get("Service", NAME)["spec"]["selector"], *labels);
}

#[test]
fn under_node_isolation_it_needs_an_account_of_its_own() {
    let helm = or_skip!(Helm::find());
    let isolated = [ON, "nodeIsolation.enabled=true", "serviceAccount.name=disks"];
    helm.render(&isolated);
    let theirs = [&isolated[..], &["nodeCleanup.serviceAccountName=disks"]].concat();
    let said = helm.refusal(&theirs);
    assert!(said.contains("give the node cleanup an account of its own"), "{said}");
}
