//! `status`, from inside the pod and from outside, as docs/status.md has them.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::{NODE, SYSTEM, name};
use crate::release::class;
use crate::{Cluster, Disks, Release};

const BINARY: &str = env!("CARGO_BIN_EXE_local-volume-provisioner");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/status.md");
/// A client with few permissions.
const PERSON: &str = "status-reader";

/// The exit code and the output of `status`, run outside the cluster with a kubeconfig.
fn status(kubeconfig: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(BINARY)
        .env("KUBECONFIG", kubeconfig)
        .arg("status")
        .args(args)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// The kubeconfig of a service account with a ClusterRole of these rules.
fn kubeconfig(cluster: &Cluster, rules: &Value) -> Value {
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": PERSON, "namespace": SYSTEM },
    }));
    cluster.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": PERSON }, "rules": rules,
    }));
    cluster.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": PERSON },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": PERSON },
        "subjects": [{ "kind": "ServiceAccount", "name": PERSON, "namespace": SYSTEM }],
    }));
    let token = cluster.kubectl(&["create", "token", PERSON, "--namespace", SYSTEM]).unwrap();
    let view = cluster.kubectl(&["config", "view", "--raw", "--minify", "--output=json"]).unwrap();
    let mut config: Value = serde_json::from_str(&view).unwrap();
    config["users"][0]["user"] = json!({ "token": token.trim() });
    config
}

/// The rules that the page says to grant.
fn documented_rules() -> Value {
    let page = fs::read_to_string(PAGE).unwrap();
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (role, _) = rest.split_once("```").unwrap();
    let role: Value = serde_saphyr::from_str(role).unwrap();
    assert_eq!(role["kind"], "ClusterRole");
    role["rules"].clone()
}

#[test]
fn status_works_in_the_pod_and_through_the_api_server() {
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("status");
    disks.tmpfs("status", "disk");
    let classes = json!([class("status", &disks.class("status"), json!({}))]);
    let release = Release::install(&cluster, classes, json!({ "privileged": false }));
    let pv = cluster.available("status", 1).remove(0);

    // From inside.
    let pod = release.pod();
    let exec = |args: &[&str]| {
        let mut line = vec!["exec", name(&pod), "--namespace", SYSTEM, "--"];
        line.push("/local-volume-provisioner");
        line.extend(args);
        cluster.kubectl(&line)
    };
    let table = cluster.eventually("the node is ready", || {
        let shown = exec(&["status"]).ok();
        shown.filter(|it| it.contains(name(&pv)) && it.contains("Available"))
    });
    assert!(table.starts_with(&format!("{NODE}: ready\n")), "{table}");
    let level = || {
        let text = exec(&["status", "-o", "json"]).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        document["logLevel"].as_str().unwrap().to_owned()
    };
    assert_eq!(level(), "info");
    // From outside.
    let admin = std::env::var("KUBECONFIG").unwrap();
    let (code, said) = status(&admin, &["--node", NODE]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with(&format!("{NODE}: ready\n")), "{said}");
    let (code, said) = status(&admin, &["--all"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("1 node: 1 ready\n"), "{said}");
    let (_, said) = status(&admin, &["--all", "--namespace", SYSTEM, "-o", "json"]);
    let list: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(list["nodes"][0]["status"]["node"], NODE, "{list}");
    let (code, said) = status(&admin, &["--node", "elsewhere"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no provisioner's pod was found"), "{said}");

    // With few permissions.
    let file = std::env::temp_dir().join(format!("{PERSON}-{}", std::process::id()));
    let path = file.to_str().unwrap();
    let documented = documented_rules();
    let nothing = json!([]);
    let only_pods = json!([documented[0].clone()]);
    for (rules, wanted, words) in [
        (&nothing, 1, "docs/status.md"),
        (&only_pods, 1, "permission to get pods/proxy"),
        (&documented, 0, "1 node: 1 ready"),
    ] {
        fs::write(&file, kubeconfig(&cluster, rules).to_string()).unwrap();
        cluster.eventually(&format!("rules {rules} come to {words:?}"), || {
            let (code, said) = status(path, &["--all"]);
            code == Some(wanted) && said.contains(words)
        });
    }
    fs::remove_file(&file).unwrap();
    for kind in ["clusterrolebinding", "clusterrole"] {
        cluster.kubectl(&["delete", kind, PERSON]).unwrap();
    }
    let account = ["delete", "serviceaccount", PERSON, "--namespace", SYSTEM];
    cluster.kubectl(&account).unwrap();
}
