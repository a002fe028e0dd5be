//! Disks that do not answer, or slowly. They are FUSE filesystems: each system call on them waits
//! for this test.

pub mod fuse;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fuse::Fuse;
use serde_json::{Value, json};
use support::stage::uid;
use support::{Program, Stage};

use super::kit::{fast, raw, ready, tmpfs};
use super::reload::edit_classes;
use super::stage;

/// More than a busy machine needs, and less than a hung disk would take.
const NOT_HELD_UP: Duration = Duration::from_secs(8);

/// Two classes: `dead` for the FUSE and a neighbour of it, `fast` for what must not be affected.
fn two_classes(period: &str) -> Option<(Stage, PathBuf, PathBuf)> {
    let mut stage = stage()?;
    stage.add_arg(&format!("--discovery-period={period}"));
    stage.class("dead", &json!({}));
    stage.class("fast", &json!({}));
    let neighbour = tmpfs(&stage, "disks/dead/neighbour");
    let other = fast(&stage, "vol");
    Some((stage, neighbour, other))
}

/// How long a volume takes from the release to the fresh PV.
fn recycling_time(stage: &Stage, claim: &str, volume: &std::path::Path) -> Duration {
    let old = stage.occupy(claim, volume);
    let begun = Instant::now();
    stage.delete_claim(claim);
    stage.available(volume, Some(&uid(&old)));
    assert_eq!(std::fs::read_dir(volume).unwrap().count(), 0);
    begun.elapsed()
}

/// A volume is recycled as quickly as if the disk were not there: once of three times, since a busy
/// machine has its better moments. Waiting for the disk costs seconds in each of several looks.
fn is_not_held_up(stage: &Stage, claim: &str, volume: &std::path::Path) {
    let took = [1, 2, 3].map(|n| recycling_time(stage, &format!("{claim}-{n}"), volume));
    let quickest = took.iter().min().unwrap();
    let limit = stage.at_most(Duration::from_secs(2));
    assert!(*quickest < limit, "{took:?} for {}", volume.display());
}

/// The entry `disk` of the class `dead` in `/status`.
fn dead_entry(provisioner: &mut Program) -> Value {
    let (_, status) = provisioner.http_get("/status").unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    let classes = status["classes"].as_array().unwrap();
    let volumes = classes.iter().filter_map(|class| class["volumes"].as_array()).flatten();
    volumes.into_iter().find(|volume| volume["entry"] == "disk").cloned().unwrap_or_default()
}

fn times_out(stage: &Stage, provisioner: &mut Program) {
    stage.eventually("the entry is reported", || dead_entry(provisioner)["reason"] == "TimedOut");
}

#[test]
fn a_hung_disk_stops_neither_the_others_nor_http() {
    let (stage, neighbour, other) = or_skip!(two_classes("1s"));
    let fuse = Fuse::silent(&stage.sandbox.dir("disks/dead/disk").unwrap());
    let begun = Instant::now();
    let mut provisioner = stage.provisioner();
    // Its first scan is still under way.
    stage.available(&other, None);
    let early = !stage.pvs_at(&neighbour).is_empty();
    assert!(!early || begun.elapsed() >= Duration::from_secs(2), "the disk is looked at first");
    let took = recycling_time(&stage, "early", &other);
    let limit = stage.at_most(NOT_HELD_UP);
    assert!(took < limit, "{took:?} while the disk is waited for");
    times_out(&stage, &mut provisioner);
    stage.available(&neighbour, None);
    for (claim, volume) in [("here", &neighbour), ("there", &other)] {
        is_not_held_up(&stage, claim, volume);
    }
    assert_eq!(provisioner.http_get("/healthz").unwrap().0, 200);
    let (code, why) = provisioner.http_get("/ready").unwrap();
    assert!(code == 503 && why.contains("dead"), "{code} {why}");
    let skipped = format!(
        "local_volume_provisioner_skipped_entries{{class=\"{}\",reason=\"TimedOut\"}} 1",
        stage.named("dead")
    );
    let (_, metrics) = provisioner.http_get("/metrics").unwrap();
    assert!(metrics.lines().any(|line| line == skipped), "{metrics}");
    let threads = std::fs::read_dir(format!("/proc/{}/task", provisioner.pid())).unwrap().count();
    assert!(threads < 12, "{threads} threads: one is stuck, not one for each look");

    // The driver dies, its requests end, and a good disk takes its place.
    let at = fuse.end();
    stage.eventually("it is no longer hung", || {
        dead_entry(&mut provisioner)["reason"] != "TimedOut"
    });
    stage.sandbox.umount(&at).unwrap();
    tmpfs(&stage, "disks/dead/disk");
    stage.available(&at, None);
    ready(&stage, &mut provisioner);
}

#[test]
fn a_hung_disk_does_not_keep_the_process_from_ending() {
    let (stage, neighbour, _) = or_skip!(two_classes("1s"));
    let _fuse = Fuse::silent(&stage.sandbox.dir("disks/dead/disk").unwrap());
    let mut provisioner = stage.provisioner();
    times_out(&stage, &mut provisioner);
    stage.available(&neighbour, None);
    let limit = stage.at_most(NOT_HELD_UP);
    assert!(provisioner.stop(limit).unwrap().success());
}

#[test]
fn a_hung_discovery_directory_stops_no_other_class() {
    let (stage, _, other) = or_skip!(two_classes("1m"));
    // Over the directory itself: not even its names can be read.
    let fuse = Fuse::silent(&stage.sandbox.dir("disks/dead").unwrap());
    let mut provisioner = stage.provisioner();
    stage.available(&other, None);
    let took = recycling_time(&stage, "claim", &other);
    assert!(took < stage.at_most(NOT_HELD_UP), "{took:?}");
    stage.eventually("it is reported", || {
        let (code, why) = provisioner.http_get("/ready").ok()?;
        (code == 503 && why.contains("did not answer")).then_some(())
    });
    is_not_held_up(&stage, "again", &other);
    // Changes elsewhere are still seen at once, not when the minute has gone.
    let new = fast(&stage, "new");
    stage.available(&new, None);
    let at = fuse.end();
    stage.eventually("no thread waits for it any more", || stage.sandbox.umount(&at).ok());
    stage.available(&at.join("neighbour"), None);
}

#[test]
fn a_class_directory_below_a_hung_mount_stops_no_other_class() {
    let (stage, _, other) = or_skip!(two_classes("1m"));
    let fuse = Fuse::silent(&stage.sandbox.dir("disks/dead").unwrap());
    let below = fuse.path().join("below");
    edit_classes(&stage, |classes| {
        let class = classes.get_mut(&stage.named("dead")).unwrap();
        (class["hostDir"], class["mountDir"]) = (json!(below), json!(below));
    });
    let _provisioner = stage.provisioner();
    stage.available(&other, None);
    let took = recycling_time(&stage, "claim", &other);
    assert!(took < stage.at_most(NOT_HELD_UP), "{took:?}");
}

/// A hung entry does not affect the entries of the same name elsewhere.
#[test]
fn a_class_moves_away_from_a_hung_disk_or_directory() {
    for hung in ["disks/dead/disk", "disks/dead"] {
        let (stage, _, other) = or_skip!(two_classes("1s"));
        let fuse = Fuse::silent(&stage.sandbox.dir(hung).unwrap());
        let mut provisioner = stage.provisioner();
        stage.available(&other, None);
        stage.eventually("it is reported", || provisioner.log().contains("did not answer"));
        let moved = tmpfs(&stage, "disks/moved/disk");
        let dir = moved.parent().unwrap().to_owned();
        edit_classes(&stage, |classes| {
            let class = classes.get_mut(&stage.named("dead")).unwrap();
            (class["hostDir"], class["mountDir"]) = (json!(dir), json!(dir));
        });
        stage.available(&moved, None);
        ready(&stage, &mut provisioner);
        drop(fuse);
    }
}

#[test]
fn a_slow_disk_is_offered_and_delays_no_other() {
    let (stage, neighbour, other) = or_skip!(two_classes("1s"));
    let disk = raw(&stage);
    let path = stage.sandbox.dir("disks/dead/disk").unwrap();
    let fuse = Fuse::on_disk(disk.path(), &path);
    fuse.slow(Duration::from_millis(300));
    let _provisioner = stage.provisioner();
    let slow = stage.available(fuse.path(), None);
    assert_eq!(slow.spec.unwrap().capacity.unwrap()["storage"].0, "64Mi");
    // Its own class waits until all of it was scanned, the other one does not.
    recycling_time(&stage, "neighbour", &neighbour);
    is_not_held_up(&stage, "other", &other);
}

/// Not when the hour has gone.
#[test]
fn a_disk_that_answers_again_is_offered_at_once() {
    let (stage, neighbour, _) = or_skip!(two_classes("1h"));
    let disk = raw(&stage);
    let path = stage.sandbox.dir("disks/dead/disk").unwrap();
    let fuse = Fuse::on_disk(disk.path(), &path);
    fuse.freeze();
    let mut provisioner = stage.provisioner();
    times_out(&stage, &mut provisioner);
    stage.available(&neighbour, None);
    // Until the last answer of the API server on that one has arrived.
    std::thread::sleep(Duration::from_secs(1));
    fuse.thaw();
    stage.available(fuse.path(), None);
}

/// Not when the hour has gone, although its directory was read before.
#[test]
fn what_comes_while_a_slow_disk_is_looked_at_is_found_after_that() {
    let (stage, neighbour, _) = or_skip!(two_classes("1h"));
    let disk = raw(&stage);
    let path = stage.sandbox.dir("disks/dead/disk").unwrap();
    let fuse = Fuse::on_disk(disk.path(), &path);
    let mut provisioner = stage.provisioner();
    stage.available(fuse.path(), None);
    stage.available(&neighbour, None);
    ready(&stage, &mut provisioner);
    fuse.slow(Duration::from_millis(300));
    // The one begins a look, and the other comes when the directory has been read for it.
    stage.sandbox.dir("disks/dead/empty").unwrap();
    std::thread::sleep(Duration::from_millis(400));
    let late = tmpfs(&stage, "disks/dead/late");
    stage.available(&late, None);
}
