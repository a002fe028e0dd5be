//! Disks on which a rule makes filesystems.

use super::*;
use crate::host::identity::Identity;
use crate::host::mark::MarkState::{self, Free, Offered, Pending, Used, Wiping};
use crate::plan::CleanupState;
use crate::plan::Intake::{self, Make, Mount, Remake};
use crate::wipe::method::Method;

const ENTRY: &str = "nvme-Fast_1";

/// A rule that makes filesystems, without being asked.
fn makes() -> Devices {
    with(rule(), |it| it.filesystem = Some(crate::types::FsType::Xfs))
}

fn data() -> DiskContents {
    DiskContents::Signature("the signature of xfs at byte 0".into())
}

fn found_with(mark: Option<MarkState>, contents: DiskContents) -> BlockDisk {
    let on_disk = mark.map_or(MarkOnDisk::Absent, |it| MarkOnDisk::Valid(mark::mark(it)));
    with(block_disk(1), |disk| {
        let candidate = disk.candidate.as_ref().unwrap();
        disk.candidate = Ok(mark::marked(candidate, on_disk));
        disk.contents = Ok(contents);
    })
}

fn with_dir(world: World) -> World {
    let skip = Skip::new(SkipReason::NotMounted, "nothing is mounted");
    world.entry("fast", ENTRY, Finding::Skipped(skip.gone()))
}

/// How the disk is taken in, or why not.
fn answer(world: &World) -> Result<Intake, String> {
    let actions = world.plan().actions.into_iter();
    let mut orders = actions.filter_map(|action| match action {
        Action::TakeIn(order) => Some(order.how),
        _ => None,
    });
    orders.next().ok_or_else(|| left_alone(world))
}

#[test]
fn mark_contents_and_directory_tell_what_comes_next() {
    use DiskContents::{Blank, Data, Made};
    const MKDIR: &str = "make its directory: mkdir /mnt/fast/nvme-Fast_1";
    const UNFINISHED: &str = "making its filesystem was interrupted";
    for (mark, contents, without_dir, with_a_dir) in [
        (None, Blank, Ok(Make), Err("is there and not a volume")),
        (None, Made, Err(MKDIR), Ok(Mount)),
        (None, Data, Err("not zero"), Err("not zero")),
        (None, data(), Err("xfs at byte 0"), Err("xfs at byte 0")),
        (Some(Pending), Blank, Ok(Make), Ok(Make)),
        (Some(Pending), Made, Ok(Mount), Ok(Mount)),
        (Some(Pending), Data, Err(UNFINISHED), Err(UNFINISHED)),
        (Some(Pending), data(), Err(UNFINISHED), Err(UNFINISHED)),
        (Some(Wiping), Blank, Ok(Make), Ok(Make)),
        (Some(Wiping), Made, Ok(Mount), Ok(Mount)),
        (Some(Wiping), Data, Err(UNFINISHED), Err(UNFINISHED)),
        (Some(Free), Blank, Err(MKDIR), Ok(Make)),
        (Some(Free), Made, Err(MKDIR), Ok(Mount)),
        (Some(Free), data(), Err("it has a mark"), Err("it has a mark")),
        (Some(Used), Blank, Err("it has a mark"), Err("it has a mark")),
        (Some(Offered), Data, Err("it has a mark"), Err("it has a mark")),
    ] {
        let world = world_with(makes(), vec![found_with(mark, contents.clone())]);
        for (world, expected) in [(world.clone(), without_dir), (with_dir(world), with_a_dir)] {
            match (answer(&world), expected) {
                (Ok(how), Ok(expected)) => assert_eq!(how, expected, "{mark:?} {contents:?}"),
                (Err(why), Err(expected)) => {
                    assert!(why.contains(expected), "{mark:?} {contents:?}: {why}");
                }
                (found, expected) => panic!("{mark:?} {contents:?}: {found:?}, not {expected:?}"),
            }
        }
    }
}

#[test]
fn data_is_lost_only_while_the_mark_and_the_pv_say_so() {
    let volume = fs(1);
    let pv = pv("pv-1", "/mnt/fast/nvme-Fast_1", &volume);
    for contents in [DiskContents::Data, data()] {
        for (mark, pv, expected) in [
            (Wiping, terminating(released(pv.clone())), true),
            (Wiping, released(pv.clone()), false),
            (Wiping, bound(pv.clone()), false),
            (Pending, terminating(released(pv.clone())), false),
            (Free, terminating(released(pv.clone())), false),
            (Used, terminating(released(pv.clone())), false),
        ] {
            let disk = found_with(Some(mark), contents.clone());
            let world = with_dir(world_with(makes(), vec![disk])).pv(pv);
            let is_lost = answer(&world) == Ok(Remake);
            assert_eq!(is_lost, expected, "{mark:?} {contents:?}");
        }
    }
}

#[test]
fn filesystem_is_mounted_once_in_each_boot() {
    for (boot, expected) in [("boot", false), ("earlier", true)] {
        let disk = with(found_with(Some(Free), DiskContents::Made), |disk| {
            let mark = &mut disk.candidate.as_mut().unwrap().mark.on_disk;
            let MarkOnDisk::Valid(mark) = mark else {
                panic!("no mark");
            };
            mark.boot_time = Some(crate::host::boot::BootTime { boot_id: boot.into(), seconds: 0 });
        });
        let world = with_dir(world_with(makes(), vec![disk]));
        let answer = answer(&world);
        assert_eq!(answer == Ok(Mount), expected, "{answer:?}");
    }
}

#[test]
fn disk_in_use_or_with_another_path_is_not_mounted() {
    type Change = fn(&mut BlockDisk);
    let changes: [(Change, &str); 4] = [
        (|it| it.other_paths = vec!["sdq".into()], "sdq is another path"),
        (
            |it| it.candidate.as_mut().unwrap().in_use = Some("mounted at /x".into()),
            "mounted at /x",
        ),
        (|it| it.candidate.as_mut().unwrap().read_only = true, "read-only"),
        (|it| it.contents = Ok(DiskContents::NotRead), "being read"),
    ];
    for (change, expected) in changes {
        let disk = with(found_with(Some(Free), DiskContents::Made), change);
        let why = answer(&with_dir(world_with(makes(), vec![disk]))).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn filesystem_is_mounted_without_an_approval_and_whatever_the_rule_says_now() {
    let disk =
        with(found_with(Some(Free), DiskContents::Made), with_candidate(|it| it.capacity = GIB));
    let asking = with(makes(), |it| it.approve = crate::config::Approve::Plan);
    let world = with_dir(world_with(asking.clone(), vec![disk.clone()]));
    assert_eq!(answer(&world), Ok(Mount));
    assert_eq!(world.plan().classes[0].to_approve, None);
    let without = world.storage_class("fast", None);
    assert_eq!(answer(&without), Ok(Mount));
    // Beside one that is new.
    let world = with_dir(world_with(asking, vec![disk, block_disk(2)]));
    assert_eq!(taken(&world), [LINK]);
    assert!(world.plan().classes[0].to_approve.is_some());
}

#[test]
fn disk_whose_volume_is_being_cleaned_is_left_alone() {
    let pv = terminating(released(pv("pv-1", "/mnt/fast/nvme-Fast_1", &fs(1))));
    let disk = found_with(Some(Wiping), DiskContents::Made);
    let world = with_dir(world_with(makes(), vec![disk])).pv(pv.clone());
    let world = world.cleanup(&pv, CleanupState::Wiping);
    let world = world.change_cleanup(&pv, |it| it.running = true);
    assert_eq!(answer(&world), Err("its volume is being cleaned".into()));
}

#[test]
fn only_filesystems_that_were_made_here_are_made_again() {
    let method = |fs_type: &str, root: &str, rule: Option<Devices>| {
        let volume = with(fs(1), |it| {
            it.identity = Identity {
                text: format!("v1:fs={fs_type},on=wwid%3Deui.1,root={root},uuid=u"),
                weak: false,
            };
        });
        let due = released(pv("pv-1", "/mnt/fast/a", &volume));
        let class = with(class("fast"), |it| it.devices = rule);
        let world = world().class(class).fast("a", &volume).pv(due);
        let actions = world.plan().actions.into_iter();
        let mut orders = actions.filter_map(|action| match action {
            Action::Clean(order) => Some(order.method),
            _ => None,
        });
        orders.next().unwrap()
    };
    assert_eq!(method("made", "/", Some(makes())), Method::Reformat);
    assert_eq!(method("made", "/", Some(rule())), Method::DeleteContents);
    assert_eq!(method("made", "/", None), Method::DeleteContents);
    assert_eq!(method("made", "/a", Some(makes())), Method::DeleteContents);
    assert_eq!(method("xfs", "/", Some(makes())), Method::DeleteContents);
}

#[test]
fn mark_of_another_class_or_an_excluded_disk_is_not_resumed() {
    let of_class = |state, class: &str| {
        let mark = with(mark::mark(state), |it| it.class = class.into());
        with(found_with(None, DiskContents::Blank), |disk| {
            let candidate = disk.candidate.as_ref().unwrap();
            disk.candidate = Ok(mark::marked(candidate, MarkOnDisk::Valid(mark)));
        })
    };
    for state in [Pending, Wiping, Free] {
        let world = |disk| with_dir(world_with(makes(), vec![disk]));
        assert_eq!(answer(&world(of_class(state, "fast"))), Ok(Make));
        let other = answer(&world(of_class(state, "other"))).unwrap_err();
        assert!(other.contains("it has a mark"), "{other}");
        let excluded = with(of_class(state, "fast"), |it| {
            it.links.push("/dev/disk/by-id/nvme-Boot_1".into());
        });
        let excluded = answer(&world(excluded)).unwrap_err();
        assert!(excluded.contains("exclude matches"), "{excluded}");
    }
}

#[test]
fn cleaning_that_must_not_go_on_is_not_resumed() {
    let due = terminating(released(pv("pv-1", "/mnt/fast/nvme-Fast_1", &fs(1))));
    let disk = found_with(Some(Wiping), DiskContents::Data);
    let world = with_dir(world_with(makes(), vec![disk]));
    assert_eq!(answer(&world.clone().pv(due.clone())), Ok(Remake));
    let paused = with(due.clone(), |it| it.paused = true);
    for world in [
        world.clone().pv(paused),
        world.clone().pv(retained(due.clone())),
        world.pv(due).node(|node| node.paused = true),
    ] {
        assert!(answer(&world).unwrap_err().contains("was interrupted"));
    }
}

#[test]
fn filesystem_is_mounted_while_another_class_is_faulty() {
    let disk = found_with(Some(Free), DiskContents::Made);
    let world = with_dir(world_with(makes(), vec![disk, block_disk(2)]));
    let world = with(world, |it| {
        it.faulty.insert("slow".into(), "a faulty rule".into());
    });
    assert_eq!(taken(&world), [LINK]);
}
