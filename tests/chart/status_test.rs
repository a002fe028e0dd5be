//! `helm test`: a pod that runs `status` for all nodes.

use serde_json::json;

use crate::helm::{Helm, NAMESPACE};

const NAME: &str = "lvp-local-volume-provisioner-test";
const ON: [&str; 2] = ["test.enabled=yes", "networkPolicy.enabled=true"];

#[test]
fn helm_test_has_hooks_only_and_none_by_default() {
    let helm = or_skip!(Helm::find());
    let off = helm.render(&ON[1..]);
    let on = helm.render(&ON);
    for object in &off.0 {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert_ne!(name, NAME);
        assert_eq!(on.get(object["kind"].as_str().unwrap(), name), object);
    }
    let added = ["NetworkPolicy", "Pod", "Role", "RoleBinding", "ServiceAccount"];
    assert_eq!(on.0.len(), off.0.len() + added.len());
    for kind in added {
        let annotations = &on.get(kind, NAME)["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "test", "{kind}");
    }
}

#[test]
fn test_pod_may_do_what_status_requires() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render(&ON);
    let pod = objects.only("Pod");
    let printed = "helm.sh/hook-output-log-policy";
    assert!(pod["metadata"]["annotations"][printed].is_string());
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccountName"], NAME);
    assert_eq!(spec["restartPolicy"], "Never");
    let container = &spec["containers"][0];
    let namespace = format!("--namespace={NAMESPACE}");
    assert_eq!(container["args"], json!(["status", "--all", namespace]));
    assert_eq!(container["image"], objects.container()["image"]);
    assert_eq!(container["securityContext"]["runAsNonRoot"], true);
    let rule = |resource: &str, verb: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": [verb] });
    let rules = json!([rule("pods", "list"), rule("pods/proxy", "get")]);
    assert_eq!(objects.get("Role", NAME)["rules"], rules);
    let labels = &pod["metadata"]["labels"];
    let selector = &objects.only("DaemonSet")["spec"]["selector"]["matchLabels"];
    let key = "app.kubernetes.io/name";
    assert_ne!(labels[key], selector[key], "it is no pod of the DaemonSet");
    let policy = &objects.get("NetworkPolicy", NAME)["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"], *labels);
    assert!(policy["ingress"].is_null());
}
