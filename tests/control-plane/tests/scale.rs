//! Many objects: nothing here may cost more per object as their number grows.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod common;

use std::time::{Duration, Instant};

use common::*;
use control_plane::Options;
use futures::{StreamExt, stream};
use nix::time::{ClockId, clock_gettime};

/// How much of the processor this program has had; what else runs on the machine does not count.
fn worked() -> Duration {
    let worked = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    worked.unwrap().into()
}

/// Creates volumes through the API, several at a time.
async fn create_volumes(api: &Api, numbers: std::ops::Range<usize>) -> Duration {
    let begin = worked();
    stream::iter(numbers)
        .for_each_concurrent(8, |i| async move {
            api.post(PVS, &volume(&format!("pv-{i:05}"))).await.ok();
        })
        .await;
    worked().saturating_sub(begin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_volumes() {
    const ALL: usize = 10_000;
    let api = Api::with(Options {
        history: 2 * ALL,
        ..Options::default()
    })
    .await;
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(api.watch(&format!("{PVS}?watch=1")).await);
    }
    let watching = watches.into_iter().map(|mut lines| {
        tokio::spawn(async move {
            let mut added = 0;
            while added < ALL {
                added += usize::from(lines.next().await["type"] == "ADDED");
            }
        })
    });
    let watching: Vec<_> = watching.collect();
    let mut thousands = Vec::new();
    for thousand in 0..10 {
        let numbers = thousand * ALL / 10..(thousand + 1) * ALL / 10;
        thousands.push(create_volumes(&api, numbers).await);
    }
    for watch in watching {
        watch.await.unwrap();
    }
    let total: Duration = thousands.iter().sum();
    println!("created {ALL} volumes in {total:?} of the processor, by thousands {thousands:?}");
    assert!(total < Duration::from_mins(1), "{total:?}");
    // The middle of three, because now and then something else is done in between.
    let middle = |part: &[Duration]| {
        let mut part = part.to_vec();
        part.sort();
        part[1]
    };
    let (first, last) = (middle(&thousands[..3]), middle(&thousands[7..]));
    assert!(last < 3 * first, "it gets slower: {thousands:?}");

    let begin = Instant::now();
    assert_eq!(names(&api.get(PVS).await.ok()).len(), ALL);
    println!("listed them in {:?}", begin.elapsed());
    let begin = Instant::now();
    let few = api
        .get(&format!("{PVS}?labelSelector=example.com%2Fowner%3Dyou"))
        .await
        .ok();
    assert_eq!(names(&few).len(), 0);
    println!("selected none of them in {:?}", begin.elapsed());
}
