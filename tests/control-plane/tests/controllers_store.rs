//! The controllers as tasks on a store that is written to meanwhile.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::{Duration, Instant};

use common::{config_map, volume};
use control_plane::{
    Store,
    controllers::{self, ControllerOptions},
    resource::{CONFIG_MAPS, PERSISTENT_VOLUMES as VOLUMES},
    store::DeleteOptions,
};

/// They look from queue to queue; what is written meanwhile may be for one that they have passed. The
/// first write of a round wakes them, and the second comes a little later in each round.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_written_while_they_look_around_is_seen_at_once() {
    let store = Store::default();
    let options = ControllerOptions {
        resync: Duration::from_hours(1),
        ..ControllerOptions::default()
    };
    let _controllers = controllers::spawn(store.clone(), options).unwrap();
    let rounds = std::thread::spawn(move || {
        let rounds = if support::slow() { 4_000 } else { 400 };
        for round in 0..rounds {
            let name = format!("v{round}");
            let (map, volume) = (config_map("m"), volume(&name));
            store.create(&CONFIG_MAPS, "default", map).unwrap();
            let woken = Instant::now();
            let later = Duration::from_nanos(round % 400 * 250);
            while woken.elapsed() < later {
                std::hint::spin_loop();
            }
            store.create(&VOLUMES, "", volume).unwrap();
            let phase = || store.get(&VOLUMES, "", &name).unwrap()["status"]["phase"].clone();
            while phase() != "Available" {
                let waited = woken.elapsed();
                assert!(waited < Duration::from_mins(1), "in round {round}");
                std::thread::yield_now();
            }
            for (r, ns, name) in [(&CONFIG_MAPS, "default", "m"), (&VOLUMES, "", &*name)] {
                store
                    .delete(r, ns, name, &DeleteOptions::default())
                    .unwrap();
            }
        }
    });
    tokio::task::spawn_blocking(|| rounds.join().unwrap())
        .await
        .unwrap();
}
