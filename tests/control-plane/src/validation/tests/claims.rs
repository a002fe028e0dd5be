//! Claims, and the VolumeAttributesClasses that they share with volumes.

use super::*;

#[test]
fn claims() {
    let r = &resource::PERSISTENT_VOLUME_CLAIMS;
    assert_eq!(faults(r, &claim()), "");
    for (pointer, value, fault) in [
        (
            "/spec/accessModes",
            json!(null),
            "at least 1 access mode is required",
        ),
        (
            "/spec/resources",
            json!(null),
            "spec.resources[storage]: Required value",
        ),
        (
            "/spec/resources/requests/storage",
            json!("-1"),
            "must be greater than zero",
        ),
    ] {
        let found = faults(r, &with(claim(), pointer, value));
        assert!(found.contains(fault), "{pointer}: {found}");
    }
}

#[test]
fn what_may_change_in_a_claim() {
    let r = &resource::PERSISTENT_VOLUME_CLAIMS;
    let named = with(claim(), "/spec/volumeName", json!("pv-1"));
    assert_eq!(change_faults(r, &claim(), &named), "");
    let other = with(claim(), "/spec/volumeName", json!("pv-2"));
    assert!(change_faults(r, &named, &other).contains("spec is immutable after creation"));
    let classed = with(claim(), "/spec/storageClassName", json!("fast"));
    assert_eq!(change_faults(r, &claim(), &classed), "");
    assert_ne!(change_faults(r, &classed, &claim()), "");

    let bigger = |c: Value| with(c, "/spec/resources/requests/storage", json!("2Gi"));
    assert_ne!(
        change_faults(r, &claim(), &bigger(claim())),
        "",
        "an unbound claim cannot grow"
    );
    let mut bound = claim();
    bound["status"] = json!({"phase": "Bound", "capacity": {"storage": "1536Mi"}});
    assert_eq!(change_faults(r, &bound, &bigger(bound.clone())), "");
    let labelled = with(bound.clone(), "/metadata/labels", json!({"a": "b"}));
    assert_eq!(
        change_faults(r, &bound, &labelled),
        "",
        "a volume may be larger than asked for"
    );
    let smaller = with(
        bound.clone(),
        "/spec/resources/requests/storage",
        json!("1023Mi"),
    );
    assert!(change_faults(r, &bound, &smaller).contains("can not be less than status.capacity"));
}

#[test]
fn growing_is_noticed() {
    let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    assert!(grows(&claim("1Gi"), &claim("1025Mi")));
    assert!(!grows(&claim("1Gi"), &claim("1024Mi")));
}

#[test]
fn a_volume_attributes_class_is_for_csi_and_stays() {
    let r = &resource::PERSISTENT_VOLUMES;
    let gold = with(
        local_volume(),
        "/spec/volumeAttributesClassName",
        json!("gold"),
    );
    assert!(faults(r, &gold).contains("spec.csi: Required value"));
    let mut csi = gold.clone();
    csi["spec"].as_object_mut().unwrap().remove("local");
    csi["spec"]["csi"] = json!({"driver": "d", "volumeHandle": "h"});
    assert_eq!(faults(r, &csi), "");
    let empty = with(csi.clone(), "/spec/volumeAttributesClassName", json!(""));
    assert!(faults(r, &empty).contains("an empty string is disallowed"));
    let mut bare = csi.clone();
    bare["spec"]
        .as_object_mut()
        .unwrap()
        .remove("volumeAttributesClassName");
    assert!(change_faults(r, &csi, &bare).contains("update from non-nil value to nil"));

    let r = &resource::PERSISTENT_VOLUME_CLAIMS;
    let mut bound = with(claim(), "/spec/volumeAttributesClassName", json!("gold"));
    bound["status"] = json!({"phase": "Bound", "currentVolumeAttributesClassName": "gold"});
    let class = |name: Value| with(bound.clone(), "/spec/volumeAttributesClassName", name);
    assert_eq!(change_faults(r, &bound, &class(json!("silver"))), "");
    assert!(change_faults(r, &bound, &class(json!(null))).contains("update to nil is forbidden"));
    assert!(change_faults(r, &bound, &class(json!(""))).contains("update to empty string"));
}
