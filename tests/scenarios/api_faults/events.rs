//! Events that cannot be written at the moment.

use super::*;
use crate::kit::metric;

#[test]
fn an_event_is_written_as_soon_as_the_api_server_is_back() {
    let Some(stage) = bare_stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/one", "size=1m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    stage.available(&volume, None);
    let of_events = stage.faults().on(Verb::Create).resource("events");
    let broken = of_events.reset_before();
    stage.sandbox.umount(&volume).unwrap();
    stage.eventually("it tries again", || (broken.hits() > 2).then_some(()));
    assert_eq!(metric(&mut provisioner, "events_failed_total"), Some(0));
    broken.clear();
    stage.event("VolumeNotMounted", "");
    assert_eq!(stage.events("VolumeNotMounted").len(), 1);
    assert_eq!(metric(&mut provisioner, "events_failed_total"), Some(0));
}

#[test]
fn an_event_that_is_refused_keeps_none_waiting() {
    let Some(stage) = bare_stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let [refused, accepted] = ["disks/fast/refused", "disks/fast/accepted"]
        .map(|dir| stage.sandbox.tmpfs(dir, "size=1m").unwrap());
    let mut provisioner = stage.provisioner().unwrap();
    for volume in [&refused, &accepted] {
        stage.available(volume, None);
    }
    let of_events = stage.faults().on(Verb::Create).resource("events");
    let refusal = of_events.times(1).answer(Answer::code(422));
    stage.sandbox.umount(&refused).unwrap();
    stage.eventually("it gives up", || {
        (metric(&mut provisioner, "events_failed_total") == Some(1)).then_some(())
    });
    stage.sandbox.umount(&accepted).unwrap();
    stage.event("VolumeNotMounted", "");
    assert_eq!(
        (refusal.hits(), stage.events("VolumeNotMounted").len()),
        (1, 1)
    );
}
