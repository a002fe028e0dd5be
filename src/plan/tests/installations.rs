//! Several installations: each manages its own PVs, and those of one that is gone are taken over.

use std::time::Duration;

use super::kit::*;
use crate::plan::verdict::may_clean;
use crate::plan::{Action, Occupied, PvLocation};
use crate::types::VolumeMode;
use crate::view::PvView;

const OWN: &str = "storage/ours";
const OTHER: &str = "storage/other";

fn a() -> PvView {
    pv("pv-a", "/mnt/fast/a", &fs(1))
}

fn of(installation: &str, pv: PvView) -> PvView {
    with(pv, |pv| pv.installation = Some(installation.into()))
}

fn ours() -> World {
    world().of(OWN).fast("a", &fs(1))
}

/// A PV in each state in which the provisioner would write to it.
fn states() -> [PvView; 5] {
    [
        with(a(), |pv| pv.hostname_label = None),
        without_identity(a()),
        with(bound(a()), |pv| pv.used = false),
        released(a()),
        terminating(released(a())),
    ]
}

#[test]
fn own_installation_is_recorded_on_new_and_active_pvs() {
    let created = |world: World| {
        let actions = world.plan().actions;
        let [Action::Create(draft)] = &actions[..] else {
            panic!("{actions:?}");
        };
        made(draft).installation
    };
    assert_eq!(created(ours()).as_deref(), Some(OWN));
    assert_eq!(created(world().fast("a", &fs(1))), None);
    let recorded = "patch pv-a: installation=storage/ours";
    let of_old_class = pv("pv-a", "/mnt/old/a", &fs(2));
    for (situation, world, expected) in [
        ("unused", ours().pv(a()), &[recorded, "a is Available"][..]),
        ("bound", ours().pv(bound(a())), &[recorded, "a is Bound"]),
        ("recorded", ours().pv(of(OWN, a())), &["a is Available"]),
        ("due", ours().pv(released(a())), &["clean pv-a", "a is Due"]),
        ("recorded, due", ours().pv(of(OWN, released(a()))), &["clean pv-a", "a is Due"]),
        (
            "a class that another installation may have",
            world().of(OWN).pv(of_old_class),
            &["a is ClassGone"],
        ),
    ] {
        world.expect(situation, expected);
    }
}

#[test]
fn pvs_of_another_installation_are_left_alone_until_it_is_gone() {
    let (missing, second) = (Duration::from_secs(59), Duration::from_secs(1));
    for pv in states().map(|pv| of(OTHER, pv)) {
        let situation = format!("{:?}, deleting: {}", pv.phase, pv.deleting);
        let world = |world: World| world.pv(pv.clone());
        let left = ["a is Skipped as PathClaimedByOtherPV"];
        world(ours()).expect(&situation, &left);
        let short = ours().absent(OTHER, missing);
        world(short).expect(&format!("{situation}, absent for a while"), &left);
        let long = ours().absent(OTHER, missing + second);
        let taken = "patch pv-a: installation=storage/ours (VolumeAdopted)";
        world(long).expect(&format!("{situation}, gone"), &[taken, "a is Foreign"]);
        let unknown = super::kit::world().fast("a", &fs(1));
        world(unknown.clone()).expect(&format!("{situation}, ours is unknown"), &left);
        let taken = "patch pv-a: installation=(off) (VolumeAdopted)";
        let gone = unknown.absent(OTHER, ABSENCE_LIMIT);
        world(gone).expect(&format!("{situation}, both"), &[taken, "a is Foreign"]);
    }
}

#[test]
fn only_pvs_of_a_configured_class_and_directory_are_taken_over() {
    let gone = |pv: PvView| world().of(OWN).absent(OTHER, ABSENCE_LIMIT).pv(of(OTHER, pv));
    for (situation, pv) in [
        ("another class", pv("pv-a", "/mnt/other/a", &fs(1))),
        ("another directory", with(a(), |pv| pv.local_path = Ok(path("/mnt/other/a")))),
        ("no path", with(a(), |pv| pv.local_path = Err("no".into()))),
        ("another node", with(a(), |pv| pv.provisioned_by = Some("another".into()))),
    ] {
        gone(pv).expect(situation, &[]);
    }
    let taken = "patch pv-a: installation=storage/ours (VolumeAdopted)";
    gone(a()).expect("its volume is missing", &[taken, "a is Foreign"]);
    let former = with(a(), |pv| pv.provisioned_by = Some(FORMER.into()));
    gone(former).expect("of the former node", &[taken, "a is Foreign"]);
    let written = with(gone(a()), |world| {
        world.snapshot.ledger.writing.insert("pv-a".into());
    });
    written.expect("being written", &["a is Foreign"]);
}

/// The gate before a wipe has no facts about DaemonSets.
#[test]
fn nothing_of_another_installation_is_cleaned_before_it_is_taken_over() {
    let (world, class) = (ours(), std::sync::Arc::new(class("fast")));
    let (node, disk) = (world.snapshot.node.clone().unwrap(), fs(1));
    assert_eq!(disk.kind, VolumeMode::Filesystem);
    let volume = volume(&class, "a", &disk);
    let location = PvLocation::Volume(&volume);
    let judge = |pv: PvView| {
        let verdict = may_clean(&pv, &world.settings(), &node, &location, &Occupied::default());
        verdict.map_err(|refusal| refusal.message)
    };
    assert!(judge(released(a())).is_ok());
    assert!(judge(of(OWN, released(a()))).is_ok());
    let refusal = judge(of(OTHER, released(a()))).unwrap_err();
    assert!(refusal.contains("installation storage/other manages it"), "{refusal}");
}
