//! Our image under the role of the Go provisioner's chart, and under roles that are smaller still.

use std::time::Duration;

use control_plane::faults::Fault;
use control_plane::requests::Verb;
use serde_json::json;
use support::stage::{is_terminating, name, phase};
use support::{Program, Stage};

use crate::kit::*;
use crate::stage;

const PVS: &str = "persistentvolumes";
/// A permission that is granted is used at the next retry. A denied watch is reported for 45 s.
const NOTICED: Duration = Duration::from_mins(1);

/// What that role lacks of what we ask for: group, resource, verbs.
const LACKING: [(&str, &str, &[Verb]); 4] = [
    ("", PVS, &[Verb::Patch]),
    ("", "persistentvolumeclaims", &[Verb::Get]),
    ("", "pods", &[Verb::List]),
    ("", "nodes", &[Verb::List, Verb::Watch]),
];

fn under_the_go_role(stage: &Stage) -> Vec<Fault> {
    let faults = stage.faults();
    let deny = |(group, resource, verbs): &(&str, &str, &[Verb])| {
        // What may not be listed is never watched.
        let is_rare = |verb| matches!((*resource, verb), ("nodes", Verb::Watch));
        let deny = |verb: &Verb| {
            let denied = faults.on(*verb).group(group).resource(resource);
            let denied = if is_rare(*verb) {
                denied.maybe()
            } else {
                denied
            };
            denied.forbid()
        };
        verbs.iter().map(deny).collect::<Vec<_>>()
    };
    LACKING.iter().flat_map(deny).collect()
}

/// The value of the metric of each missing permission.
fn missing(provisioner: &mut Program) -> Vec<(String, u64)> {
    let (_, text) = provisioner.http_get("/metrics").unwrap();
    let prefix = "local_volume_provisioner_missing_permission";
    let value = |line: &str| {
        let (labels, value) = line.strip_prefix(prefix)?.split_once(' ')?;
        Some((labels.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(value).collect()
}

fn degraded(provisioner: &mut Program) -> String {
    let (_, status) = provisioner.http_get("/status").unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["degraded"].to_string()
}

/// An image alone was changed. PVs are still created; nothing is cleaned, as without `patch` no PV can
/// be kept from being bound meanwhile; and an event names what to apply. Then it is applied.
#[test]
fn under_the_go_charts_role_volumes_are_offered_and_cleaning_begins_when_the_role_is_applied() {
    let (stage, [volume]) = or_skip!(fast_stage(["vol"]));
    let role = under_the_go_role(&stage);
    let mut provisioner = stage.provisioner();
    let old = stage.bind("claim", &volume);
    keep_secret(&volume);
    stage.delete_claim("claim");
    stage.in_phase(&name(&old), "Released");

    stage.event("PermissionMissing", "patch persistentvolumes");
    stage.event("PermissionMissing", "deploy/rbac.yaml");
    let later = fast(&stage, "later");
    stage.available(&later, None);
    for right in [
        "patch persistentvolumes",
        "get persistentvolumeclaims",
        "list pods",
        "list nodes",
    ] {
        stage.eventually(&format!("{right:?} is missed"), || {
            degraded(&mut provisioner).contains(right)
        });
    }
    let now = stage.pv(&name(&old)).unwrap();
    assert_eq!(
        (phase(&now).as_str(), is_terminating(&now)),
        ("Released", false)
    );
    assert!(has_secret(&volume));
    assert_eq!(provisioner.http_get("/healthz").unwrap().0, 200);

    for lacking in role {
        lacking.clear();
    }
    stage.within(NOTICED, "the volume is cleaned and offered again", || {
        let fresh = stage.pvs_at(&volume).into_iter().next()?;
        (fresh.metadata.uid != old.metadata.uid && phase(&fresh) == "Available").then_some(())
    });
    assert!(entries(&volume).is_empty());
    stage.occupy("next", &later);
    stage.delete_claim("next");
    stage.within(NOTICED, "no right is missed any more", || {
        let missing = missing(&mut provisioner);
        assert!(missing.len() > 3, "they stay, with 0: {missing:?}");
        missing.iter().all(|(_, value)| *value == 0)
    });
    stage.eventually("nothing is degraded", || degraded(&mut provisioner) == "[]");
    assert!(provisioner.is_running());
}

#[test]
fn an_event_that_comes_again_is_counted_up() {
    let stage = or_skip!(stage());
    let settings = json!({ "blockCleanerCommand": ["/bin/false"] });
    let (_device, path) = raw_volume(&stage, &settings);
    let _provisioner = stage.provisioner();
    let bound = stage.bind("claim", &path);
    stage.used(&bound);
    stage.delete_claim("claim");
    let failures = || {
        let api: kube::Api<k8s_openapi::api::core::v1::Event> =
            kube::Api::namespaced(stage.client.clone(), "default");
        let events = stage.request(api.list(&kube::api::ListParams::default()));
        let of_cleaner = |event: &k8s_openapi::api::core::v1::Event| {
            event.reason.as_deref() == Some("VolumeFailedDelete")
                && event.involved_object.uid == bound.metadata.uid
        };
        events
            .items
            .into_iter()
            .filter(of_cleaner)
            .collect::<Vec<_>>()
    };
    stage.within(NOTICED, "the second failure", || {
        (failures().first()?.count? >= 2).then_some(())
    });
    assert_eq!(failures().len(), 1);
}
