//! What is due and not cleaned all the same, and why.

use super::kit::*;
use crate::config::Class;
use crate::inventory::Finding;
use crate::types::{HostPath, SkipReason, VolumeMode};
use crate::view::PvView;

fn due() -> PvView {
    released(pv("pv-a", "/mnt/fast/a", &fs(1)))
}

#[test]
fn a_released_volume_is_cleaned() {
    world().fast("a", &fs(1)).pv(due()).expect("all is well", &["clean pv-a", "a is Due"]);
}

#[test]
fn fault_1_what_is_not_there_does_not_count_as_cleaned() {
    for (situation, found, expected) in [
        (
            "not mounted",
            Some(Finding::from(SkipReason::NotMounted)),
            ["VolumeNotMounted of pv-a", "a is NotMounted as NotMounted"],
        ),
        ("gone", None, ["VolumeFailedDelete of pv-a", "a is Missing"]),
        (
            "a regular file",
            Some(SkipReason::NotADirectoryOrBlockDevice.into()),
            ["VolumeFailedDelete of pv-a", "a is Unhealthy as NotADirectoryOrBlockDevice"],
        ),
        (
            "it does not answer",
            Some(SkipReason::TimedOut.into()),
            ["VolumeFailedDelete of pv-a", "a is Unhealthy as TimedOut"],
        ),
        (
            "read-only",
            Some(with(fs(1), |fs| fs.read_only = true).into()),
            ["VolumeReadOnly of pv-a", "a is Refused"],
        ),
    ] {
        let world = match found {
            Some(found) => world().entry("fast", "a", found),
            None => world(),
        };
        world.pv(due()).expect(situation, &expected);
    }
}

#[test]
fn fault_4_a_path_must_be_an_entry_of_its_class_s_directory() {
    // The last component of a usable path, by which a PV without an entry is listed.
    for (text, name) in [
        ("/mnt/fast", "fast"),
        ("/mnt/fast/", "fast"),
        ("/mnt/fast/.", ""),
        ("/mnt/fast/./a", ""),
        ("/mnt/fast/../fast/a", ""),
        ("/mnt/fast-ssd/a", "a"),
        ("/mnt/fast/a/b", "b"),
        ("/mnt", "mnt"),
        ("/", ""),
        ("mnt/fast/a", ""),
    ] {
        let local_path = HostPath::from_api(text).map_err(str::to_owned);
        let pv = with(due(), |pv| pv.local_path = local_path);
        let ssd = with(class("ssd"), |class| class.host_dir = path("/mnt/fast-ssd"));
        let world = world().class(ssd).pv(pv);
        let state = format!("{name} is Refused");
        world.expect(text, &["VolumeFailedDelete of pv-a", &state]);
    }
}

#[test]
fn fault_4_an_annotation_alone_justifies_nothing() {
    let elsewhere = with(due(), |pv| pv.hostnames = vec!["host-2".into()]);
    let nowhere = with(due(), |pv| pv.hostnames.clear());
    for (situation, pv) in [("affinity to another node", elsewhere), ("no affinity", nowhere)] {
        let plan = world().fast("a", &fs(1)).pv(pv).plan();
        let told = words(&plan);
        assert!(told.contains(&"VolumeFailedDelete of pv-a".to_owned()), "{situation}: {told:?}");
        assert!(!told.contains(&"clean pv-a".to_owned()), "{situation}: {told:?}");
    }
    let foreign = with(due(), |pv| pv.provisioned_by = Some(FOREIGN.into()));
    let skipped = ["a is Skipped as PathClaimedByOtherPV"];
    world().fast("a", &fs(1)).pv(foreign).expect("another provisioner's", &skipped);
}

#[test]
fn fault_17_a_pv_that_is_no_local_volume_is_told_of_and_left_alone() {
    let host_path = with(due(), |pv| pv.local_path = Err("no spec.local".into()));
    let told = ["VolumeFailedDelete of pv-a", " is Refused"];
    world().pv(host_path).expect("hostPath", &told);
}

#[test]
fn class_mode_and_path_have_to_fit() {
    let block = |class: &mut Class| class.volume_mode = VolumeMode::Block;
    let raw = |pv| with(pv, |pv: &mut PvView| pv.mode = VolumeMode::Block);
    let of = |candidate| released(pv("pv-a", "/mnt/fast/a", candidate));
    let refused = &["VolumeFailedDelete of pv-a", "a is Refused"][..];
    let clean = &["clean pv-a", "a is Due"][..];
    let plain = || world().fast("a", &disk(1));
    let blocks = || plain().change_class("fast", block);
    for (situation, world, pv, expected) in [
        ("a raw device", blocks(), raw(of(&disk(1))), clean),
        ("a device that the kubelet formats", plain(), of(&disk(1)), clean),
        ("the class became Block", blocks(), of(&disk(1)), refused),
        ("the class became Filesystem", plain(), raw(of(&disk(1))), refused),
        (
            "a raw device's path is a directory now",
            world().change_class("fast", block).fast("a", &fs(1)),
            raw(of(&fs(1))),
            refused,
        ),
    ] {
        world.pv(pv).expect(situation, expected);
    }
}

#[test]
fn of_two_pvs_for_one_path_neither_is_cleaned() {
    let by_hand = with(pv("pv-b", "/mnt/fast/a", &fs(1)), |pv| {
        pv.provisioned_by = None;
    });
    let second = released(pv("pv-b", "/mnt/fast/a", &fs(1)));
    let one = world().fast("a", &fs(1)).pv(due());
    one.clone().pv(by_hand).expect("made by hand", &["VolumeDuplicate of pv-a", "a is Refused"]);
    let both =
        ["VolumeDuplicate of pv-a", "VolumeDuplicate of pv-b", "a is Refused", "a is Refused"];
    one.clone().pv(second).expect("both due", &both);
    let elsewhere = with(pv("pv-b", "/mnt/fast/a", &fs(1)), |pv| {
        (pv.hostnames, pv.provisioned_by) = (vec!["host-2".into()], None);
    });
    one.pv(elsewhere).expect("another node's", &["clean pv-a", "a is Due"]);
}

#[test]
fn a_volume_with_a_pv_s_path_inside_it_is_not_cleaned() {
    for at in ["/mnt/fast/a/below", "/mnt/fast", "/"] {
        let by_hand = with(pv("pv-b", at, &fs(9)), |pv| pv.provisioned_by = None);
        let told = ["VolumeDuplicate of pv-a", "a is Refused"];
        world().fast("a", &fs(1)).pv(due()).pv(by_hand).expect(at, &told);
    }
    let beside = with(pv("pv-b", "/mnt/fast/a-b", &fs(9)), |pv| {
        pv.provisioned_by = None;
    });
    world().fast("a", &fs(1)).pv(due()).pv(beside).expect("beside", &["clean pv-a", "a is Due"]);
}

#[test]
fn storage_that_another_pv_is_on_is_not_cleaned() {
    for (situation, a, b) in [
        ("two links to one disk", disk(1), disk(1)),
        ("a disk and its partition", disk(1), partition(1)),
        ("a partition and its disk", partition(1), disk(1)),
        ("one disk by two controllers", disk(1), other_path_to(&disk(1), 7)),
        ("a filesystem and its device", partition(1), fs(1)),
        ("a filesystem and a directory in it", fs(1), directory(1, "/x")),
        ("a directory in a filesystem", directory(1, "/x"), fs(1)),
    ] {
        let due = released(pv("pv-a", "/mnt/fast/a", &a));
        let other = without_identity(bound(pv("pv-b", "/mnt/fast/b", &b)));
        let by_hand = with(other, |pv| pv.provisioned_by = None);
        let told =
            ["VolumeDuplicate of pv-a", "a is Refused", "b is Skipped as PathClaimedByOtherPV"];
        world().fast("a", &a).fast("b", &b).pv(due.clone()).pv(by_hand).expect(situation, &told);
        let plan = world().fast("a", &a).fast("b", &b).pv(due).plan();
        let clean = words(&plan).contains(&"clean pv-a".to_owned());
        assert!(clean, "{situation}: a second name without a PV does not matter");
    }
}
