//! `deploy/convert`: the DaemonSets of other projects become this provisioner by the commands of `docs/upgrade.md`.
//! `projects/` has equivalents of their manifests, which `tests/installed` converts in a cluster.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use k8s_openapi::DeepMerge;
use k8s_openapi::api::apps::v1::DaemonSet;
use local_volume_provisioner::config;
use serde_json::{Value, json};
use support::tool;

use crate::helm::named;

const PAGE: &str = include_str!("../../docs/upgrade.md");
/// The files, and how the row of each in the table of the page begins.
const PROJECTS: [(&str, &str); 5] = [
    ("tidb", "| TiDB"),
    ("aerospike", "| Aerospike"),
    ("aks", "| Azure"),
    ("kubespray", "| Kubespray"),
    ("go-chart", "| Go chart"),
];
const IMAGE: &str = "registry.example.com/lvp@sha256:0";

/// A file of the repository with manifests.
fn manifests(path: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let first = found.next().unwrap();
    assert!(found.next().is_none(), "not one {kind}");
    first
}

fn project(name: &str) -> Vec<Value> {
    manifests(&format!("tests/chart/projects/{name}.yaml"))
}

/// The patch that the command of the page writes.
fn patch(daemon_set: &str) -> String {
    let (_, command) = PAGE.split_once("```sh\nsed ").unwrap();
    let (command, _) = command.split_once("\n```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    symlink(deploy, dir.path().join("deploy")).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-euc", &format!("sed {command}")]);
    shell.env("IMAGE", IMAGE).env("DAEMONSET", daemon_set);
    let status = shell.current_dir(dir.path()).status().unwrap();
    assert!(status.success());
    std::fs::read_to_string(dir.path().join("converted.yaml")).unwrap()
}

/// Merges by the keys of each list, as the API server does with a strategic merge patch.
fn merged(daemon_set: &Value, patch: &str) -> Value {
    let mut merged: DaemonSet = serde_json::from_value(daemon_set.clone()).unwrap();
    let patch: Value = serde_saphyr::from_str(patch).unwrap();
    let typed: DaemonSet = serde_json::from_value(patch).unwrap();
    merged.merge_from(typed);
    serde_json::to_value(merged).unwrap()
}

fn pod(daemon_set: &Value) -> &Value {
    &daemon_set["spec"]["template"]["spec"]
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Asserts that a list has each item of another one, and no key twice.
fn extends(list: &Value, earlier: &Value, key: &str, what: &str) {
    let keys = |list| items(list).iter().map(|item| item[key].as_str().unwrap());
    let mut seen: Vec<_> = keys(list).collect();
    seen.sort_unstable();
    let count = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), count, "{what}");
    for item in items(earlier) {
        assert!(items(list).contains(item), "{what}: {item} in {list:#}");
    }
}

#[test]
fn converted_daemon_set_has_what_the_chart_gives_to_its_pods() {
    let deployed = manifests("deploy/local-volume-provisioner.yaml");
    let ours = pod(only(&deployed, "DaemonSet"));
    let our_container = &ours["containers"][0];
    for (project_name, _) in PROJECTS {
        let objects = project(project_name);
        let before = only(&objects, "DaemonSet");
        let name = before["metadata"]["name"].as_str().unwrap();
        let after = merged(before, &patch(name));
        let (old, new) = (&pod(before)["containers"][0], &pod(&after)["containers"][0]);
        assert_eq!(items(&pod(&after)["containers"]).len(), 1);

        // The selector is immutable.
        assert_eq!(after["spec"]["selector"], before["spec"]["selector"]);
        let labels = |set: &Value| set["spec"]["template"]["metadata"]["labels"].clone();
        assert_eq!(labels(&after), labels(before));
        for field in ["serviceAccountName", "nodeSelector"] {
            assert_eq!(pod(&after)[field], pod(before)[field], "{field}");
        }
        for field in ["resources", "securityContext", "livenessProbe"] {
            assert_eq!(new[field], old[field], "{field}");
        }
        extends(&new["volumeMounts"], &old["volumeMounts"], "mountPath", project_name);
        extends(&pod(&after)["volumes"], &pod(before)["volumes"], "name", project_name);

        assert_eq!(new["image"], IMAGE);
        assert_eq!(new["args"], json!(["--kubelet-dir=/var/lib/kubelet"]));
        let path = "terminationMessagePath";
        assert_eq!(new[path], our_container[path]);
        extends(&new["env"], &json!([]), "name", project_name);
        for variable in items(&our_container["env"]) {
            let variable_name = variable["name"].as_str().unwrap();
            let found = named(&new["env"], variable_name);
            match variable_name {
                "MY_DAEMONSET" => assert_eq!(found["value"], name),
                "JOB_CONTAINER_IMAGE" => assert_eq!(found["value"], IMAGE),
                _ => assert_eq!(found, variable),
            }
        }
        for part in ["kubelet-pods", "kubelet-plugins", "udev", "state"] {
            let volume = format!("provisioner-{part}");
            let both = [new, our_container].map(|it| named(&it["volumeMounts"], &volume));
            assert_eq!(both[0], both[1], "{project_name}");
            let both = [pod(&after), ours].map(|it| named(&it["volumes"], &volume));
            assert_eq!(both[0], both[1], "{project_name}");
        }
    }
}

#[test]
fn program_accepts_the_configuration_of_each_project() {
    for (project_name, _) in PROJECTS {
        let objects = project(project_name);
        let data = only(&objects, "ConfigMap")["data"].to_string();
        let data = data.replace("DIRECTORY", "/mnt/disks").replace("CLASS", "fast");
        let loaded = config::from_files(&serde_json::from_str(&data).unwrap()).unwrap();
        assert_eq!(loaded.faults, [], "{project_name}");
        assert_eq!(loaded.config.classes.len(), 1, "{project_name}");
    }
}

#[test]
fn kubectl_merges_the_patch_in_the_same_way() {
    let Some(kubectl) = tool("KUBECTL", "cluster/bin/kubectl", "kubectl", "help") else {
        return support::skip("there is no kubectl");
    };
    for (project_name, _) in PROJECTS {
        let objects = project(project_name);
        let before = only(&objects, "DaemonSet");
        let patch = patch(before["metadata"]["name"].as_str().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let [set, file] = ["set.json", "converted.yaml"].map(|name| dir.path().join(name));
        std::fs::write(&set, before.to_string()).unwrap();
        std::fs::write(&file, &patch).unwrap();
        let mut command = Command::new(&kubectl);
        command.args(["patch", "--local", "--output=json", "--filename"]);
        let output = command.arg(&set).arg("--patch-file").arg(&file).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        let said: DaemonSet = serde_json::from_slice(&output.stdout).unwrap();
        let said = serde_json::to_value(said).unwrap();
        let expected = merged(before, &patch);
        for list in ["/containers/0/env", "/containers/0/volumeMounts", "/volumes"] {
            let [said, expected] = [&said, &expected].map(|it| pod(it).pointer(list).unwrap());
            extends(
                said,
                expected,
                if list.ends_with("Mounts") { "mountPath" } else { "name" },
                list,
            );
            assert_eq!(items(said).len(), items(expected).len(), "{list}");
        }
        for field in ["image", "args", "resources", "imagePullPolicy"] {
            let field = format!("/containers/0/{field}");
            assert_eq!(pod(&said).pointer(&field), pod(&expected).pointer(&field));
        }
    }
}

#[test]
fn roles_of_a_converted_daemon_set_are_those_of_the_chart() {
    let rules = |path: &str| {
        let mut objects = manifests(path);
        objects.retain(|it| it["kind"].as_str().unwrap().ends_with("Role"));
        let of_each = objects.iter().map(|role| role["rules"].clone());
        of_each.collect::<Vec<_>>()
    };
    let converted = rules("deploy/convert/rbac.yaml");
    assert_eq!(converted.len(), 2);
    assert_eq!(converted, rules("deploy/rbac.yaml"));
}

#[test]
fn table_of_the_page_names_the_objects_of_each_project() {
    for (project_name, beginning) in PROJECTS {
        let objects = project(project_name);
        let set = only(&objects, "DaemonSet");
        let volumes = items(&pod(set)["volumes"]).iter();
        let mut maps = volumes.map(|volume| &volume["configMap"]["name"]);
        let config = maps.find(|name| !name.is_null()).unwrap();
        let is_row = |line: &&str| line.starts_with(beginning);
        let row = PAGE.lines().find(is_row).unwrap();
        let cells: Vec<_> = row.split('|').map(|it| it.trim().trim_matches('`')).collect();
        let [_, _, namespace, daemon_set, account, config_map, _] = cells[..] else {
            panic!("{row}");
        };
        if namespace != "of the release" {
            assert_eq!(set["metadata"]["namespace"], namespace, "{row}");
        }
        assert_eq!(set["metadata"]["name"], daemon_set, "{row}");
        assert_eq!(pod(set)["serviceAccountName"], account, "{row}");
        assert_eq!(*config, config_map, "{row}");
        assert_eq!(only(&objects, "ConfigMap")["metadata"]["name"], config_map, "{row}");
    }
}
