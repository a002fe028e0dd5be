//! Events that cannot be written at the moment, or not as they were to be.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};

use super::*;
use crate::kit::{fast, in_state, metric};

#[test]
fn an_event_is_written_as_soon_as_the_api_server_is_back() {
    let (stage, volume) = or_skip!(bare_volume());
    let mut provisioner = stage.provisioner();
    stage.available(&volume, None);
    let of_events = stage.faults().on(Verb::Create).resource("events");
    let broken = of_events.reset_before();
    stage.sandbox.umount(&volume).unwrap();
    stage.eventually("it tries again", || broken.hits() > 2);
    assert_eq!(metric(&mut provisioner, "events_failed_total"), Some(0));
    broken.clear();
    stage.event("VolumeNotMounted", "");
    assert_eq!(stage.events("VolumeNotMounted").len(), 1);
    assert_eq!(metric(&mut provisioner, "events_failed_total"), Some(0));
}

/// One is refused for good, the other is tried again: as where a webhook is broken that is asked about one namespace
/// only.
#[test]
fn an_event_that_is_refused_or_keeps_failing_delays_no_other() {
    for (code, gives_up) in [(422, true), (500, false)] {
        let (stage, accepted) = or_skip!(bare_volume());
        let refused = fast(&stage, "other");
        let mut provisioner = stage.provisioner();
        let [first, _] = [&refused, &accepted].map(|at| name(&stage.available(at, None)));
        let of_events = stage.faults().on(Verb::Create).resource("events");
        let broken = of_events.name_prefix(&first).answer(Answer::code(code));
        stage.sandbox.umount(&refused).unwrap();
        stage.eventually("it gives up, or tries again", || {
            let failed = metric(&mut provisioner, "events_failed_total");
            broken.hits() > 0 && (failed == Some(1) || !gives_up && broken.hits() > 1)
        });
        stage.sandbox.umount(&accepted).unwrap();
        stage.event("VolumeNotMounted", "");
        assert_eq!(stage.events("VolumeNotMounted").len(), 1, "{code}");
        broken.clear();
        if !gives_up {
            stage.eventually("both are written", || {
                stage.events("VolumeNotMounted").len() == 2
            });
        }
    }
}

/// An operator deleted it, or it has expired: some clusters keep events for a few minutes only.
#[test]
fn an_event_that_comes_again_when_the_first_is_gone_is_written_again() {
    let stage = or_skip!(bare_stage());
    stage.class("fast", &json!({}));
    let mount = || fast(&stage, "vol");
    let volume = mount();
    let mut provisioner = stage.provisioner();
    let pv = name(&stage.available(&volume, None));
    stage.sandbox.umount(&volume).unwrap();
    stage.event("VolumeNotMounted", "mount the volume");

    let events: Api<Event> = Api::namespaced(stage.client.clone(), "default");
    let of_pv = ListParams::default().fields(&format!("involvedObject.name={pv}"));
    for event in stage.request(events.list(&of_pv)) {
        let (name, params) = (event.metadata.name.unwrap(), DeleteParams::default());
        stage.request(events.delete(&name, &params));
    }
    assert_eq!(stage.events("VolumeNotMounted"), [""; 0]);
    mount();
    in_state(&stage, &mut provisioner, &volume, "Available");
    stage.sandbox.umount(&volume).unwrap();
    stage.event("VolumeNotMounted", "mount the volume");
    assert_eq!(metric(&mut provisioner, "events_failed_total"), Some(0));
}
