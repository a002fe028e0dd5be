//! Provisioners and nodes that still exist, or come back.

use super::*;

#[test]
fn nothing_is_abandoned_while_a_provisioner_may_clean_it() {
    let stage = or_skip!(own_cluster());
    install(&stage);
    let released = held(&stage, "released", "Released");
    let abandon = |args: &[&str], with_namespace: bool, code: i32| {
        let mut command = stage.command();
        command.args(["release", "--finalizers", "--abandon-uncleaned"]);
        if !with_namespace {
            command.env_remove("MY_NAMESPACE");
        }
        ended(spawn(command.args(args)), code)
    };
    let refused = |what: &str, args: &[&str], with_namespace: bool| {
        let text = abandon(args, with_namespace, 2);
        assert!(text.contains("provisioners run: "), "{what}: {text}");
        assert!(is_held(&stage, &released), "{what}");
    };
    let named = ["--daemonset", DAEMON_SET, "--absent-for=0s", "--timeout=3s"];
    let wrong_name = ["--daemonset=typo", "--absent-for=0s"];
    refused("no DaemonSet named", &[], true);
    refused("by hand, no namespace known", &[], false);
    refused("a wrong name", &wrong_name, true);
    let wrong = [&named[..], &["--namespace=elsewhere"]].concat();
    refused("a wrong namespace", &wrong, true);
    let text = abandon(&named, false, 2);
    assert!(text.contains("--namespace"), "{text}");

    let text = run(&stage, &["release", "--finalizers"], 1);
    assert!(text.contains("WARNING"), "{text}");

    delete_daemon_set(&stage, PropagationPolicy::Orphan);
    another(&stage);
    refused("another installation", &named, true);
    stage.delete_pod("another", true);
    no_pod(&stage, "another");
    refused("Pods without their DaemonSet", &named, true);
    stage.delete_pod("provisioner-1", true);
    no_pod(&stage, "provisioner-1");
    abandon(&named, true, 0);
    assert!(!is_held(&stage, &released));
}

#[test]
fn a_node_that_comes_back_meanwhile_keeps_its_volumes() {
    let stage = or_skip!(own_cluster());
    let released = held(&stage, "released", "Released");
    let node = stage.named("elsewhere");
    let listing = stage.faults().on(Verb::List).resource(PVS).times(1);
    let late = listing.hold();
    let args = [
        "release",
        "--finalizers",
        "--abandon-uncleaned",
        "--node",
        &node,
    ];
    let running = start(&stage, &args);
    stage.eventually("it lists", || late.hits() == 1);
    stage.register_node(&node, Some(&node));
    late.clear();
    let text = ended(running, 1);
    assert!(
        text.contains(&format!("there is the Node {node}")),
        "{text}"
    );
    assert!(is_held(&stage, &released));
}

#[test]
fn a_pv_that_becomes_another_nodes_meanwhile_is_left_alone() {
    let stage = or_skip!(own_cluster());
    let free = held(&stage, "free", "Available");
    let patching = stage.faults().on(Verb::Patch).resource(PVS).times(1);
    let late = patching.hold();
    let node = stage.named("elsewhere");
    let running = start(&stage, &["release", "--finalizers", "--node", &node]);
    stage.eventually("it writes", || late.hits() == 1);
    let label = json!({ "metadata": { "labels": { "kubernetes.io/hostname": "node-2" } } });
    stage.patch_pv(&free, &label);
    late.clear();
    let text = ended(running, 0);
    assert!(
        text.contains("has changed") && text.contains("from 0 Pers"),
        "{text}"
    );
    assert!(is_held(&stage, &free));
}
