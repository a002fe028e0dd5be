//! The API server is away for a while. No pass comes by itself: only the watches can wake the loop.

use std::time::Instant;

use control_plane::requests::Request;

use super::*;
use crate::kit::{fast, fast_volumes, offered_again, stage_with};

const WATCHED: [&str; 3] = ["nodes", PVS, "storageclasses"];
/// Long enough for pauses that double to be longer than what is allowed after it.
const OUTAGE: Duration = Duration::from_secs(12);

/// What was tried meanwhile waits no longer than what comes afterwards.
#[test]
fn whole_cycle_works_within_seconds_after_an_outage() {
    let stage = or_skip!(stage_with(&["--discovery-period=1s"]));
    let [used] = fast_volumes(&stage, ["used"]);
    let _provisioner = stage.provisioner();
    let bound = stage.occupy("claim", &used);
    let outage = stage.faults().on_any().reset_before();
    for resource in WATCHED {
        stage.faults().cut_watches(resource);
    }
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    let new = fast(&stage, "new");
    std::thread::sleep(Duration::from_secs(20));
    let back = Instant::now();
    outage.clear();
    // One probe a second, and a busy machine. Pauses that have grown would last longer.
    let limit = Duration::from_secs(10);
    stage.within(limit, "a new volume is offered, a released one cleaned", || {
        let found = stage.pvs_at(&used);
        let is_cleaned = found.iter().any(|pv| uid(pv) != uid(&bound));
        is_cleaned && !stage.pvs_at(&new).is_empty()
    });
    println!("after {:.1?}", back.elapsed());
}

#[test]
fn watches_resume_within_seconds_after_an_outage_and_an_expired_version() {
    let stage = or_skip!(stage_with(&["--discovery-period=1h"]));
    let [volume] = fast_volumes(&stage, ["vol"]);
    let _provisioner = stage.provisioner();
    let bound = stage.occupy("claim", &volume);
    for resource in WATCHED {
        stage.eventually("it watches", || {
            let watches = |r: &Request| r.verb == Verb::Watch && r.resource == resource;
            stage.requests().count(watches) > 0
        });
    }

    let (faults, requests) = (stage.faults(), stage.requests());
    let (begun, begun_at) = (requests.mark(), Instant::now());
    let outage = faults.on_any().reset_before();
    for resource in WATCHED {
        faults.cut_watches(resource);
    }
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    std::thread::sleep(OUTAGE);
    let asked = requests.since(begun);
    // One a second on average and two at most, whatever the number of watches. A busy machine is slower.
    let attempts = u64::try_from(asked.len()).unwrap();
    let seconds = begun_at.elapsed().as_secs();
    assert!(
        (seconds / 3..=2 * seconds + 6).contains(&attempts),
        "{attempts} in {seconds} s: {asked:?}"
    );

    let expired = faults.on(Verb::Watch).resource(PVS).times(1).watch_gone();
    let (back, since) = (requests.mark(), Instant::now());
    outage.clear();
    stage.within(Duration::from_secs(10), "the volume is cleaned", || {
        let found = stage.pvs_at(&volume);
        found.iter().all(|pv| uid(pv) != uid(&bound))
    });
    let took = since.elapsed();
    offered_again(&stage, &volume, &bound);
    assert_eq!(expired.hits(), 1, "cleaned after {took:?}");
    for resource in WATCHED {
        stage.within(Duration::from_secs(10), "the watch is back", || {
            let since = requests.since(back);
            let is_back = |r: &&std::sync::Arc<Request>| {
                r.verb == Verb::Watch && r.resource == resource && r.status() == 200
            };
            since.iter().any(|r| is_back(&r))
        });
    }
    let since = requests.since(back);
    let lists: Vec<_> = since
        .iter()
        .filter(|r| r.verb == Verb::List && WATCHED.contains(&&*r.resource))
        // The probe.
        .filter(|r| !r.path.ends_with("limit=1"))
        .map(|r| &r.resource)
        .collect();
    assert_eq!(lists, [PVS], "only what has expired is listed again");
}
