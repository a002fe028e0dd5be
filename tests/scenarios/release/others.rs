//! Provisioners and nodes that are there after all, or come back.

use super::*;

#[test]
fn nothing_is_abandoned_while_a_provisioner_may_clean_it() {
    let stage = or_skip!(own_cluster());
    stage.class("fast", &json!({})).unwrap();
    install(&stage);
    let released = held(&stage, "released", "Released");
    let abandon = |args: &[&str], with_namespace: bool| {
        let mut command = stage.command();
        command.args(["release", "--finalizers", "--abandon-uncleaned"]);
        if !with_namespace {
            command.env_remove("MY_NAMESPACE");
        }
        told(&command.args(args).output().unwrap())
    };
    let refused = |what: &str, (text, code): (String, Option<i32>)| {
        assert_eq!(code, Some(2), "{what}: {text}");
        assert!(text.contains("provisioners run in"), "{what}: {text}");
        assert!(is_held(&stage, &released), "{what}");
    };
    let named = ["--daemonset", DAEMON_SET, "--absent-for=0s", "--timeout=3s"];
    let wrong_name = ["--daemonset=typo", "--absent-for=0s"];
    refused("no DaemonSet named", abandon(&[], true));
    refused("by hand, no namespace known", abandon(&[], false));
    refused("a wrong name", abandon(&wrong_name, true));
    let wrong = [&named[..], &["--namespace=elsewhere"]].concat();
    refused("a wrong namespace", abandon(&wrong, true));
    {
        // With rights in its own namespace only. The first list is of the DaemonSet's Pods.
        let pods = stage.faults().on(Verb::List).resource("pods").skip(1);
        let denied = pods.times(1).forbid();
        refused("one namespace only", abandon(&wrong_name, true));
        assert_eq!(denied.hits(), 1);
    }
    let (text, code) = abandon(&named, false);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--namespace"), "{text}");

    let (text, code) = told(&run(&stage, &["release", "--finalizers"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("WARNING"), "{text}");

    delete_daemon_set(&stage, PropagationPolicy::Orphan);
    another(&stage);
    refused("another installation", abandon(&named, true));
    stage.delete_pod("another", true);
    no_pod(&stage, "another");
    refused("Pods without their DaemonSet", abandon(&named, true));
    stage.delete_pod("provisioner-1", true);
    no_pod(&stage, "provisioner-1");
    let (text, code) = abandon(&named, true);
    assert_eq!(code, Some(0), "{text}");
    assert!(!is_held(&stage, &released));
}

#[test]
fn a_node_that_comes_back_meanwhile_keeps_its_volumes() {
    let stage = or_skip!(own_cluster());
    stage.class("fast", &json!({})).unwrap();
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
    stage.eventually("it lists", || (late.hits() == 1).then_some(()));
    stage.register_node(&node, Some(&node)).unwrap();
    late.clear();
    let (text, code) = told(&running.wait_with_output().unwrap());
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains(&format!("there is the Node {node}")),
        "{text}"
    );
    assert!(is_held(&stage, &released));
}

#[test]
fn a_pv_that_becomes_another_nodes_meanwhile_is_left_alone() {
    let stage = or_skip!(own_cluster());
    stage.class("fast", &json!({})).unwrap();
    let free = held(&stage, "free", "Available");
    let patching = stage.faults().on(Verb::Patch).resource(PVS).times(1);
    let late = patching.hold();
    let node = stage.named("elsewhere");
    let running = start(&stage, &["release", "--finalizers", "--node", &node]);
    stage.eventually("it writes", || (late.hits() == 1).then_some(()));
    let label = json!({ "metadata": { "labels": { "kubernetes.io/hostname": "node-2" } } });
    stage.patch_pv(&free, &label).unwrap();
    late.clear();
    let (text, code) = told(&running.wait_with_output().unwrap());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("has changed"), "{text}");
    assert!(is_held(&stage, &free));
}
