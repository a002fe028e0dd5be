//! One device, one PV: volumes that are not offered because another volume has their storage.

use super::kit::*;
use crate::inventory::Candidate;
use crate::plan::CleanupState;
use crate::view::{Affinity, PathOwner, PvView};

/// Candidates that share storage, and what the second is skipped as.
fn pairs() -> Vec<(&'static str, Candidate, Candidate, &'static str)> {
    [peers(), layers()].concat()
}

/// Those of which neither lies on the other.
fn peers() -> Vec<(&'static str, Candidate, Candidate, &'static str)> {
    let same = "DuplicateDevice";
    vec![
        ("fault 6: two links to one disk", disk(1), disk(1), same),
        ("one disk by two controllers", disk(1), other_path_to(&disk(1), 7), same),
        ("one filesystem mounted twice", fs(1), fs(1), same),
        ("one tmpfs mounted twice", tmpfs(9, "/mnt/fast/a"), tmpfs(9, "/mnt/fast/b"), same),
        ("a filesystem and a directory in it", fs(1), directory(1, "/x"), "NestedVolume"),
        ("directories in one another", directory(1, "/x/y"), directory(1, "/x"), "NestedVolume"),
    ]
}

/// Those of which the first lies on the second.
fn layers() -> Vec<(&'static str, Candidate, Candidate, &'static str)> {
    let same = "DuplicateDevice";
    vec![
        ("a partition and its disk", partition(1), disk(1), same),
        ("a filesystem and its partition", fs(1), partition(1), same),
        ("a filesystem on a partition, and the disk", fs(1), disk(1), same),
        ("a directory of such a filesystem, and the disk", directory(1, "/x"), disk(1), same),
    ]
}

#[test]
fn of_two_new_volumes_the_one_that_lies_on_the_other_is_offered_by_whatever_names() {
    for (situation, upper, lower, reason) in layers() {
        for [first, second] in [["a", "b"], ["b", "a"]] {
            let created = format!("create /mnt/fast/{first}");
            let (making, skipped) =
                (format!("{first} is Creating"), format!("{second} is Skipped as {reason}"));
            let world = world().fast(first, &upper).fast(second, &lower);
            world.expect(situation, &[&created, &making, &skipped]);
            let told = format!("{:?}", world.plan().classes);
            let paths = ["/mnt/fast/a", "/mnt/fast/b"].map(|path| told.contains(path));
            assert_eq!(paths, [true, true], "{told}");
        }
        // Across classes too: `big` comes before `fast`.
        world().class(class("big")).entry("big", "disk", lower).fast("part", &upper).expect(
            situation,
            &["create /mnt/fast/part", "part is Creating", "disk is Skipped as DuplicateDevice"],
        );
    }
}

#[test]
fn a_disk_gives_way_also_to_a_partition_that_is_not_offered() {
    let busy = with(partition(1), |part| part.in_use = Some("mounted".into()));
    world().fast("a", &disk(1)).fast("b", &busy).expect(
        "the partition is in use",
        &["a is Skipped as DuplicateDevice", "b is Skipped as DeviceInUse"],
    );
}

#[test]
fn the_disk_goes_first_once_it_has_a_pv() {
    world()
        .fast("a", &disk(1))
        .fast("b", &partition(1))
        .pv(pv("pv-a", "/mnt/fast/a", &disk(1)))
        .expect(
            "the whole disk is offered already",
            &["a is Available", "b is Skipped as DuplicateDevice"],
        );
}

#[test]
fn of_two_new_volumes_on_the_same_storage_the_first_is_offered() {
    for (situation, a, b, reason) in peers() {
        let skipped = format!("b is Skipped as {reason}");
        let expected = ["create /mnt/fast/a", "a is Creating", &skipped];
        world().fast("a", &a).fast("b", &b).expect(situation, &expected);
    }
}

#[test]
fn a_volume_on_the_storage_of_a_pv_is_not_offered() {
    for (situation, a, b, reason) in pairs() {
        // The candidate comes first in the directory: the PV counts all the same.
        let a_pv = without_identity(pv("pv-z", "/mnt/fast/z", &a));
        let by_hand = with(a_pv.clone(), |pv| {
            (pv.provisioned_by, pv.class) = (None, "x".into());
        });
        let skipped = format!("b is Skipped as {reason}");
        let world = world().fast("b", &b).fast("z", &a);
        let recorded = with(a_pv, |pv| pv.identity = Some(a.identity.text.clone()));
        world.clone().pv(recorded).expect(situation, &[&skipped, "z is Available"]);
        world.pv(by_hand).expect(situation, &[&skipped, "z is Skipped as PathClaimedByOtherPV"]);
    }
}

#[test]
fn neighbours_are_offered() {
    for (situation, a, b) in [
        ("two disks", disk(1), disk(2)),
        ("two disks without a name", nameless(1, "now"), nameless(2, "now")),
        ("two filesystems", fs(1), fs(2)),
        ("two directories of one filesystem", directory(1, "/x"), directory(1, "/xy")),
        ("two tmpfs", tmpfs(1, "/mnt/fast/a"), tmpfs(2, "/mnt/fast/b")),
        ("a disk and a filesystem on another", disk(2), fs(1)),
    ] {
        let mut expected =
            vec!["create /mnt/fast/a", "create /mnt/fast/b", "a is Creating", "b is Creating"];
        if situation == "two directories of one filesystem" {
            expected.push("CapacityShared of our Pod");
        }
        world().fast("a", &a).fast("b", &b).expect(situation, &expected);
    }
}

#[test]
fn storage_that_is_being_cleaned_is_not_offered_under_another_name() {
    for (situation, a, b, reason) in pairs() {
        let gone = pv("pv-a", "/mnt/fast/a", &a);
        let skipped = format!("b is Skipped as {reason}");
        world()
            .fast("a", &a)
            .fast("b", &b)
            .cleanup(&gone, CleanupState::Wiping)
            .expect(situation, &["a is Skipped as CleanupRunning", &skipped]);
    }
}

#[test]
fn a_device_in_use_is_not_offered() {
    let used = with(disk(1), |disk| {
        disk.in_use = Some("mounted on /home".into());
    });
    world().fast("a", &used).expect("mounted elsewhere", &["a is Skipped as DeviceInUse"]);
    let pv = pv("pv-a", "/mnt/fast/a", &used);
    world().fast("a", &used).pv(pv).expect("by its pod", &["a is Available"]);
}

#[test]
fn a_disk_under_another_name_waits_for_its_pv() {
    let world = world().fast("b", &fs(1)).pv(pv("pv-a", "/mnt/fast/a", &fs(1)));
    world.expect(
        "a disk remounted under another name",
        &["VolumeMissing of pv-a", "a is Missing", "b is Skipped as IdentityOnOtherPV"],
    );
}

#[test]
fn a_weak_identity_is_not_compared_between_pvs() {
    let (here, there) = (
        nameless(1, "now"),
        with(nameless(2, "now"), |disk| {
            disk.identity = nameless(1, "now").identity;
        }),
    );
    let world = world().fast("a", &here).fast("b", &there).pv(pv("pv-a", "/mnt/fast/a", &here));
    world.expect("two of one size", &["create /mnt/fast/b", "a is Available", "b is Creating"]);
}

#[test]
fn paths_of_pvs_within_one_another_are_refused() {
    let by_hand = |at| {
        with(pv("pv-x", at, &fs(9)), |pv: &mut PvView| {
            pv.provisioned_by = None;
        })
    };
    for (situation, at, expected) in [
        ("a PV below it", "/mnt/fast/a/below", &["a is Skipped as NestedVolume"][..]),
        ("a PV above it", "/mnt/fast", &["a is Skipped as NestedVolume"]),
        ("a PV for everything", "/", &["a is Skipped as NestedVolume"]),
        ("a name that begins the same", "/mnt/fast/a-b", &["create /mnt/fast/a", "a is Creating"]),
        ("a sibling directory", "/mnt/fast-ssd", &["create /mnt/fast/a", "a is Creating"]),
    ] {
        world().fast("a", &fs(1)).pv(by_hand(at)).expect(situation, expected);
    }
}

#[test]
fn new_volumes_within_one_another_are_not_both_offered() {
    let inner = with(class("inner"), |class| class.host_dir = path("/mnt/fast/a"));
    world().class(inner).fast("a", &fs(1)).entry("inner", "x", fs(2)).expect(
        "a class's directory is a volume of another class",
        &["create /mnt/fast/a", "a is Creating", "x is Skipped as NestedVolume"],
    );
}

#[test]
fn two_classes_on_one_directory_offer_an_entry_once() {
    let slow = with(class("slow"), |class| class.host_dir = path("/mnt/fast"));
    let both = world().class(slow).fast("a", &fs(1)).entry("slow", "a", fs(1));
    both.expect(
        "the first class by name offers it",
        &["create /mnt/fast/a", "a is Creating", "a is Skipped as DuplicateDevice"],
    );
    let of_slow = with(pv("pv-a", "/mnt/fast/a", &fs(1)), |pv| {
        pv.class = "slow".into();
    });
    both.pv(of_slow).expect(
        "unless the other has a PV for it already",
        &["a is Available", "a is Skipped as PathClaimedByOtherPV"],
    );
}

#[test]
fn a_volume_that_is_not_seen_has_its_storage_all_the_same() {
    // As after a reload that took its class away, and as when its link is gone.
    let gone = with(pv("pv-part", "/mnt/gone/part", &partition(1)), |pv| {
        pv.class = "gone".into();
    });
    for (situation, unseen) in [
        ("its class is gone", gone),
        ("its link is gone", pv("pv-part", "/mnt/fast/part", &partition(1))),
    ] {
        let told = format!("{:?}", world().fast("disk", &disk(1)).pv(unseen.clone()).plan());
        assert!(told.contains("DuplicateDevice"), "{situation}: {told}");
        assert!(!told.contains("Create("), "{situation}: {told}");
        let other = format!("{:?}", world().fast("disk", &disk(2)).pv(unseen).plan());
        assert!(other.contains("Create("), "{situation}, another disk: {other}");
    }
}

#[test]
fn nothing_is_cleaned_that_may_lie_below_a_volume_that_is_not_seen() {
    let released = released(pv("pv-disk", "/mnt/fast/disk", &disk(1)));
    let unseen = pv("pv-part", "/mnt/gone/part", &partition(1));
    let world = world().fast("disk", &disk(1)).pv(released);
    let alone = format!("{:?}", world.clone().plan().actions);
    assert!(alone.contains("Clean("), "{alone}");
    let beside = format!("{:?}", world.pv(unseen).plan());
    assert!(!beside.contains("Clean("), "{beside}");
    assert!(beside.contains("VolumeDuplicate"), "{beside}");
}

/// The PVs whose paths have to be resolved before a volume is offered or wiped.
#[test]
fn pv_whose_path_is_no_seen_volume_may_own_any_volume() {
    let at = |path: &str| with(pv("pv-b", path, &fs(2)), |pv| pv.provisioned_by = None);
    let of_zone = |pv| {
        with(pv, |pv: &mut PvView| {
            (pv.hostnames, pv.affinity) = (Vec::new(), Some(Affinity::AnyNode));
        })
    };
    let excluded = with(of_zone(at("/srv/b")), |pv| {
        pv.affinity = Some(Affinity::Terms(vec![]));
    });
    let host_path = with(of_zone(at("/srv/b")), |pv| {
        (pv.local_path, pv.other_path) = (Err("not local".into()), Some("/srv/b".into()));
    });
    let by_another = with(of_zone(at("/srv/b")), |pv| {
        pv.provisioned_by = Some("local-volume-provisioner-node-2-uid".into());
    });
    let csi = with(host_path.clone(), |pv| pv.other_path = None);
    for (situation, pv, owners) in [
        ("a seen volume", at("/mnt/fast/a"), &[][..]),
        ("another path", at("/srv/b"), &[("/srv/b", true)]),
        ("any node", of_zone(at("/srv/b")), &[("/srv/b", true)]),
        ("a hostPath PV", host_path, &[("/srv/b", false)]),
        ("excluded by its affinity", excluded, &[]),
        ("another node's", by_another, &[]),
        ("another source", csi, &[]),
    ] {
        let plan = world().fast("a", &fs(1)).pv(pv).plan();
        let owners_of = |it: &PathOwner| (it.path.clone(), it.owns_below);
        let found: Vec<_> = plan.occupied.owners.iter().map(owners_of).collect();
        let owners = owners.iter().map(|(path, below)| ((*path).to_owned(), *below));
        assert_eq!(found, owners.collect::<Vec<_>>(), "{situation}");
    }
    let skipped = ["a is Skipped as PathClaimedByOtherPV"];
    let beside = of_zone(at("/mnt/fast/a"));
    world().fast("a", &fs(1)).pv(beside).expect("any node, this path", &skipped);
}
