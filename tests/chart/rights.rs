//! What the chart permits to the provisioner: its roles, its capabilities, its network.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::helm::{Helm, NAMESPACE, Objects};

/// The provisioner's permissions: `resource.group` and the verbs.
fn rights(objects: &Objects) -> BTreeMap<String, BTreeSet<String>> {
    let mut rights: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let roles = objects.0.iter().filter(|object| {
        let ours = object["metadata"]["labels"]["app.kubernetes.io/name"]
            .as_str()
            .is_some_and(|name| !name.ends_with("-uninstall"));
        ours && (object["kind"] == "ClusterRole" || object["kind"] == "Role")
    });
    let words = |list: &Value| -> Vec<String> { serde_json::from_value(list.clone()).unwrap() };
    for role in roles {
        for rule in role["rules"].as_array().unwrap() {
            for (group, resource) in words(&rule["apiGroups"])
                .iter()
                .flat_map(|group| words(&rule["resources"]).into_iter().map(move |r| (group, r)))
            {
                let key = format!("{resource}.{group}");
                rights.entry(key).or_default().extend(words(&rule["verbs"]));
            }
        }
    }
    rights
}

fn verbs(rights: &BTreeMap<String, BTreeSet<String>>, resource: &str) -> String {
    let verbs = rights.get(resource).into_iter().flatten();
    verbs.map(String::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_feature_adds_its_own_permissions_only() {
    let helm = or_skip!(Helm::find());
    let plain = rights(&helm.render(&[]));
    for (set, resource, allowed) in [
        ("removeNodeNotReadyTaint=yes", "nodes.", "get list patch watch"),
        (
            "classes[0].name=a,classes[0].hostDir=/a,classes[0].binding=disk",
            "nodes.",
            "get list patch watch",
        ),
        ("useJobForCleaning=yes", "jobs.batch", "create delete get list patch watch"),
    ] {
        let with = rights(&helm.render(&[set]));
        assert_eq!(verbs(&with, resource), allowed, "{set}");
        assert_eq!(with.len(), plain.len(), "{set}");
        for other in plain.keys().filter(|other| **other != resource) {
            assert_eq!(verbs(&with, other), verbs(&plain, other), "{set}");
        }
    }

    let with_extra = rights(&helm.render_file("everything.yaml", &[]));
    assert_eq!(verbs(&with_extra, "disks.example.com"), "get");
}

#[test]
fn every_role_is_bound_to_the_pods_account() {
    let helm = or_skip!(Helm::find());
    let disk = "classes[0].name=a,classes[0].hostDir=/a,classes[0].binding=disk";
    for (sets, account, made) in [
        ("", "lvp-local-volume-provisioner", true),
        ("serviceAccount.name=mine", "mine", true),
        ("serviceAccount.create=false", "default", false),
        ("serviceAccount.create=false,serviceAccount.name=mine", "mine", false),
    ] {
        let objects = helm.render(&["removeNodeNotReadyTaint=true", disk, sets]);
        assert_eq!(objects.pod()["serviceAccountName"], account);
        assert_eq!(objects.names("ServiceAccount").contains(&account), made, "{sets}");
        for (role, binding) in [("ClusterRole", "ClusterRoleBinding"), ("Role", "RoleBinding")] {
            for name in objects.names(role) {
                let binding = objects.get(binding, name);
                let reference =
                    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name });
                assert_eq!(binding["roleRef"], reference);
                let account = if name.ends_with("-uninstall") { name } else { account };
                let subject =
                    json!({ "kind": "ServiceAccount", "name": account, "namespace": NAMESPACE });
                assert_eq!(binding["subjects"], json!([subject]));
            }
        }
    }
    let bare = helm.render(&["rbac.create=false"]);
    for kind in ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"] {
        assert!(bare.names(kind).is_empty(), "{kind}");
    }
}

/// They are for operators, so no binding is among the objects, and the provisioner's own permissions stay as they are.
#[test]
fn operator_roles_are_not_bound() {
    let helm = or_skip!(Helm::find());
    let name = "lvp-local-volume-provisioner-operator";
    for without_rbac in ["", "rbac.create=false"] {
        let off = helm.render(&[without_rbac]);
        let on = helm.render(&[without_rbac, "operatorRole.create=yes"]);
        assert!(!off.names("ClusterRole").contains(&name));
        // A ClusterRole, one to retire disks, and a Role for bundle.
        assert_eq!(on.0.len(), off.0.len() + 3, "{without_rbac}");
        for object in &off.0 {
            let object_name = object["metadata"]["name"].as_str().unwrap();
            let kind = object["kind"].as_str().unwrap();
            assert_eq!(on.get(kind, object_name), object);
        }
        for rule in on.get("ClusterRole", name)["rules"].as_array().unwrap() {
            // The scenario of the operator's commands compares the rules with their requests.
            let only = (rule["resources"] == json!(["namespaces"])).then(|| json!(["kube-system"]));
            assert_eq!(rule.get("resourceNames"), only.as_ref(), "{rule}");
        }
        let role = on.get("Role", name);
        let maps = json!(["lvp-local-volume-provisioner-config"]);
        assert_eq!(role["metadata"]["namespace"], NAMESPACE);
        assert_eq!(role["rules"][1]["resourceNames"], maps);
    }
}

#[test]
fn the_container_has_the_privileges_of_its_mode() {
    let helm = or_skip!(Helm::find());
    let context = |sets: &[&str]| helm.render(sets).container()["securityContext"].clone();
    let unprivileged = json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "runAsUser": 0,
        "capabilities": {
            "drop": ["ALL"],
            "add": ["DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "LINUX_IMMUTABLE", "SYS_ADMIN"],
        },
        "seccompProfile": { "type": "RuntimeDefault" },
        "seLinuxOptions": { "type": "spc_t" },
    });
    assert_eq!(context(&["privileged=false"]), unprivileged);
    let four = ["DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "LINUX_IMMUTABLE"];
    let on_node = ["privileged=false", "marks=Node"];
    assert_eq!(context(&on_node)["capabilities"]["add"], json!(four));
    let refused = helm.refusal(&["marks=Node"]);
    assert!(refused.contains("set privileged to false"), "{refused}");
    // By either key, and the map wins in each field that it has.
    assert_eq!(context(&["securityContext.privileged=false"]), unprivileged);
    let mut merged = unprivileged;
    merged["capabilities"]["add"] = json!(["NET_ADMIN"]);
    merged["seLinuxOptions"]["type"] = json!("mine_t");
    merged["readOnlyRootFilesystem"] = json!(false);
    assert_eq!(
        context(&[
            "privileged=false",
            "securityContext.capabilities.add={NET_ADMIN}",
            "securityContext.seLinuxOptions.type=mine_t",
            "securityContext.readOnlyRootFilesystem=false",
        ]),
        merged
    );
}

#[test]
fn network_policies_let_metrics_in_and_the_api_server_be_reached() {
    let helm = or_skip!(Helm::find());
    assert!(helm.render(&[]).names("NetworkPolicy").is_empty());
    let from = json!([{ "namespaceSelector": { "matchLabels": { "name": "monitoring" } } }]);
    let objects = helm.render_values(&json!({
        "networkPolicy": { "enabled": true, "metricsFrom": from },
        "nodeCleanup": { "enabled": true },
    }));
    // Each selects the pods of one workload, whose labels it has.
    let metrics = json!([{ "ports": [{ "port": "metrics" }], "from": from }]);
    for (kind, name, ingress) in [
        ("DaemonSet", "lvp-local-volume-provisioner", metrics.clone()),
        ("Deployment", "lvp-local-volume-provisioner-node-cleanup", metrics),
        ("Job", "lvp-local-volume-provisioner-uninstall", Value::Null),
    ] {
        let policy = objects.get("NetworkPolicy", name);
        let spec = &policy["spec"];
        let labels = &objects.only(kind)["spec"]["template"]["metadata"]["labels"];
        assert_eq!(spec["podSelector"]["matchLabels"], *labels, "{kind}");
        assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(spec["ingress"], ingress, "{kind}");
        assert_eq!(spec["egress"], json!([{ "ports": [{ "port": 443 }, { "port": 6443 }] }]));
        let hook = &policy["metadata"]["annotations"]["helm.sh/hook"];
        let hook_of_kind = &objects.only(kind)["metadata"]["annotations"]["helm.sh/hook"];
        assert_eq!(hook, hook_of_kind, "{kind}: it lives as long as the pods");
    }
    assert_eq!(objects.names("NetworkPolicy").len(), 3);
    let open = helm.render(&["networkPolicy.enabled=true"]);
    let policy = open.get("NetworkPolicy", "lvp-local-volume-provisioner");
    let metrics = json!([{ "ports": [{ "port": "metrics" }] }]);
    assert_eq!(policy["spec"]["ingress"], metrics);
}

#[test]
fn node_isolation_is_passed_to_the_program_and_refused_where_it_cannot_hold() {
    let helm = or_skip!(Helm::find());
    let on = "nodeIsolation.enabled=true";
    let objects = helm.render(&[on]);
    let args = objects.container()["args"].as_array().unwrap();
    assert!(args.contains(&json!("--node-isolation")));
    let policies = objects.names("ValidatingAdmissionPolicy");
    assert_eq!(policies.len(), 4, "{policies:?}");
    for policy in policies {
        let binding = objects.get("ValidatingAdmissionPolicyBinding", policy);
        assert_eq!(binding["spec"], json!({ "policyName": policy, "validationActions": ["Deny"] }));
        let spec = &objects.get("ValidatingAdmissionPolicy", policy)["spec"];
        assert_eq!(spec["failurePolicy"], "Fail");
        let ours = "request.userInfo.username == \"system:serviceaccount:disks:lvp-local-volume-provisioner\"";
        assert_eq!(spec["matchConditions"][0]["expression"], ours);
    }
    let off = helm.render(&[]);
    let args = off.container()["args"].as_array().unwrap();
    assert!(!args.contains(&json!("--node-isolation")));
    assert!(off.names("ValidatingAdmissionPolicy").is_empty());

    let selector = "classes[0].name=a,classes[0].hostDir=/mnt/a,\
        classes[0].selector[0].matchExpressions[0].key=rack,\
        classes[0].selector[0].matchExpressions[0].operator=Exists";
    let said = helm.refusal(&[on, selector]);
    assert!(said.contains("nodeIsolation: class \"a\" has a selector"), "{said}");
    let said = helm.refusal(&[on, "kubeConfigEnv=/etc/kubeconfig"]);
    assert!(said.contains("remove kubeConfigEnv"), "{said}");
}

#[test]
fn the_hook_and_node_cleanup_may_do_what_they_do_and_no_more() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render(&["nodeCleanup.enabled=true"]);
    let name = |of: &str| format!("lvp-local-volume-provisioner-{of}");
    let rules = |kind: &str, of: &str| objects.get(kind, &name(of))["rules"].clone();
    let rule = |group: &str, resource: &str, verbs: &str| {
        let verbs: Vec<_> = verbs.split(' ').collect();
        json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
    };
    let named = |mut rule: Value, name: &str| {
        rule["resourceNames"] = json!([name]);
        rule
    };
    let hook = [rule("", "persistentvolumes", "get list patch"), rule("", "nodes", "get list")];
    assert_eq!(rules("ClusterRole", "uninstall"), json!(hook));
    let set = rule("apps", "daemonsets", "get");
    let set = named(set, "lvp-local-volume-provisioner");
    let (pods, jobs) = (rule("", "pods", "list"), rule("batch", "jobs", "list delete"));
    assert_eq!(rules("Role", "uninstall"), json!([set, pods, jobs]));
    let node_cleanup = [
        rule("", "nodes", "get list watch"),
        rule("", "persistentvolumes", "get list watch patch delete"),
        rule("", "persistentvolumeclaims", "get delete"),
        rule("", "events", "create patch"),
    ];
    assert_eq!(rules("ClusterRole", "node-cleanup"), json!(node_cleanup));
    assert!(!objects.names("Role").contains(&&*name("node-cleanup")));
}
