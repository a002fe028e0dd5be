//! The hook that removes the finalizer after the release is deleted.

use serde_json::{Value, json};

use crate::helm::{Helm, NAMESPACE, RELEASE};

const NAME: &str = "lvp-local-volume-provisioner-uninstall";

#[test]
fn the_hook_runs_after_the_release_is_deleted_and_leaves_nothing() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render(&["tolerations[0].operator=Exists"]);
    let weight = |kind: &str| -> i32 {
        let annotations = &objects.get(kind, NAME)["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "post-delete", "{kind}");
        assert_eq!(
            annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded",
            "{kind}"
        );
        annotations["helm.sh/hook-weight"].as_str().unwrap().parse().unwrap()
    };
    // Rights first, bindings next, the Job last.
    assert!(weight("ServiceAccount") < weight("ClusterRoleBinding"));
    assert!(weight("ClusterRole") < weight("ClusterRoleBinding"));
    assert!(weight("Role") < weight("RoleBinding"));
    assert!(weight("ClusterRoleBinding") < weight("Job"));
    assert!(weight("RoleBinding") < weight("Job"));

    let job = objects.only("Job");
    assert_eq!(job["metadata"]["namespace"], NAMESPACE);
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(
        pod["containers"][0]["args"],
        json!([
            "release",
            "--finalizers",
            "--daemonset=lvp-local-volume-provisioner",
            "--namespace=disks",
            "--unless-installed",
            "--timeout=2m"
        ])
    );
    let variables = objects.container()["env"].as_array().unwrap();
    let name = variables.iter().find(|it| it["name"] == "MY_DAEMONSET");
    let name = format!("--daemonset={}", name.unwrap()["value"].as_str().unwrap());
    assert_eq!(pod["containers"][0]["args"][2], name, "as PVs name it");
    assert_eq!(pod["serviceAccountName"], NAME);
    assert_eq!(pod["tolerations"], objects.pod()["tolerations"]);
    assert_eq!(pod["containers"][0]["image"], objects.container()["image"]);
    assert_eq!(pod["containers"][0]["securityContext"]["runAsNonRoot"], true);
}

/// Otherwise a selector of the DaemonSet would adopt it.
#[test]
fn the_hooks_pod_is_none_of_the_daemon_sets() {
    let helm = or_skip!(Helm::find());
    for file in ["minimal.yaml", "everything.yaml"] {
        let objects = helm.render_file(file, &[]);
        let selector = &objects.only("DaemonSet")["spec"]["selector"]["matchLabels"];
        let labels = &objects.only("Job")["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/instance"], RELEASE);
        let selected =
            selector.as_object().unwrap().iter().all(|(label, value)| &labels[label] == value);
        assert!(!selected, "{labels} is selected by {selector}");
    }
}

/// The log of a Job that is past its deadline is gone with its pod.
#[test]
fn the_hook_has_time_for_both_of_its_waits_and_abandons_data_on_demand_only() {
    const ABSENCE: i64 = 60;
    let helm = or_skip!(Helm::find());
    for (timeout, seconds) in [("2m", 120), ("120s", 120), ("3s", 3)] {
        let objects = helm.render(&[&format!("uninstall.timeout={timeout}")]);
        let deadline = &objects.only("Job")["spec"]["activeDeadlineSeconds"];
        assert!(deadline.as_i64().unwrap() > ABSENCE + seconds, "{deadline}");
    }
    let objects = helm.render(&["uninstall.abandonUnmarked=true"]);
    let args = &objects.only("Job")["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(args[6], "--abandon-unmarked");
}

#[test]
fn the_hook_can_be_left_out() {
    let helm = or_skip!(Helm::find());
    for sets in
        ["uninstall.enabled=false", "uninstall.enabled=false,uninstall.serviceAccountName=cleaner"]
    {
        let objects = helm.render(&[sets]);
        let is_hooks = |object: &&Value| object.to_string().contains("uninstall");
        let left: Vec<_> = objects.0.iter().filter(is_hooks).collect();
        assert!(left.is_empty(), "{sets}: {left:#?}");
    }
}

/// A hook without rights would only keep the release from going.
#[test]
fn without_roles_there_is_a_hook_only_for_an_account_that_has_them() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render(&["rbac.create=false"]);
    assert!(objects.names("Job").is_empty());
    assert_eq!(objects.names("ServiceAccount"), ["lvp-local-volume-provisioner"]);
    let objects = helm.render(&["rbac.create=false,uninstall.serviceAccountName=cleaner"]);
    let pod = &objects.only("Job")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "cleaner");
    assert!(objects.names("ClusterRole").is_empty());
}
