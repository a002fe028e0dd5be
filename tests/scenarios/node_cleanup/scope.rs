//! Which PVs it is about, and which it leaves alone.

use super::*;

#[test]
fn what_goes_depends_on_phase_and_policy() {
    let (stage, node) = or_skip!(stage_with_node());
    stage.storage_class("other", "Delete", "Immediate");
    let protected = |pv: &mut Value| {
        pv["metadata"]["finalizers"] = json!(["local-volume-provisioner/cleanup"]);
    };
    let retained = |pv: &mut Value| {
        pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    };
    let available = pv(&stage, "available", &node, |_| {});
    let used = pv(&stage, "used", &node, |pv| {
        pv["metadata"]["annotations"]["local-volume-provisioner/used"] = json!("true");
    });
    let free = released(&stage, "free", &node, |_| {});
    let held = released(&stage, "held", &node, protected);
    let terminating = released(&stage, "terminating", &node, |pv| {
        protected(pv);
        retained(pv);
    });
    let wiped = released(&stage, "wiped", &node, protected);
    stage.delete_pv(&terminating);
    stage.delete_pv(&wiped);
    let goes = [&used, &free, &held, &terminating];

    let kept = released(&stage, "kept", &node, retained);
    let other = pv(&stage, "other", &node, |pv| {
        pv["spec"]["storageClassName"] = json!(stage.named("other"));
    });
    let paused = pv(&stage, "paused", &node, |pv| {
        pv["metadata"]["annotations"]["local-volume-provisioner/paused"] = json!("true");
    });
    let shared = pv(&stage, "shared", &node, |pv| {
        *pv.pointer_mut(HOSTS).unwrap() = json!([node, stage.node()]);
    });
    let anywhere = pv(&stage, "anywhere", &node, |pv| {
        let terms = &mut pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
        let any = json!({ "matchExpressions": [{ "key": "rack", "operator": "Exists" }] });
        terms.as_array_mut().unwrap().push(any);
    });
    // The longest one counts.
    let timeouts = "--cleanup-timeouts=1s,1h";
    let mut cleanup = synced(&stage, "cleanup", &[&delay_flag(&stage), timeouts]);
    let begun = Instant::now();
    lose(&stage, &node);
    for pv in goes {
        timer_starts(&stage, &cleanup, pv);
    }
    pv_goes(&stage, &available);
    assert_eq!(timers(&cleanup, &available), 0, "it goes at once");
    for pv in goes {
        pv_goes(&stage, pv);
    }
    assert!(
        begun.elapsed() > delay(&stage),
        "no data is given up earlier"
    );
    reconciles_again(&stage);
    stay(&stage, &[&kept, &other, &paused, &shared, &anywhere]);
    assert_eq!(timers(&cleanup, &wiped), 1);
    assert!(is_protected(&stage.pv(&wiped).unwrap()));
    let log = cleanup.log();
    let said: Vec<_> = log
        .lines()
        .filter(|line| line.contains("left alone"))
        .collect();
    let [said] = said[..] else {
        panic!("not said once: {said:?}")
    };
    assert!(
        said.contains("names no node") && said.contains(&anywhere),
        "{said}"
    );
    let of = |phase: &str| format!("persistentvolume_delete_total{{phase=\"{phase}\"}}");
    for (series, value) in [
        ("unclear_persistentvolumes", 1),
        ("persistentvolume_finalizer_removed_total", 2),
        // With the one that was made for another look.
        (&of("Available"), 3),
        (&of("Released"), 2),
    ] {
        counts(&stage, &mut cleanup, series, value);
    }
}
