//! Requests that fail.

use control_plane::faults::Answer;

use super::*;

#[test]
fn a_short_api_server_outage_does_not_end_the_wait() {
    let stage = or_skip!(own_cluster());
    let free = held(&stage, "free", "Available");
    let pods = stage.faults().on(Verb::List).resource("pods");
    let failing = pods.times(1).answer(Answer::code(500).message("etcd is busy"));
    let text = run(&stage, &UNINSTALL, 0);
    assert!(text.contains("etcd is busy; trying again"), "{text}");
    assert_eq!(failing.hits(), 1);
    assert!(!is_held(&stage, &free));
}

#[test]
fn a_missing_permission_and_a_race_are_reported_and_survived() {
    let stage = or_skip!(own_cluster());
    let free = held(&stage, "free", "Available");
    let denied = stage.faults().on(Verb::Patch).resource(PVS);
    let denied = denied.forbid();
    let text = run(&stage, &UNINSTALL, 1);
    let right = "denies permission to patch persistentvolumes";
    assert_eq!(text.matches(right).count(), 1, "{text}");
    assert!(text.contains("deploy/uninstall.yaml"), "{text}");
    denied.clear();
    let conflict = stage.faults().on(Verb::Patch).resource(PVS).times(2);
    let conflict = conflict.answer(Answer::code(409));
    run(&stage, &UNINSTALL, 0);
    assert_eq!(conflict.hits(), 2);
    assert!(!is_held(&stage, &free));
}

#[test]
fn a_lost_answer_and_one_failure_hide_no_abandoned_volume() {
    let stage = or_skip!(own_cluster());
    let args = [&UNINSTALL[..], &["--abandon-unmarked"]].concat();
    let [first, second, third] =
        ["first", "second", "third"].map(|base| held(&stage, base, "Released"));
    let patch = |pv: &str| stage.faults().on(Verb::Patch).resource(PVS).name(pv);
    let denied = patch(&first).forbid();
    let lost = patch(&second).times(1).reset_after();
    let text = run(&stage, &args, 1);
    assert_eq!(lost.hits(), 1);
    for gone in [&second, &third] {
        assert!(text.contains(&format!("ABANDONED: PV {gone} ")), "{text}");
        assert!(!is_held(&stage, gone));
    }
    assert!(text.contains(&format!("FAILED: removing the finalizer from PV {first} ")), "{text}");
    assert!(is_held(&stage, &first));
    denied.clear();
    let busy = patch(&first).times(1).answer(Answer::code(500));
    run(&stage, &args, 0);
    assert_eq!(busy.hits(), 1);
}

/// A failed read proves no absence.
#[test]
fn daemon_set_must_be_absent_in_each_look() {
    let stage = or_skip!(own_cluster());
    let free = held(&stage, "free", "Available");
    let looks = stage.faults().on(Verb::Get).resource("daemonsets").skip(2);
    let failing = looks.times(1).answer(Answer::code(500));
    let began = Instant::now();
    let args = uninstall("--absent-for=3s", "--timeout=30s");
    let text = run(&stage, &args, 0);
    assert_eq!(failing.hits(), 1);
    // Two reads, the failed one, and three seconds after it.
    assert!(began.elapsed() >= Duration::from_secs(6), "{text}");
    assert!(!is_held(&stage, &free));
}
