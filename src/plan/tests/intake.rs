//! Which disks a rule takes in: the blank and unused ones that it matches, and no other.

mod filesystems;
mod reasons;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::kit::*;
use crate::config::{Binding, Class, Devices};
use crate::host::mark::MarkOnDisk;
use crate::host::mounts::DeviceNumber;
use crate::inventory::{BlockDisk, Candidate, DiskContents, Finding, Skip};
use crate::plan::Action;
use crate::plan::tests::mark;
use crate::types::SkipReason;

const LINK: &str = "/dev/disk/by-id/nvme-Fast_1";

/// A blank disk that has been there for a while.
fn block_disk(at: u32) -> BlockDisk {
    let candidate = mark::marked(&disk(at), MarkOnDisk::Absent);
    let candidate = with(candidate, |it| it.capacity = 1000 * GIB);
    BlockDisk {
        links: vec![
            format!("/dev/disk/by-id/nvme-Fast_{at}"),
            format!("/dev/disk/by-id/nvme-eui.{at}"),
            format!("/dev/disk/by-path/pci-{at}"),
        ],
        name: format!("nvme{at}n1"),
        number: number(&format!("8:{}", 16 * at)),
        model: Some("Fast_SSD".into()),
        special: None,
        other_paths: Vec::new(),
        partitions: Vec::new(),
        candidate: Ok(candidate),
        contents: Ok(DiskContents::Blank),
        is_settled: true,
    }
}

fn with_candidate(change: impl FnOnce(&mut Candidate)) -> impl FnOnce(&mut BlockDisk) {
    |disk| change(disk.candidate.as_mut().unwrap())
}

/// A rule that takes fast disks of 500 GiB and more, without being asked.
fn rule() -> Devices {
    serde_json::from_value(json!({
        "match": ["/dev/disk/by-id/nvme-*"],
        "exclude": ["/dev/disk/by-id/nvme-Boot_*"],
        "minSize": "500Gi",
        "maxSize": "2Ti",
        "rotational": "no",
        "model": "Fast_*",
        "approve": "Auto",
    }))
    .unwrap()
}

fn of_rule(name: &str, rule: Devices) -> Class {
    with(class(name), |it| {
        it.binding = Binding::Disk;
        it.devices = Some(rule);
    })
}

/// A node with these disks.
fn found(world: World, class: &str, disks: Vec<BlockDisk>) -> World {
    with(world, |world| {
        let observation = world.snapshot.observed.get_mut(class).unwrap();
        observation.disks = Arc::new(disks);
    })
}

fn world_with(rule: Devices, disks: Vec<BlockDisk>) -> World {
    found(world().class(of_rule("fast", rule)), "fast", disks)
}

/// The links of the disks that are taken in.
fn taken(world: &World) -> Vec<String> {
    let actions = world.plan().actions.into_iter();
    let orders = actions.filter_map(|action| match action {
        Action::TakeIn(order) => Some(order.link),
        _ => None,
    });
    orders.collect()
}

/// Why the first disk of the class is left alone.
fn left_alone(world: &World) -> String {
    let classes = world.plan().classes;
    let class = classes.into_iter().find(|it| it.name == "fast").unwrap();
    let disk = class.disks.into_iter().find_map(|it| it.left_alone);
    disk.unwrap_or_default()
}

#[test]
fn blank_disk_is_taken_in_by_its_first_name() {
    let world = world_with(rule(), vec![block_disk(1)]);
    assert_eq!(taken(&world), [LINK]);
    assert_eq!(left_alone(&world), "");
}

#[test]
fn each_condition_of_a_rule_takes_the_disks_that_meet_it() {
    let rotating = with(
        block_disk(1),
        with_candidate(|it| {
            it.rotational.insert(number("8:16"));
        }),
    );
    let stick = with(block_disk(1), |it| it.special = Some("removable"));
    let part = with(block_disk(1), |it| it.special = Some("a partition"));
    for (rule, disk) in [
        (json!({ "match": ["/dev/disk/by-id/*"] }), block_disk(1)),
        (json!({ "match": ["/dev/disk/by-path/pci-*", LINK] }), block_disk(1)),
        (json!({ "match": [LINK], "minSize": "1000Gi", "maxSize": "1000Gi" }), block_disk(1)),
        (json!({ "match": [LINK], "rotational": "yes" }), rotating),
        (json!({ "match": [LINK], "model": "Slow,Fast_SSD" }), block_disk(1)),
        (json!({ "match": [LINK] }), stick),
        (json!({ "match": [LINK] }), part),
    ] {
        let rule = with(rule, |it| it["approve"] = json!("Auto"));
        let rule: Devices = serde_json::from_value(rule).unwrap();
        let world = world_with(rule.clone(), vec![disk]);
        assert_eq!(taken(&world).len(), 1, "{rule:?}: {}", left_alone(&world));
    }
}

#[test]
fn disk_that_a_volume_has_is_not_taken_in_again() {
    let volume = disk(1);
    let own = world_with(rule(), vec![block_disk(1)]).fast("nvme-Fast_1", &volume);
    assert!(!taken(&own).contains(&LINK.to_owned()));
    assert_eq!(own.plan().classes[0].disks, []);
    let other = found(
        world().class(of_rule("fast", rule())).class(class("other")),
        "fast",
        vec![block_disk(1)],
    );
    let other = other.entry("other", "d1", volume.clone());
    assert_eq!(taken(&other), [""; 0]);
    assert_eq!(left_alone(&other), "it is the volume /mnt/other/d1");
    let on_it = world_with(rule(), vec![block_disk(1)]).fast("p1", &partition(1));
    assert!(left_alone(&on_it).contains("shares storage with the volume /mnt/fast/p1"));
}

#[test]
fn disk_whose_entry_is_something_else_is_left_alone() {
    let world = world_with(rule(), vec![block_disk(1)]).entry(
        "fast",
        "nvme-Fast_1",
        Finding::Skipped(Skip::new(SkipReason::NotMounted, "nothing is mounted")),
    );
    assert_eq!(taken(&world), [""; 0]);
    assert!(left_alone(&world).contains("nothing is mounted"));
    let other = world_with(rule(), vec![block_disk(1)]).fast("nvme-Fast_1", &disk(7));
    assert_eq!(
        left_alone(&other),
        "the entry /mnt/fast/nvme-Fast_1 is there and not a volume: it is another disk"
    );
}

#[test]
fn nothing_is_taken_in_while_a_directory_is_unread_or_the_disk_is_being_taken_in() {
    let unread = world_with(rule(), vec![block_disk(1)]).incomplete("fast");
    assert_eq!(taken(&unread), [""; 0]);
    let other = world_with(rule(), vec![block_disk(1)]).class(class("other"));
    let other = with(other, |world| drop(world.snapshot.observed.remove("other")));
    assert_eq!(taken(&other), [""; 0]);
    let busy = with(world_with(rule(), vec![block_disk(1)]), |world| {
        world.snapshot.ledger.writing.insert(LINK.to_owned());
    });
    assert_eq!(taken(&busy), [""; 0]);
    let made = world_with(rule(), vec![block_disk(1)]).creating("/mnt/fast/nvme-Fast_1", &disk(1));
    assert_eq!(taken(&made), [""; 0]);
}

#[test]
fn disk_of_two_rules_or_paths_is_taken_in_by_neither() {
    let both = found(
        world_with(rule(), vec![block_disk(1)]).class(of_rule("other", rule())),
        "other",
        vec![block_disk(1)],
    );
    assert_eq!(taken(&both), [""; 0]);
    assert!(left_alone(&both).contains("the rule of class other"));

    let second = with(block_disk(1), |it| {
        it.name = "nvme9n1".into();
        it.number = DeviceNumber { major: 65, minor: 144 };
        it.links = vec!["/dev/disk/by-id/nvme-Fast_9".into()];
        it.candidate = Ok(other_path_to(it.candidate.as_ref().unwrap(), 9));
    });
    let world = world_with(rule(), vec![block_disk(1), second]);
    assert_eq!(taken(&world), [""; 0]);
    assert!(left_alone(&world).contains("another path"));
}

#[test]
fn nothing_is_taken_in_until_the_list_is_approved() {
    let asking = with(rule(), |it| it.approve = crate::config::Approve::Plan);
    let world = world_with(asking, vec![block_disk(1)]);
    let hash = |world: &World| world.plan().classes.remove(0).to_approve;
    assert_eq!(taken(&world), [""; 0]);
    let first = hash(&world).unwrap();
    assert_eq!(world.plan().classes[0].disks_to_approve(), Some(1));
    let plan = world.plan();
    let mut notices = plan.notices.iter().map(|it| &it.message);
    assert!(notices.any(|it| it.contains(&first)), "{:?}", plan.notices);
    let approved = world.clone().node(|node| {
        node.approvals.insert("fast".into(), first.clone());
    });
    assert_eq!(taken(&approved), [LINK]);
    assert_eq!(hash(&approved), None);
    assert_eq!(approved.plan().classes[0].disks_to_approve(), None);
    // The approval is for both disks, also after one of them was taken in.
    let two = found(approved.clone(), "fast", vec![block_disk(1), block_disk(2)]);
    let both = hash(&two).unwrap();
    let half_done = two.fast("nvme-Fast_1", block_disk(1).candidate.as_ref().unwrap());
    let half_done = half_done.node(|node| {
        node.approvals.insert("fast".into(), both);
    });
    assert_eq!(taken(&half_done), ["/dev/disk/by-id/nvme-Fast_2"]);
    // Another list is another plan.
    for disks in [
        vec![block_disk(1), block_disk(2)],
        vec![with(block_disk(1), with_candidate(|it| it.capacity += GIB))],
        vec![block_disk(2)],
    ] {
        let changed = found(approved.clone(), "fast", disks);
        assert_eq!(taken(&changed), [""; 0]);
        assert!(hash(&changed).is_some_and(|it| it != first));
    }
}

#[test]
fn disk_whose_entry_namepattern_does_not_match_is_left_alone() {
    let named = with(of_rule("fast", rule()), |it| {
        it.name_pattern = "pci-*".parse().unwrap();
    });
    let world = found(world().class(named), "fast", vec![block_disk(1)]);
    assert_eq!(taken(&world), [""; 0]);
    assert!(left_alone(&world).contains("namePattern does not match its entry nvme-Fast_1"));
}

#[test]
fn disk_gets_the_mark_of_a_free_volume_before_its_entry() {
    let taken_in = world_with(rule(), vec![block_disk(1)]).plan().actions;
    let Some(Action::TakeIn(order)) = taken_in.into_iter().next() else {
        panic!("nothing is taken in");
    };
    let marked = mark::marked(&order.volume.candidate, MarkOnDisk::Valid(order.mark.clone()));
    assert!(marked.mark.is_free());
    let removed = with(block_disk(1), |it| it.candidate = Ok(marked));
    let world = world_with(rule(), vec![removed]);
    assert!(left_alone(&world).contains("ln -s"));
}

#[test]
fn no_more_disks_are_taken_in_than_a_node_can_have_labels_for() {
    let world = world_with(rule(), (1..=40).map(block_disk).collect());
    assert_eq!(taken(&world).len(), 32);
    let reports = world.plan().classes.remove(0).disks.into_iter();
    let why: BTreeSet<_> = reports.filter_map(|it| it.left_alone).collect();
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why.first().unwrap().contains("which is the limit"));
}

#[test]
fn nothing_is_taken_in_while_the_class_can_offer_nothing_or_another_one_is_faulty() {
    let missing = world_with(rule(), vec![block_disk(1)]).storage_class("fast", None);
    assert_eq!(taken(&missing), [""; 0]);
    assert!(left_alone(&missing).contains("StorageClass"));
    let faulty = with(world_with(rule(), vec![block_disk(1)]), |world| {
        world.faulty.insert("slow".into(), "a faulty rule".into());
    });
    assert_eq!(taken(&faulty), [""; 0]);
}

#[test]
fn disk_that_could_not_be_taken_in_shows_the_cause_and_is_tried_again() {
    let why = "class \"fast\" cannot take in it: it is broken";
    let world = with(world_with(rule(), vec![block_disk(1)]), |world| {
        let untaken = &mut world.snapshot.ledger.untaken;
        untaken.insert(path("/mnt/fast/nvme-Fast_1"), why.into());
    });
    assert_eq!(left_alone(&world), why);
    assert_eq!(taken(&world), [LINK]);
    let unapproved = with(rule(), |it| it.approve = crate::config::Approve::Plan);
    let mut waiting = world_with(unapproved, vec![block_disk(1)]);
    waiting.snapshot.ledger.untaken = world.snapshot.ledger.untaken.clone();
    assert_eq!(waiting.plan().classes[0].disks_to_approve(), Some(1));
    let plan = world.plan();
    let mut notices = plan.notices.iter().map(|it| (it.reason, &*it.message));
    assert!(notices.any(|it| it == ("DeviceFailed", why)), "{:?}", plan.notices);
}

#[test]
fn two_disks_of_one_name_are_one_volume() {
    let twin = with(block_disk(2), |it| {
        it.links = vec!["/dev/disk/by-path/nvme-Fast_1".into()];
    });
    let both = with(rule(), |it| {
        it.links.push("/dev/disk/by-path/nvme-*".parse().unwrap());
    });
    let world = world_with(both, vec![block_disk(1), twin]);
    assert_eq!(taken(&world), [LINK]);
    assert!(left_alone(&world).contains("has the same name"));
}
