//! PVs whose creation is in progress, perhaps with an earlier configuration: its outcome is not known yet.

use super::kit::*;
use crate::inventory::Candidate;

const WAITS: [&str; 1] = ["a is Creating"];

#[test]
fn a_path_for_which_a_pv_is_being_created_under_another_name_waits() {
    world()
        .fast("a", &fs(1))
        .creating("/mnt/fast/a", &fs(1))
        .expect("the class had another name", &WAITS);
    world()
        .fast("a", &fs(1))
        .creating("/mnt/fast/a", &fs(2))
        .expect("another disk is there by now", &WAITS);
    world()
        .fast("a", &tmpfs(9, "/mnt/fast/a"))
        .creating("/mnt/fast/a", &tmpfs(9, "/mnt/fast/a"))
        .expect("a volume that nothing tells from others", &WAITS);
}

#[test]
fn a_class_that_shares_the_directory_of_one_that_was_not_read_waits_too() {
    let slow = with(class("slow"), |class| class.host_dir = path("/mnt/fast"));
    world()
        .class(slow)
        .incomplete("fast")
        .entry("slow", "a", fs(1))
        .creating("/mnt/fast/a", &fs(1))
        .expect("the PV of class fast is being made", &WAITS);
}

#[test]
fn storage_for_which_a_pv_is_being_created_at_another_path_waits() {
    for (situation, at, candidate) in [
        ("the class had another directory", "/mnt/old/a", fs(1)),
        ("the disk has another name now", "/mnt/fast/b", disk(1)),
    ] {
        let world = world().fast("a", &candidate).creating(at, &candidate);
        world.expect(situation, &WAITS);
    }
    for at in ["/mnt/fast/a/below", "/mnt/fast", "/"] {
        let world = world().fast("a", &fs(1)).creating(at, &fs(9));
        world.expect(at, &WAITS);
    }
}

#[test]
fn a_creation_elsewhere_delays_no_other_volume() {
    let weak: [Candidate; 2] = [1, 2].map(|at| {
        let same = nameless(1, "now").identity;
        with(nameless(at, "now"), |device| device.identity = same)
    });
    for (situation, here, there) in [
        ("another disk", fs(1), fs(2)),
        ("a neighbour", directory(1, "/x"), directory(1, "/xy")),
        ("two of one size", weak[0].clone(), weak[1].clone()),
    ] {
        world()
            .fast("a", &here)
            .creating("/mnt/fast/b", &there)
            .expect(situation, &["create /mnt/fast/a", "a is Creating"]);
    }
}
