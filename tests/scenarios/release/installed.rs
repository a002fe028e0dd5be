//! The installation that is named: nothing is done until its DaemonSet and Pods are gone.

use super::*;

/// Sets the finalizers of the DaemonSet's Pod, which keep it Terminating.
fn pod_finalizers(stage: &Stage, finalizers: &Value) {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    let params = PatchParams::default();
    let pods = pods(stage);
    stage.request(pods.patch("provisioner-1", &params, &patch));
}

#[test]
fn existing_daemon_set_keeps_every_finalizer() {
    let stage = or_skip!(own_cluster());
    install(&stage);
    let held =
        ["Available", "Bound", "Released"].map(|phase| held(&stage, &phase.to_lowercase(), phase));
    for (more, wanted) in [(&[][..], 1), (&["--abandon-unmarked"], 1), (&["--unless-installed"], 0)]
    {
        let text = run(&stage, &[&UNINSTALL[..], more].concat(), wanted);
        assert!(text.contains("exists: nothing was changed"), "{text}");
        assert!(is_installed(&stage));
        for pv in &held {
            assert!(is_held(&stage, pv), "{pv}");
        }
    }
}

#[test]
fn daemon_set_that_appears_during_the_wait_keeps_every_finalizer() {
    let stage = or_skip!(own_cluster());
    let free = held(&stage, "free", "Available");
    let looks = stage.faults().on(Verb::Get).resource("daemonsets").skip(2);
    let third = looks.times(1).hold();
    // The default is a minute.
    let args = ["release", "--finalizers", "--daemonset", DAEMON_SET, "--unless-installed"];
    let running = start(&stage, &args);
    stage.eventually("it looks for the third time", || third.hits() == 1);
    assert!(is_held(&stage, &free));
    install(&stage);
    third.clear();
    let text = ended(running, 0);
    assert!(text.contains("must be absent for 20s"), "{text}");
    assert!(text.contains("exists: nothing was changed"), "{text}");
    assert!(is_held(&stage, &free));
}

#[test]
fn daemon_set_that_returns_after_the_wait_keeps_every_finalizer() {
    let stage = or_skip!(own_cluster());
    let free = held(&stage, "free", "Available");
    let released = held(&stage, "released", "Released");
    let listing = stage.faults().on(Verb::List).resource(PVS).times(1);
    let late = listing.hold();
    let running = start(&stage, &[&UNINSTALL[..], &["--abandon-unmarked"]].concat());
    stage.eventually("it lists the PVs", || late.hits() == 1);
    install(&stage);
    late.clear();
    let text = ended(running, 1);
    assert!(text.contains("exists again") && text.contains("2 PersistentVolumes keep"), "{text}");
    assert!(is_held(&stage, &free) && is_held(&stage, &released));
}

#[test]
fn pods_that_do_not_end_keep_every_finalizer() {
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        let stage = or_skip!(own_cluster());
        install(&stage);
        let free = held(&stage, "free", "Available");
        pod_finalizers(&stage, &json!(["example.com/stays"]));
        let in_the_foreground = policy == PropagationPolicy::Foreground;
        delete_daemon_set(&stage, policy);
        // In the foreground until its Pod is gone.
        assert_eq!(is_installed(&stage), in_the_foreground);
        let times_out = [&UNINSTALL_TIMES_OUT[..], &["--unless-installed"]].concat();
        let text = run(&stage, &times_out, 1);
        let words = if in_the_foreground {
            "is being deleted".to_owned()
        } else {
            format!("provisioner-1 on {}", stage.node())
        };
        assert!(text.contains(&words), "{text}");
        assert!(is_held(&stage, &free));

        // Run again, it continues.
        pod_finalizers(&stage, &json!(null));
        run(&stage, &UNINSTALL, 0);
        assert!(!is_held(&stage, &free));
    }
}
