//! An invalid configuration is kept out, and reported.

use std::fs;

use serde_json::json;
use support::stage::uid;

use super::changes::publish;
use super::{edit_classes, edited, logged, over, reloaded, serving, set};
use crate::kit::*;
use crate::stage;

fn degraded(provisioner: &mut support::Program) -> String {
    status(provisioner)["degraded"].to_string()
}

#[test]
fn the_last_good_configuration_stays_until_a_good_one_comes() {
    let (stage, [volume]) = or_skip!(fast_stage(["vol"]));
    let map = stage.config_dir().join("storageClassMap");
    let good = fs::read_to_string(&map).unwrap();
    let broken = good.replacen('}', "]", 1);
    fs::remove_file(map).unwrap();
    // Both keys at once: a busy machine may be at rest between two writes.
    let publish = |version, map: &str, paused| {
        let keys = [("storageClassMap", map), ("pauseCleaning", paused)];
        publish(&stage, version, &keys);
    };
    publish("..2026_1", &good, "false");
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);

    // The valid half of it does not take effect either.
    publish("..2026_2", &broken, "true");
    reloaded(&stage, &mut provisioner, false);
    let event = stage.event("ConfigReloadFailed", "storageClassMap is not valid YAML");
    let yaml = "storageClassMap is not valid YAML";
    for words in ["check-config", "last good", yaml] {
        assert!(event.contains(words), "{event}");
        stage.eventually("/status says so", || degraded(&mut provisioner).contains(words));
    }
    assert_eq!(status(&mut provisioner)["paused"], false);
    assert_eq!(provisioner.http_get("/ready").unwrap().0, 200);
    assert_eq!(provisioner.http_get("/healthz").unwrap().0, 200);
    let error = logged(&stage, &provisioner, "ConfigReloadFailed");
    assert!(error.contains("ERROR"), "{error}");
    // It is in force.
    stage.delete_claim("claim");
    offered_again(&stage, &volume, &bound);
    let another = fast(&stage, "another");
    stage.available(&another, None);

    // Back to exactly what is in force.
    publish("..2026_3", &good, "false");
    reloaded(&stage, &mut provisioner, true);
    stage.event("ConfigReloaded", "valid again");
    stage.eventually("nothing is degraded", || degraded(&mut provisioner) == "[]");

    // On from a bad one to another good one.
    publish("..2026_4", &broken, "false");
    reloaded(&stage, &mut provisioner, false);
    let slow = stage.sandbox.dir("disks/slow").unwrap();
    let better = edited(&good, |classes| {
        classes.insert(stage.named("slow"), over(&slow));
    });
    publish("..2026_5", &better, "false");
    reloaded(&stage, &mut provisioner, true);
    stage.eventually("nothing is degraded", || degraded(&mut provisioner) == "[]");
    let log = provisioner.log();
    let errors = log.matches("reason=\"ConfigReloadFailed\"").count();
    assert_eq!(errors, 2, "each content once");
}

#[test]
fn one_faulty_class_or_key_keeps_all_of_it_out() {
    let (stage, volume, mut provisioner) = or_skip!(serving());
    let before = stage.available(&volume, None);
    let second = tmpfs(&stage, "disks/slow/vol");
    stage.storage_class("slow", "Delete", "Immediate");
    edit_classes(&stage, |classes| {
        classes.insert(stage.named("slow"), over(second.parent().unwrap()));
        let fast = classes.get_mut(&stage.named("fast")).unwrap();
        fast["accessMode"] = json!("Nonsense");
    });
    let event = stage.event("ConfigReloadFailed", "Nonsense");
    assert!(event.contains(&stage.named("fast")), "{event}");
    stage.still(&mut provisioner, "both classes as before", || stage.pvs_at(&second).is_empty());
    assert_eq!(provisioner.http_get("/ready").unwrap().0, 200);
    assert_eq!(uid(&stage.available(&volume, None)), uid(&before));

    set(&stage, "fast", "accessMode", "ReadWriteOnce");
    stage.available(&second, None);
    reloaded(&stage, &mut provisioner, true);
    for (key, value, said) in
        [("useAlphaAPI", "true", "useAlphaAPI is true"), ("maxConcurrentCleanups", "many", "many")]
    {
        stage.configure(key, value);
        stage.event("ConfigReloadFailed", said);
        stage.eventually("/status says so", || degraded(&mut provisioner).contains(said));
        fs::remove_file(stage.config_dir().join(key)).unwrap();
        reloaded(&stage, &mut provisioner, true);
    }
}

#[test]
fn a_class_that_was_faulty_at_the_start_runs_when_it_is_fixed() {
    let stage = or_skip!(stage());
    stage.class("fast", &json!({ "accessMode": "Nonsense" }));
    stage.configure("maxConcurrentCleanups", "many");
    let volume = fast(&stage, "vol");
    let mut provisioner = stage.provisioner();
    stage.event("ClassInvalid", "Nonsense");
    stage.eventually("the key is named", || degraded(&mut provisioner).contains("many"));
    assert_eq!(provisioner.http_get("/ready").unwrap().0, 503);
    // One of two is not enough.
    set(&stage, "fast", "accessMode", "ReadWriteOnce");
    stage.event("ConfigReloadFailed", "many");
    assert!(stage.pvs_at(&volume).is_empty());
    stage.configure("maxConcurrentCleanups", "2");
    stage.available(&volume, None);
    stage.eventually("all is well", || {
        let ready = provisioner.http_get("/ready").ok()?.0 == 200;
        (ready && degraded(&mut provisioner) == "[]").then_some(())
    });
}
