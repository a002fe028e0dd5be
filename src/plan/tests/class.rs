//! StorageClasses, faulty classes, scans that are not complete, and readiness.

use super::kit::*;
use crate::plan::Plan;
use crate::types::SkipReason;
use crate::view::{NodeView, ReclaimPolicy};

fn not_ready(world: &World) -> String {
    world.plan().not_ready.join("; ")
}

#[test]
fn a_class_without_a_storage_class_waits_and_the_others_go_on() {
    let world = world().class(class("slow")).storage_class("fast", None).fast("a", &fs(1)).entry(
        "slow",
        "b",
        fs(2),
    );
    world.expect(
        "no StorageClass fast",
        &["a is Skipped as ClassMissing", "create /mnt/slow/b", "b is Creating"],
    );
    assert!(
        not_ready(&world).contains("there is no StorageClass \"fast\""),
        "{}",
        not_ready(&world)
    );
}

#[test]
fn a_storage_class_that_was_not_read_is_not_called_missing() {
    let mut world = world().fast("a", &fs(1));
    world.snapshot.storage_classes.clear();
    world.expect("nothing read", &["a is Skipped as ClassMissing"]);
    let told = not_ready(&world);
    assert!(told.contains("\"fast\" could not be read so far"), "{told}");
}

#[test]
fn only_delete_and_retain_are_offered() {
    for (policy, expected) in [
        (ReclaimPolicy::Delete, &["create /mnt/fast/a", "a is Creating"][..]),
        (ReclaimPolicy::Retain, &["create /mnt/fast/a", "a is Creating"]),
        (ReclaimPolicy::Recycle, &["a is Skipped as ClassInvalid"]),
        (ReclaimPolicy::Other("Shred".into()), &["a is Skipped as ClassInvalid"]),
    ] {
        let situation = format!("{policy:?}");
        let world = world().storage_class("fast", Some(storage_class(policy))).fast("a", &fs(1));
        world.expect(&situation, expected);
        assert!(!world.plan().not_ready.is_empty(), "{situation}");
    }
}

#[test]
fn nothing_is_done_before_node_and_pvs_are_known() {
    let known = world().fast("a", &fs(1)).pv(released(pv("pv-b", "/mnt/fast/b", &fs(2))));
    for (situation, change, why) in [
        ("no Node", (|world| world.snapshot.node = None) as fn(&mut World), "Node"),
        ("PVs not listed", |world| world.snapshot.pvs = None, "listed"),
    ] {
        let world = with(known.clone(), change);
        world.expect(situation, &[]);
        assert!(not_ready(&world).contains(why), "{situation}: {}", not_ready(&world));
    }
}

#[test]
fn nothing_is_concluded_from_an_incomplete_scan() {
    let (a, b) = (pv("pv-a", "/mnt/fast/a", &fs(1)), pv("pv-b", "/mnt/fast/b", &fs(2)));
    let world = world()
        .class(class("slow"))
        .entry("slow", "d", fs(4))
        .fast("b", &fs(2))
        .fast("c", &fs(3))
        .incomplete("fast")
        .pv(a)
        .pv(released(b));
    world.expect(
        "fast was not read to its end; slow was",
        &["a is Available", "b is Due", "c is Creating", "create /mnt/slow/d", "d is Creating"],
    );
    assert!(not_ready(&world).contains("fast"), "{}", not_ready(&world));
}

#[test]
fn a_directory_that_was_not_looked_at_yet_is_not_ready() {
    let mut world = world().pv(released(pv("pv-a", "/mnt/fast/a", &fs(1))));
    world.snapshot.observed.clear();
    world.expect("no scan of fast", &["a is Due"]);
    assert!(not_ready(&world).contains("not been looked at"), "{}", not_ready(&world));
}

#[test]
fn a_faulty_class_is_switched_off_and_its_pvs_are_left_alone() {
    let off = || {
        with(world(), |world| {
            world.config.classes.clear();
            world.faulty.insert("fast".into(), "hostDir is relative".into());
        })
    };
    let a = pv("pv-a", "/mnt/fast/a", &fs(1));
    let told = "ClassInvalid of our Pod";
    off().expect("no PVs", &[told]);
    off().pv(a.clone()).expect("an Available one", &[told, "a is ClassGone"]);
    let due = [told, "ClassInvalid of pv-a", "a is ClassGone"];
    off().pv(released(a.clone())).expect("a due one", &due);
    let kept = [told, "VolumeFailedDelete of pv-a", "a is ClassGone"];
    off().pv(retained(released(a))).expect("a released one that is kept", &kept);
    assert!(not_ready(&off()).contains("hostDir is relative"), "{}", not_ready(&off()));
}

#[test]
fn pvs_of_a_class_that_left_the_configuration_are_reported() {
    let gone = || with(world(), |world| world.config.classes.clear());
    let a = pv("pv-a", "/mnt/fast/a", &fs(1));
    let told = ["VolumeFailedDelete of pv-a", "a is ClassGone"];
    gone().pv(a.clone()).expect("an Available one", &["a is ClassGone"]);
    gone().pv(released(a.clone())).expect("a due one", &told);
    gone().pv(retained(released(a.clone()))).expect("a released one that is kept", &told);
    assert_eq!(not_ready(&gone().pv(a.clone())), "", "nothing is missing");
    let classes = gone().pv(a).plan().classes;
    let reported: Vec<_> = classes.iter().map(|it| (it.name.as_str(), it.volumes.len())).collect();
    assert_eq!(reported, [("fast", 1)]);
}

#[test]
fn fault_14_readiness_is_about_eligible_volumes() {
    let a = || world().fast("a", &fs(1)).pv(pv("pv-a", "/mnt/fast/a", &fs(1)));
    for (reason, ready) in [
        // `lost+found` and plain directories.
        (SkipReason::NotMounted, true),
        (SkipReason::NotADirectoryOrBlockDevice, true),
        (SkipReason::ModeMismatch, true),
        (SkipReason::NameNotUtf8, true),
        (SkipReason::NamePatternMismatch, true),
        (SkipReason::NotEmpty, true),
        (SkipReason::NoCapacity, false),
        (SkipReason::Unreadable, false),
        (SkipReason::TimedOut, false),
    ] {
        let plan = a().entry("fast", "lost+found", reason).plan();
        assert_eq!(plan.not_ready.is_empty(), ready, "{reason:?}: {:?}", plan.not_ready);
    }
    let ready = |world: World| world.plan().not_ready.is_empty();
    assert!(ready(world()), "an empty directory");
    assert!(ready(a()), "all volumes have PVs");
    assert!(ready(a().fast("b", &fs(1))), "a duplicate is none to wait for");
    assert!(!ready(a().fast("b", &fs(2))), "one has no PV yet");
    let faulty = with(a(), |world| {
        world.snapshot.observed.get_mut("fast").unwrap().fault = Some("permission denied".into());
    });
    assert!(!ready(faulty), "the directory itself cannot be read");
}

#[test]
fn a_plan_does_not_wait_for_new_pvs_while_any_class_is_faulty() {
    let creating = || world().fast("a", &fs(1));
    assert!(creating().plan().is_creating);
    // Before and after the one with the volume.
    for name in ["a", "z"] {
        let mut world = creating().class(class(name));
        assert!(world.plan().is_creating, "{name}");
        world.snapshot.observed.get_mut(name).unwrap().fault = Some("permission denied".into());
        assert!(!world.plan().is_creating, "{name}");
    }
}

#[test]
fn pausing_the_node_shows_in_the_plan() {
    let paused = |world: &World| {
        let Plan { paused, .. } = world.plan();
        paused
    };
    assert!(!paused(&world()));
    assert!(paused(&world().config(|config| config.pause_cleaning = true)));
    assert!(paused(&world().node(|node: &mut NodeView| node.paused = true)));
}
