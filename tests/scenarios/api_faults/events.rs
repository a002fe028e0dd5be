//! Events that cannot be written at the moment, or not as they were to be.

use super::*;
use crate::kit::{fast, metric};

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
            stage.eventually("both are written", || stage.events("VolumeNotMounted").len() == 2);
        }
    }
}
