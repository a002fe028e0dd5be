//! One owner per disk among several nodes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::kit::*;
use crate::inventory::Candidate;
use crate::plan::{Action, Ledger, OWNER_LIST, OtherPvs, OwnerQuery};
use crate::view::PvView;

const DUPLICATE: &str = "VolumeDuplicate of pv-a";

/// When our PV was created.
const THEN: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn ours(disk: &Candidate) -> PvView {
    let a = pv("pv-a", "/mnt/fast/a", disk);
    with(a, |pv| pv.created = Some(THEN))
}

/// A PV of another node, this much younger than ours.
fn theirs(disk: &Candidate, seconds: i64) -> PvView {
    with(ours(disk), |pv| {
        (pv.name, pv.uid) = ("pv-b".into(), "uid-pv-b".into());
        pv.hostnames = vec!["host-2".into()];
        pv.hostname_label = Some("host-2".into());
        pv.created = pv.created.map(|it| it + SignedDuration::from_secs(seconds));
    })
}

fn found(owners: Vec<PvView>) -> OtherPvs {
    OtherPvs { hash: "hash".into(), count: 1, owners, here: Vec::new(), list_at: None }
}

#[test]
fn older_pv_stays_and_younger_one_goes_if_it_was_never_used() {
    let disk = global(fs(1), true);
    let ours = ours(&disk);
    let older = || vec![theirs(&disk, -1)];
    let younger = || vec![theirs(&disk, 1)];
    let same_age = |uid: &str| vec![with(theirs(&disk, 0), |pv| pv.uid = uid.into())];
    let stays = &["a is Available"][..];
    let goes = &["delete pv-a", "a is Terminating"][..];
    for (situation, pv, owners, expected) in [
        ("the other is older", ours.clone(), older(), goes),
        ("the same age, another UID", ours.clone(), same_age("uid-aa"), goes),
        ("the same age, a later UID", ours.clone(), same_age("uid-pv-z"), stays),
        ("older and used, ours is used", bound(ours.clone()), older(), &[DUPLICATE, "a is Bound"]),
        ("the other is younger", ours.clone(), younger(), stays),
        (
            "the other is younger and used",
            ours.clone(),
            vec![bound(theirs(&disk, 1))],
            &[DUPLICATE, "a is Available"],
        ),
        (
            "other storage has the identity",
            bound(ours.clone()),
            vec![],
            &["VolumeDuplicate of our Pod", "a is Bound"],
        ),
    ] {
        let mut world = world().fast("a", &disk).pv(pv);
        let others = &mut world.snapshot.ledger.others;
        others.insert("uid-pv-a".into(), found(owners));
        world.expect(situation, expected);
    }
}

#[test]
fn owners_are_listed_once_the_label_is_right() {
    let (disk, other) = (global(fs(1), true), global(fs(2), true));
    let a = ours(&disk);
    let list = "list the owners of 1";
    let label = "patch pv-a: identity-hash=hash";
    let corrected = "patch pv-a: identity-hash=hash (VolumeIdentityRecorded)";
    let with_label =
        |label: Option<&str>| with(a.clone(), |pv| pv.identity_hash = label.map(str::to_owned));
    for (situation, disk, pv, expected) in [
        ("a right label", &disk, a.clone(), &[list, "a is Available"][..]),
        ("none", &disk, with_label(None), &[label, "a is Available"]),
        ("a forged one", &disk, with_label(Some("forged")), &[corrected, "a is Available"]),
        (
            "a weak identity",
            &fs(1),
            a.clone(),
            &["patch pv-a: identity-hash=(off) (VolumeIdentityRecorded)", "a is Available"],
        ),
        (
            "another disk: the label names the recorded one",
            &other,
            bound(with_label(Some("recorded"))),
            &["VolumeIdentityMismatch of pv-a", "a is IdentityMismatch"],
        ),
    ] {
        world().fast("a", disk).pv(pv).expect(situation, expected);
    }
    let mut world = world().fast("a", &disk).pv(a);
    let mut listed = |change: fn(&mut OtherPvs)| {
        let found = with(OtherPvs { hash: "hash".into(), ..OtherPvs::default() }, change);
        world.snapshot.ledger.others.insert("uid-pv-a".into(), found);
        let actions = world.plan().actions;
        actions.iter().any(|it| matches!(it, Action::FindOwners(_)))
    };
    assert!(!listed(|_| ()), "it is known");
    assert!(listed(|found| found.list_at = Some(Duration::ZERO)));
    assert!(listed(|found| found.hash = "of another disk".into()));
    world.snapshot.ledger.writing.insert(OWNER_LIST.into());
    assert_eq!(world.plan().actions, [], "a list is in flight, or backs off");
}

#[test]
fn pv_of_another_node_counts_if_it_fits_on_the_disk() {
    let disk = global(fs(1), true);
    let node = world().snapshot.node.unwrap();
    let query = OwnerQuery::new("", disk.global.as_ref().unwrap(), disk.capacity);
    let sized = |size: &str| with(theirs(&disk, 0), |pv| pv.capacity = Some(size.into()));
    for (situation, pv, expected) in [
        ("of the same size", theirs(&disk, 0), true),
        ("smaller: the disk may have grown", sized("99Gi"), true),
        ("larger", sized("101Gi"), false),
        ("without a size", sized("?"), true),
        ("of this node", ours(&disk), false),
        ("with another label", theirs(&fs(1), 0), false),
    ] {
        let found = OtherPvs::of(&query, &[pv], &node);
        assert_eq!(found.owners.len() == 1, expected, "{situation}");
        assert_eq!(found.is_empty(), !expected, "{situation}");
    }
}

#[test]
fn pvs_of_other_nodes_are_listed_again_after_a_pause() {
    let disk = |is_unique| global(fs(1), is_unique);
    let older = || found(vec![theirs(&disk(true), -1)]);
    let (first, mut again) = (Ledger::default(), Ledger::default());
    again.others.insert("uid-pv-a".into(), found(vec![]));
    for (situation, ledger, disk, others, pause) in [
        ("none, first", &first, disk(true), found(vec![]), Some(5)),
        ("none, again", &again, disk(true), found(vec![]), Some(60 * 60)),
        ("one, first", &first, disk(true), older(), Some(5 * 60)),
        ("one, again", &again, disk(true), older(), Some(5 * 60)),
        ("not unique", &first, disk(false), found(vec![]), None),
    ] {
        let query = OwnerQuery::new("uid-pv-a", disk.global.as_ref().unwrap(), disk.capacity);
        let (mut ledger, now) = (ledger.clone(), Duration::from_secs(100));
        ledger.record_others(&query, &others, now);
        let list_at = pause.map(|pause| now + Duration::from_secs(pause));
        assert_eq!(ledger.others[&query.key].list_at, list_at, "{situation}");
    }
}
