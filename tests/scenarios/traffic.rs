//! What a node asks of the API server, and above all what it does not.

use std::time::Duration;

use control_plane::requests::{Request, Verb};
use serde_json::json;
use support::Stage;

use super::kit::{fast, foreign_pv, in_state, metric, offered_again, ready, tmpfs};
use super::stage;

/// A node with three volumes on which all is done that there is to do.
fn settled() -> Option<(Stage, support::Program)> {
    let mut stage = stage()?;
    stage.add_arg("--discovery-period=1s");
    stage.class("fast", &json!({}));
    let volumes = ["vol-1", "vol-2", "vol-3"].map(|entry| {
        let volume = format!("disks/fast/{entry}");
        tmpfs(&stage, &volume)
    });
    let mut provisioner = stage.provisioner();
    // Asked over the provisioner's own HTTP: whatever is on record is the provisioner's.
    ready(&stage, &mut provisioner);
    // It is so when all is listed, and then asks for the watches.
    for resource in ["nodes", "persistentvolumes", "storageclasses"] {
        stage.eventually("it watches", || {
            let watches = |r: &Request| r.verb == Verb::Watch && r.resource == resource;
            stage.requests().count(watches) > 0
        });
    }
    for volume in &volumes {
        in_state(&stage, &mut provisioner, volume, "Available");
    }
    Some((stage, provisioner))
}

fn passes(provisioner: &mut support::Program) -> u64 {
    metric(provisioner, "loop_duration_seconds_count").unwrap()
}

#[test]
fn an_idle_node_asks_nothing_while_others_make_classes() {
    let (stage, mut provisioner) = or_skip!(settled());
    let requests = stage.requests();
    let mark = requests.mark();
    for number in 0..10 {
        // Slowly enough that each causes a pass of its own.
        std::thread::sleep(Duration::from_millis(200));
        stage.storage_class(&format!("another-{number}"), "Delete", "Immediate");
    }
    let last = passes(&mut provisioner);
    stage.eventually("the loop has looked", || passes(&mut provisioner) >= last + 2);
    let asked = requests.since(mark);
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn pods_are_listed_once_for_the_offers_of_a_pass() {
    let (stage, _provisioner) = or_skip!(settled());
    let lists = |r: &Request| r.verb == Verb::List && r.resource == "pods";
    let count = stage.requests().count(lists);
    assert!((1..3).contains(&count), "{count} lists for three volumes");
}

/// Claims of other volumes of ours are known.
#[test]
fn recycling_beside_a_pod_of_another_volume_reads_only_its_own_claim() {
    let (stage, _provisioner) = or_skip!(settled());
    let volume = |entry: &str| stage.sandbox.path().join("disks/fast").join(entry);
    stage.occupy("beside", &volume("vol-1"));
    stage.pod("pod", "beside");
    stage.pod_in_phase("pod", "Running");
    let bound = stage.occupy("recycled", &volume("vol-2"));
    let mark = stage.requests().mark();
    stage.delete_claim("recycled");
    offered_again(&stage, &volume("vol-2"), &bound);
    let requests = stage.requests().since(mark);
    let read = requests.iter().filter(|r| r.verb == Verb::Get);
    let read = read.filter(|r| r.resource == "persistentvolumeclaims");
    let read: Vec<_> = read.map(|r| r.path.clone()).collect();
    assert!(!read.is_empty(), "the gate reads the claim");
    let is_own = |path: &String| path.ends_with("/recycled");
    assert!(read.iter().all(is_own), "{read:?}");
}

/// Events on the machine wake the loop. The plan is the same as before.
#[test]
fn a_pass_that_changes_nothing_asks_nothing() {
    let (stage, mut provisioner) = or_skip!(settled());
    let requests = stage.requests();
    let (mark, before) = (requests.mark(), passes(&mut provisioner));
    for number in 0..10 {
        let dir = stage.sandbox.dir(&format!("disks/fast/no-mount-{number}")).unwrap();
        let elsewhere = tmpfs(&stage, "elsewhere");
        stage.sandbox.umount(&elsewhere).unwrap();
        std::fs::remove_dir(dir).unwrap();
    }
    stage.eventually("the loop has looked", || passes(&mut provisioner) >= before + 3);
    let asked = requests.since(mark);
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn foreign_volumes_cost_no_byte_and_ours_are_found_by_label() {
    let (stage, mut provisioner) = or_skip!(settled());
    let requests = stage.requests();
    let of_pvs = |verb: Verb| {
        let all = requests.all().into_iter();
        all.filter(move |r| r.verb == verb && r.resource == "persistentvolumes")
    };
    let paths = |verb| of_pvs(verb).map(|request| request.path.clone());
    let ours = format!("labelSelector=kubernetes.io%2Fhostname%3D{}", stage.node());
    let unlabelled = "labelSelector=%21kubernetes.io%2Fhostname";
    let watches: Vec<_> = paths(Verb::Watch).collect();
    assert!(watches.len() == 1 && watches[0].contains(&ours), "{watches:?}");
    let (of_strays, of_ours): (Vec<_>, Vec<_>) =
        paths(Verb::List).partition(|path| path.contains(unlabelled));
    assert_eq!(of_strays.len(), 1, "one list of the PVs without a label: {of_strays:?}");
    assert!(of_ours.iter().all(|path| path.contains(&ours)), "{of_ours:?}");

    let streamed = || of_pvs(Verb::Watch).map(|it| it.bytes()).sum::<u64>();
    let before = streamed();
    for number in 0..50 {
        let entry = format!("foreign-{number}");
        foreign_pv(&stage, &stage.named(&entry), &entry);
    }
    let mark = requests.mark();
    // A volume of ours is made after them, so the watch has passed them all when that shows.
    let own = fast(&stage, "vol-4");
    in_state(&stage, &mut provisioner, &own, "Available");
    let streamed = streamed() - before;
    let own = stage.pvs_at(&own).pop().unwrap();
    let size = serde_json::to_string(&own).unwrap().len() as u64;
    // It is made, without a phase and so shorter, and perhaps made Available already: one or two events of this one, and
    // nothing of the fifty others.
    assert!((size / 2..4 * size).contains(&streamed), "{streamed} bytes for one PV of {size}");
    let made = requests.since(mark);
    let made = made.iter().filter(|request| request.writes()).count();
    assert_eq!(made, 1, "one PV, and nothing for the fifty");
}
