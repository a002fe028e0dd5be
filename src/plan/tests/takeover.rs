//! Disks that were moved here from another node, with `binding: disk`.

use super::kit::*;
use super::link::{LINK, disk_world, label, linked, used};
use super::mark::{marked, offered};
use crate::host::mark::{Mark, MarkOnDisk, MarkState, Place};
use crate::inventory::{Candidate, Volume};
use crate::plan::consent::consent as consent_to;
use crate::plan::takeover::{FormerNode, is_fenced, is_takeable, taken_over};
use crate::plan::{OtherPvs, OwnerQuery};
use crate::types::VolumeMode;
use crate::view::{Phase, PvView};

/// The filesystem of a claim of another node that is mounted here now.
pub(super) fn moved() -> Candidate {
    marked(&global(fs(1), true), MarkOnDisk::Valid(used()))
}

/// Its PV.
fn pv_elsewhere() -> PvView {
    let pv = offered(&global(fs(1), true));
    with(linked(bound(pv), LINK, label(1)), |pv| {
        pv.hostname_label = Some("host-2".into());
        pv.provisioned_by = Some("local-volume-provisioner-node-2-uid-2".into());
    })
}

pub(super) fn change_mark(candidate: &mut Candidate, change: impl FnOnce(&mut Mark)) {
    if let MarkOnDisk::Valid(mark) = &mut candidate.mark.on_disk {
        change(mark);
    }
}

/// The volume at `/mnt/fast/a` of a world.
fn at_a(world: &World, candidate: &Candidate) -> Volume {
    let world = world.clone().fast("a", candidate);
    let mut volumes = world.snapshot.observed["fast"].volumes();
    (**volumes.next().unwrap()).clone()
}

/// Fails unless a PV can be taken over, or cannot because of this.
#[track_caller]
fn expect(situation: &str, world: &World, pv: &PvView, candidate: &Candidate, why: Option<&str>) {
    let node = world.snapshot.node.as_ref().unwrap();
    let checked = is_takeable(&world.settings(), node, pv, &at_a(world, candidate));
    match (&checked, why) {
        (Ok(()), None) => {}
        (Err(found), Some(why)) if found.contains(why) => {}
        _ => panic!("{situation}: {checked:?}"),
    }
}

#[test]
fn only_the_bound_pv_of_the_disk_moves_with_it() {
    const UNRECORDED: &str = "it does not record this disk";
    type Row = (&'static str, fn(&mut PvView), &'static str);
    let rows: &[Row] = &[
        ("a path", |pv| pv.link = None, "binding: path"),
        ("released", |pv| pv.phase = Phase::Released, "put it back to have it cleaned"),
        (
            "it was never used",
            |pv| {
                *pv = with(linked(offered(&moved()), LINK, label(1)), |it| {
                    it.provisioned_by = pv.provisioned_by.clone();
                });
            },
            "it was never used; if its disk",
        ),
        ("Terminating", |pv| pv.deleting = true, "save the data"),
        ("another identity", |pv| pv.identity = Some(fs(2).identity.text), UNRECORDED),
        ("no identity", |pv| pv.identity = None, UNRECORDED),
        ("the label of another disk", |pv| pv.identity_hash = Some("other".into()), UNRECORDED),
        ("another class", |pv| pv.class = "slow".into(), "class \"slow\""),
        ("another mode", |pv| pv.mode = VolumeMode::Block, "volumeMode Block"),
        (
            "a provisioner that names no node",
            |pv| pv.provisioned_by = Some("local-volume-provisioner".into()),
            "another installation",
        ),
        (
            "another program",
            |pv| pv.provisioned_by = Some("local-static-node-2".into()),
            "another installation",
        ),
        (
            "another installation",
            |pv| pv.installation = Some("storage/other".into()),
            "another installation",
        ),
    ];
    let (world, moved) = (disk_world(), moved());
    expect("its own", &world, &pv_elsewhere(), &moved, None);
    let ours = with(pv_elsewhere(), |pv| {
        (pv.phase, pv.provisioned_by) = (Phase::Released, Some(OURS.into()));
    });
    expect("an earlier hostname", &world, &ours, &moved, None);
    for (situation, change, why) in rows {
        let pv = with(pv_elsewhere(), change);
        expect(situation, &world, &pv, &moved, Some(why));
    }
}

#[test]
fn only_what_the_mark_does_not_contradict_moves() {
    const DISAGREE: Option<&str> = Some("do not agree");
    const UNRECORDED: Option<&str> = Some("it does not record this disk");
    type Row = (&'static str, fn(&mut Candidate), Option<&'static str>);
    let rows: &[Row] = &[
        (
            "it lags behind",
            |it| {
                change_mark(it, |mark| {
                    (mark.state, mark.claim_uid) = (MarkState::Offered, None);
                });
            },
            None,
        ),
        (
            "a later claim of the same name",
            |it| change_mark(it, |mark| mark.claim_uid = Some("later".into())),
            DISAGREE,
        ),
        ("a later PV", |it| change_mark(it, |mark| mark.pv_uid = "later".into()), DISAGREE),
        ("another cluster", |it| change_mark(it, |mark| mark.cluster = "other".into()), DISAGREE),
        (
            "it is unreadable",
            |it| {
                let digest = "0123456789abcdef".into();
                it.mark.on_disk = MarkOnDisk::Unreadable { digest };
            },
            DISAGREE,
        ),
        ("the identity is not unique", |it| *it = global(it.clone(), false), UNRECORDED),
        ("the identity is weak", |it| it.identity.weak = true, UNRECORDED),
    ];
    for (situation, change, why) in rows {
        let candidate = with(moved(), change);
        expect(situation, &disk_world(), &pv_elsewhere(), &candidate, *why);
    }
    let device = marked(&global(disk(1), true), MarkOnDisk::Absent);
    let pv = with(pv_elsewhere(), |pv| {
        (pv.mode, pv.identity) = (VolumeMode::Block, Some(device.identity.text.clone()));
    });
    let raw = disk_world().change_class("fast", |class| class.volume_mode = VolumeMode::Block);
    expect("a device, whose mark stays behind", &raw, &pv, &device, None);
}

#[test]
fn the_other_node_must_be_known_not_to_use_the_disk() {
    type Row = (&'static str, fn(&mut FormerNode, &mut Candidate), bool);
    let rows: &[Row] = &[
        ("the node runs", |_, _| {}, false),
        ("it is out of service", |it, _| it.nodes[0].1 = true, true),
        (
            "another Node has its hostname, and runs",
            |it, _| it.nodes = vec![("node-2".into(), true), ("node-3".into(), false)],
            false,
        ),
        ("it is gone", |it, _| it.nodes.clear(), true),
        (
            "it is gone, and others can reach the disk",
            |it, volume| {
                it.nodes.clear();
                volume.global.as_mut().unwrap().is_shared = true;
            },
            false,
        ),
        (
            "it had the hostname of this one, and is gone",
            |it, _| it.nodes = vec![("node-1".into(), false)],
            true,
        ),
        (
            "it is off, and an old mark of the device is here",
            |it, volume| {
                it.nodes[0].1 = true;
                volume.mark.place = Some(Place::StateDirectory);
            },
            false,
        ),
        (
            "it is off, and the device has no mark",
            |it, volume| {
                it.nodes[0].1 = true;
                volume.mark.on_disk = MarkOnDisk::Absent;
            },
            false,
        ),
    ];
    let pod = || Some(("default/db-0".to_owned(), "node-2".to_owned()));
    for (situation, change, expected) in rows {
        let mut former = FormerNode { nodes: vec![("node-2".into(), false)], pod: None };
        let mut candidate = moved();
        change(&mut former, &mut candidate);
        let (world, pv) = (disk_world(), pv_elsewhere());
        let (node, volume) = (world.snapshot.node.clone().unwrap(), at_a(&world, &candidate));
        let fenced = |pv: &PvView, former: &FormerNode| is_fenced(&node, pv, &volume, former);
        let found = fenced(&pv, &former);
        assert_eq!(found.is_ok(), *expected, "{situation}: {found:?}");
        // An operator's consent stands for the node, but not for a Pod.
        if let Err(why) = found {
            let (_, given) = why.split_once("consent=").expect(situation);
            let consented = consent(pv.clone(), given);
            assert_eq!(fenced(&consented, &former), Ok(()), "{situation}");
            let other = consent(pv.clone(), given.replace("uid-pv", "uid-other"));
            assert!(fenced(&other, &former).is_err(), "{situation}");
            former.pod = pod();
            assert!(fenced(&consented, &former).is_err(), "{situation}");
        }
        former.pod = pod();
        let why = fenced(&pv, &former).unwrap_err();
        assert!(why.contains("default/db-0"), "{situation}: {why}");
    }
}

#[test]
fn metadata_of_a_moved_pv_names_this_node() {
    let world = disk_world()
        .config(|config| {
            let keys = ["zone", "rack", "fixed"].map(str::to_owned);
            config.node_labels_for_pv = keys.into();
            config.labels_for_pv = [("fixed".to_owned(), "ours".to_owned())].into();
        })
        .node(|node| drop(node.labels.insert("zone".into(), "west".into())));
    let pv = with(pv_elsewhere(), |pv| {
        pv.owners = vec![owner("Node", "uid-2"), owner("Backup", "b")];
    });
    let node = world.snapshot.node.clone().unwrap();
    let volume = at_a(&world, &moved());
    let metadata = taken_over(&world.settings(), &node, &pv, &volume);
    let expected = serde_json::json!({
        "labels": { "kubernetes.io/hostname": "host-1", "zone": "west", "rack": null },
        "annotations": {
            "pv.kubernetes.io/provisioned-by": OURS,
            "local-volume-provisioner/path": "/mnt/fast/a",
            "local-volume-provisioner/consent": null,
            "local-volume-provisioner/state-directory": null,
        },
        "ownerReferences": [owner("Backup", "b"), node.as_owner()],
    });
    assert_eq!(metadata, expected);
    let given = ["accept", "move"].map(|verb| consent_to(verb, Some(&pv), &volume.candidate));
    let consented = consent(pv.clone(), given.join(","));
    let accepted = &taken_over(&world.settings(), &node, &consented, &volume)["annotations"];
    // It is still needed, to write the mark.
    assert_eq!(accepted["local-volume-provisioner/consent"], given[0]);
    let former = FormerNode { nodes: vec![("node-2".into(), false)], pod: None };
    assert_eq!(is_fenced(&node, &consented, &volume, &former), Ok(()));
    let free = with(pv, |pv| pv.owners.clear());
    let metadata = taken_over(&world.settings(), &node, &free, &volume);
    assert!(metadata.get("ownerReferences").is_none());
}

#[test]
fn a_pv_is_here_if_its_label_and_its_provisioner_name_this_node() {
    let node = disk_world().snapshot.node.unwrap();
    let identity = moved().global.unwrap();
    let query = OwnerQuery::new("", &identity, moved().capacity);
    for (hostname, by, is_here) in [
        ("host-1", OURS, true),
        ("host-1", "local-volume-provisioner-node-2-uid-2", false),
        ("host-2", OURS, false),
        ("host-2", "local-volume-provisioner-node-2-uid-2", false),
    ] {
        let pv = with(pv_elsewhere(), |pv| {
            (pv.hostname_label, pv.provisioned_by) = (Some(hostname.into()), Some(by.into()));
        });
        let found = OtherPvs::of(&query, std::slice::from_ref(&pv), &node);
        let sorted = (found.here, found.owners);
        let expected = if is_here { (vec![pv], vec![]) } else { (vec![], vec![pv]) };
        assert_eq!(sorted, expected, "{hostname} {by}");
    }
}
