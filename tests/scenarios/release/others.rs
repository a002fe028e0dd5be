//! Provisioners and nodes that still exist, or come back.

use k8s_openapi::api::batch::v1::Job;
use support::stage::{annotation, uid};

use super::*;

#[test]
fn only_pvs_of_the_named_installation_are_abandoned() {
    let stage = or_skip!(own_cluster());
    install(&stage);
    let released = held(&stage, "released", "Released");
    let abandon = |args: &[&str], with_namespace: bool, code: i32| {
        let mut command = stage.command();
        command.args(["release", "--finalizers", "--abandon-unmarked"]);
        if !with_namespace {
            command.env_remove("MY_NAMESPACE");
        }
        ended(spawn(command.args(args)), code)
    };
    let named = ["--daemonset", DAEMON_SET, "--absent-for=0s"];
    let wrong = [&named[..], &["--namespace=elsewhere"]].concat();
    for args in [&["--daemonset=typo", "--absent-for=0s"], &wrong[..]] {
        let text = abandon(args, true, 0);
        assert!(text.contains("from 0 Pers"), "{args:?}: {text}");
        assert!(is_held(&stage, &released), "{args:?}");
    }
    let text = abandon(&named, false, 2);
    assert!(text.contains("--namespace"), "{text}");

    let text = run(&stage, &["release", "--finalizers"], 2);
    assert!(text.contains("--daemonset"), "{text}");
    assert!(is_held(&stage, &released));

    delete_daemon_set(&stage, PropagationPolicy::Background);
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
    let args = ["release", "--finalizers", "--abandon-unmarked", "--node", &node];
    let running = start(&stage, &args);
    stage.eventually("it lists", || late.hits() == 1);
    stage.register_node(&node, Some(&node));
    late.clear();
    let text = ended(running, 1);
    assert!(text.contains(&format!("there is the Node {node}")), "{text}");
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
    assert!(text.contains("has changed") && text.contains("from 0 Pers"), "{text}");
    assert!(is_held(&stage, &free));
}

fn jobs(stage: &Stage) -> Api<Job> {
    Api::namespaced(stage.client.clone(), &stage.namespace())
}

/// A cleaning Job of a PV, with a Pod that runs until it is deleted.
fn clean_by_job(stage: &Stage, pv: &str) {
    let labels = json!({ "pv": pv, "pvuuid": uid(&stage.pv(pv).unwrap()) });
    let command = json!(["sleep", "1000"]);
    let containers = json!([{ "name": "cleaner", "image": "none", "command": command }]);
    let job = json!({
        "metadata": { "name": pv, "labels": labels },
        "spec": { "template": {
            "metadata": { "labels": labels },
            "spec": { "restartPolicy": "Never", "containers": containers },
        } },
    });
    stage.create(&jobs(stage), job);
    stage.eventually("the Job runs", || {
        let job = stage.request(jobs(stage).get_opt(pv))?;
        (job.status?.ready? > 0).then_some(())
    });
}

#[test]
fn uninstall_releases_pvs_and_jobs_of_its_own_installation_only() {
    let stage = or_skip!(own_cluster());
    install(&stage);
    let ours = format!("{}/{DAEMON_SET}", stage.namespace());
    let of = |base: &str, phase: &str, installation: &str| {
        let pv = held(&stage, base, phase);
        annotate(&stage, &pv, ANNOTATION_INSTALLATION, installation);
        pv
    };
    let (free, theirs) = (of("free", "Available", &ours), of("theirs", "Available", "other/lvp"));
    let unprotected = of("unprotected", "Bound", &ours);
    let none = json!({ "metadata": { "finalizers": null } });
    stage.patch_pv(&unprotected, &none);
    let wiped = of("wiped", "Released", &ours);
    stage.delete_pv(&wiped);
    let unnamed = held(&stage, "unnamed", "Available");
    let none = json!({ "metadata": { "annotations": null } });
    stage.patch_pv(&unnamed, &none);
    clean_by_job(&stage, &wiped);
    clean_by_job(&stage, &theirs);
    delete_daemon_set(&stage, PropagationPolicy::Background);

    let text = run(&stage, &UNINSTALL, 1);
    assert!(text.contains("from 2 Pers"), "{text}");
    assert!(text.contains(&format!("UNCLEAN: PV {wiped} ")), "{text}");
    let has_job = |pv: &str| stage.request(jobs(&stage).get_opt(pv)).is_some();
    assert!(!has_job(&wiped) && has_job(&theirs), "{text}");
    let named = |pv: &str| {
        let pv = stage.pv(pv).unwrap();
        annotation(&pv, ANNOTATION_INSTALLATION).map(str::to_owned)
    };
    assert_eq!((named(&free), is_held(&stage, &free)), (None, false));
    assert_eq!(named(&unprotected), None);
    let left = (Some("other/lvp".into()), true);
    assert_eq!((named(&theirs), is_held(&stage, &theirs)), left);
    assert!(is_held(&stage, &unnamed) && is_held(&stage, &wiped));

    let abandon = [&UNINSTALL[..], &["--abandon-unmarked"]].concat();
    run(&stage, &abandon, 0);
    stage.eventually("the deleted one is gone", || stage.pv(&wiped).is_none());
    assert!(is_held(&stage, &unnamed));
    assert_eq!((named(&theirs), is_held(&stage, &theirs)), left);
}
