//! `bundle`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::Command;

use control_plane::requests::Verb;
use flate2::read::GzDecoder;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use support::bare_command;

use super::*;

/// The names of a tenant. Of these objects, the cluster has the first three only: the rest is in an event, and in the log.
const TENANT: [&str; 7] =
    ["orders.db", "test-1", "shop-data", "shop-web-0", "shop", "gone-data", "gone"];
const SECRET: &str = "s3cret";
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A volume of the tenant, its Pod, the DaemonSet with its configuration, and the log of the provisioner.
fn installation() -> Option<(Stage, Program)> {
    let (stage, [path]) = reachable(["vol"])?;
    let mut provisioner = provisioner(&stage);
    let pv = name(&stage.used(&stage.bind("shop-data", &path)));
    stage.pod("shop-web-0", "shop-data");
    in_state(&stage, &mut provisioner, &path, "Bound");

    let annotations = json!({ APPLIED: SECRET });
    let metadata = json!({ "name": "config", "annotations": annotations });
    let maps: Api<ConfigMap> = Api::namespaced(stage.client.clone(), "kube-system");
    let data = json!({ "storageClassMap": "fast: {}" });
    stage.create(&maps, json!({ "metadata": metadata, "data": data }));
    let labels = json!({ "app": "provisioner" });
    let container = json!({
        "name": "provisioner",
        "image": "none",
        "env": [{ "name": "JOB_CONTAINER_IMAGE", "value": "the-image" }, { "name": "TOKEN", "value": SECRET }],
        "volumeMounts": [{ "name": "c", "mountPath": "/etc/provisioner/config" }],
    });
    let sets: Api<DaemonSet> = Api::namespaced(stage.client.clone(), "kube-system");
    stage.create(
        &sets,
        json!({
            "metadata": { "name": "provisioner", "annotations": annotations },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "containers": [container],
                        "volumes": [{ "name": "c", "configMap": { "name": "config" } }],
                    },
                },
            },
        }),
    );
    let events: Api<Event> = Api::namespaced(stage.client.clone(), "default");
    stage.create(
        &events,
        json!({
            "metadata": { "name": "bound" },
            "involvedObject": { "kind": "PersistentVolume", "name": pv },
            "reason": "Bound",
            "message": "bound to claim shop/shop-data",
            "type": "Normal",
        }),
    );
    write_log(&stage, &provisioner);
    Some((stage, provisioner))
}

/// Writes the log of the provisioner as that of its Pod, with lines about a claim that is deleted and about a Pod.
fn write_log(stage: &Stage, provisioner: &Program) {
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), "kube-system");
    let pod = format!("provisioner-{}", stage.node());
    let uid = stage.request(pods.get(&pod)).metadata.uid.unwrap();
    let dir = format!("job-logs/kube-system_{pod}_{uid}/provisioner");
    let dir = stage.sandbox.dir(&dir).unwrap();
    let lines = "WARN “backup/orders.db” cannot be removed\n\
                 WARN its claim gone/gone-data still exists\n\
                 WARN Volume is used by pods: test-1/shop-web-0\n";
    fs::write(dir.join("0.log"), provisioner.log() + lines).unwrap();
}

/// Makes an archive, and returns the result and its files by their names below the directory.
fn bundle(stage: &Stage, args: &[&str]) -> (CommandResult, BTreeMap<String, String>) {
    let path = stage.sandbox.path().join("bundle.tar.gz");
    let _ = fs::remove_file(&path);
    let output = ["bundle", "-o", path.to_str().unwrap()];
    let result = run_as_operator(stage, &[&output[..], args].concat());
    (result, unpacked(&fs::read(&path).unwrap()))
}

fn unpacked(archive: &[u8]) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        let (dir, file) = path.to_str().unwrap().split_once('/').unwrap();
        assert!(dir.starts_with("local-volume-bundle-20"), "{dir}");
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert!(files.insert(file.to_owned(), text).is_none(), "{file}");
    }
    files
}

fn document(files: &BTreeMap<String, String>, file: &str) -> Value {
    serde_json::from_str(&files[file]).unwrap()
}

#[test]
fn archive_has_every_part_without_the_names_of_tenants() {
    let (stage, _provisioner) = or_skip!(installation());
    let (result, files) = bundle(&stage, &[]);
    answers(&result, 0, &["have pseudonyms", "Look through it before"]);
    let node = stage.node();
    let log = format!("logs/kube-system_provisioner-{node}.log");
    let status = format!("nodes/{node}.json");
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    let expected = [
        "check.txt",
        "configmaps/kube-system_config.json",
        "daemonsets.json",
        "errors.txt",
        "events.json",
        &log,
        &status,
        "pvs.json",
        "storageclasses.json",
        "version.txt",
    ];
    assert_eq!(names, expected);
    for (file, text) in &files {
        for name in TENANT {
            assert!(!text.contains(name), "{name} is in {file}:\n{text}");
        }
        for never in [SECRET, "managedFields", APPLIED] {
            assert!(!text.contains(never), "{never} is in {file}");
        }
    }

    assert_eq!(files["errors.txt"], "");
    assert!(files["version.txt"].contains("API server v1."));
    assert!(files["check.txt"].contains("✔ status received from 1 provisioner"));
    assert_eq!(document(&files, &status)["node"], json!(node));
    let pvs = document(&files, "pvs.json");
    let claim = &pvs[0]["spec"]["claimRef"]["name"];
    assert!(claim.as_str().unwrap().starts_with("claim-"), "{claim}");
    let map = document(&files, "configmaps/kube-system_config.json");
    assert_eq!(map["data"]["storageClassMap"], "fast: {}");
    let env = document(&files, "daemonsets.json");
    let env = &env[0]["spec"]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(env[0]["value"], "the-image");
    assert_eq!(env[1]["value"], "(left out)");
    assert!(files["storageclasses.json"].contains(&stage.named("fast")));
    // The pseudonym is the same in each file.
    let bound = format!("/{}\"", claim.as_str().unwrap());
    assert!(files["events.json"].contains(&bound), "{}", files["events.json"]);
    assert!(files[&log].contains("serving this node"), "{}", files[&log]);
    assert!(files[&log].contains("its claim namespace-"), "{}", files[&log]);
}

#[test]
fn archive_has_the_names_of_tenants_on_request() {
    let (stage, _provisioner) = or_skip!(installation());
    let (result, files) = bundle(&stage, &["--with-names"]);
    answers(&result, 0, &["It has the names of tenants"]);
    let all: String = files.into_values().collect();
    for name in TENANT {
        assert!(all.contains(name), "{name}");
    }
    assert!(!all.contains(SECRET));
}

#[test]
fn archive_is_made_without_what_cannot_be_read() {
    let (stage, mut provisioner) = or_skip!(installation());
    let denied = stage.faults().on(Verb::Get).resource("pods");
    denied.subresource("log").forbid();
    provisioner.kill();
    let (result, files) = bundle(&stage, &[]);
    answers(&result, 1, &["2 parts could not be read: see errors.txt"]);
    let errors = &files["errors.txt"];
    let node = format!("node {}: pod kube-system/provisioner-", stage.node());
    assert!(errors.contains(&node), "{errors}");
    assert!(errors.contains("denies permission to get pods/log"), "{errors}");
    assert!(files.keys().all(|file| !file.starts_with("logs/")));
    assert!(files["pvs.json"].contains("claimRef"));
}

#[test]
fn archive_is_not_made_if_the_names_of_tenants_are_unknown() {
    let (stage, _provisioner) = or_skip!(installation());
    let denied = stage.faults().on(Verb::List).resource("events");
    denied.forbid();
    let path = stage.sandbox.path().join("bundle.tar.gz");
    let result = run_as_operator(&stage, &["bundle", "-o", path.to_str().unwrap()]);
    let parts = ["denies permission to list events", "--with-names"];
    answers(&result, 1, &parts);
    assert!(!path.exists());
    let (result, files) = bundle(&stage, &["--with-names"]);
    answers(&result, 1, &["1 part could not be read"]);
    assert!(files.contains_key("pvs.json"));
}

#[test]
fn file_is_kept_and_standard_output_gets_the_archive() {
    let (stage, _provisioner) = or_skip!(installation());
    let path = stage.sandbox.path().join("mine");
    fs::write(&path, "mine").unwrap();
    let result = run_as_operator(&stage, &["bundle", "-o", path.to_str().unwrap()]);
    answers(&result, 1, &["a file that exists is kept"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");

    let kubeconfig = stage.sandbox.path().join("kubeconfig");
    let mut command: Command = bare_command(crate::BINARY);
    let command = command.env("KUBECONFIG", kubeconfig);
    let output = command.args(["bundle", "-o", "-"]).output().unwrap();
    assert!(unpacked(&output.stdout).contains_key("pvs.json"));
}
