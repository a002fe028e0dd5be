//! Which volumes with `binding: disk` the kubelet may mount: those with a link.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::kit::*;
use super::mark::{mark, marked, offered};
use crate::config::Binding;
use crate::host::mark::{Mark, MarkFact, MarkOnDisk, MarkState};
use crate::inventory::{Candidate, Finding};
use crate::names::DISK_LABEL_PREFIX;
use crate::plan::{About, Action, Snapshot};
use crate::types::SkipReason;
use crate::view::{Phase, PvLink, PvView};

/// The token of [`mounted`].
pub(super) const LINK: &str = "0123456789abcdef0123456789abcdef";

/// A label of a Node, with this last digit.
pub(super) fn label(of: u32) -> String {
    format!("{DISK_LABEL_PREFIX}{of:032x}")
}

/// `fast` binds its volumes to their disks.
pub(super) fn disk_world() -> World {
    world().change_class("fast", |class| class.binding = Binding::Disk)
}

/// The PV of such a class.
pub(super) fn linked(pv: PvView, token: &str, label: String) -> PvView {
    with(pv, |pv| {
        pv.offer = Some(token.into());
        pv.hostnames.clear();
        pv.link = Some(PvLink { token: token.into(), label: Some(label) });
    })
}

/// The PV of [`mounted`], without a claim.
fn unused() -> PvView {
    linked(offered(&fs(1)), LINK, label(1))
}

pub(super) fn used() -> Mark {
    with(mark(MarkState::Used), |mark| {
        mark.token = LINK.into();
        mark.claim_uid = claim().uid;
    })
}

/// A claim's volume that the kubelet may mount, and may do so since the last pass.
pub(super) fn mounted() -> World {
    let volume = marked(&fs(1), MarkOnDisk::Valid(used()));
    let mut world = disk_world().fast("a", &volume).pv(bound(unused()));
    world = world.node(|node| drop(node.labels.insert(label(1), String::new())));
    let snapshot = &mut world.snapshot;
    snapshot.links.insert(LINK.into(), "/mnt/fast/a".into());
    snapshot.ledger.linked.insert(LINK.into(), Ok(0));
    world
}

/// Changes what is at the path.
fn change_volume(world: World, change: impl FnOnce(&mut Candidate)) -> World {
    let volume = world.snapshot.observed["fast"].volumes().next().cloned();
    let volume = with(volume.unwrap().candidate.clone(), change);
    world.fast("a", &volume)
}

fn change_mark(world: World, change: impl FnOnce(&mut Mark)) -> World {
    change_volume(world, |volume| {
        if let MarkOnDisk::Valid(mark) = &mut volume.mark.on_disk {
            change(mark);
        }
    })
}

fn change_pv(mut world: World, change: impl FnOnce(&mut PvView)) -> World {
    change(&mut world.snapshot.pvs.as_mut().unwrap()[0]);
    world
}

fn change_entries(world: World, change: impl FnOnce(&mut BTreeMap<String, Finding>)) -> World {
    with(world, |it| {
        let fast = it.snapshot.observed.get_mut("fast").unwrap();
        change(Arc::make_mut(&mut fast.entries));
    })
}

fn change(world: World, change: impl FnOnce(&mut Snapshot)) -> World {
    with(world, |it| change(&mut it.snapshot))
}

pub(super) const UNLINK: &str = "unlink 0123456789abcdef0123456789abcdef";
/// What is said of a claim whose pods cannot start.
const TOLD: &str = "VolumeUnverified of claim default/data";
const ON_NODE: &str = "VolumeUnverified of Node node-1";
pub(super) const UNVERIFIED: &[&str] = &["VolumeUnverified of pv", TOLD, ON_NODE, "a is Unlinked"];
const MISMATCH: &[&str] = &["VolumeMarkMismatch of pv", TOLD, ON_NODE, "a is MarkMismatch"];
/// It is linked in a later pass.
const SOON: &[&str] = &["a is Unlinked"];

type Row = (&'static str, fn(World) -> World, &'static [&'static str]);

#[test]
fn volume_is_linked_if_the_mark_names_pv_and_claim_on_the_disk_of_the_pv() {
    mounted().expect("linked", &["a is Bound"]);
    let terminating = change_pv(mounted(), |pv| pv.deleting = true);
    terminating.expect("Terminating, but in use", &["a is Terminating"]);
    let unlinked = change(mounted(), |it| it.links.clear());
    unlinked.expect("not linked", &["link pv", "a is Unlinked"]);
    let unlinked = change(unlinked, |it| it.epoch = 7);
    let plan = unlinked.plan();
    let [Action::Link(order)] = &*plan.actions else { panic!("{:?}", plan.actions) };
    let volumes = unlinked.snapshot.observed["fast"].volumes().next();
    assert_eq!(Some(&order.volume), volumes);
    assert_eq!((&order.pv, order.epoch), (&unlinked.pvs()[0], 7));
}

#[test]
fn failure_to_make_a_link_is_told_on_pv_and_claim() {
    let unlinked = change(mounted(), |it| it.links.clear());
    let is_made = |it: &mut Snapshot| _ = it.ledger.writing.insert(LINK.into());
    change(unlinked.clone(), is_made).expect("it is being made", SOON);
    let fails = |it: &mut Snapshot| drop(it.ledger.linked.insert(LINK.into(), Err("cause".into())));
    let failed = change(unlinked.clone(), fails);
    failed.expect("it is tried again", &[&["link pv"], UNVERIFIED].concat());
    let backs_off = change(failed.clone(), is_made);
    backs_off.expect("after a pause", UNVERIFIED);
    let no_directory = change(unlinked, |it| it.links_fault = Some("cause".into()));
    no_directory.expect("no directory for links", UNVERIFIED);
    for world in [failed, backs_off, no_directory] {
        for notice in world.plan().notices {
            let cause = match notice.about {
                About::Node(_) => "their events have the causes",
                _ => "/mnt/fast/a is not mounted for any new pod: cause",
            };
            assert!(notice.message.ends_with(cause), "{notice:?}");
        }
    }
}

#[test]
fn link_goes_if_anything_is_in_doubt() {
    for (what, change, expected) in DOUBTS {
        let world = change(mounted());
        let is_told = expected.contains(&TOLD) && !expected.contains(&ON_NODE);
        let expected = &[*expected, &[ON_NODE][..usize::from(is_told)]].concat();
        world.expect(what, &[&[UNLINK], &**expected].concat());
        let first = &world.plan().actions[0];
        assert_eq!(*first, Action::Unlink(LINK.into()), "{what}");
        let unlinked = with(world, |it| it.snapshot.links.clear());
        unlinked.expect(what, expected);
    }
}

const DOUBTS: &[Row] = &[
    (
        "the mark of another claim",
        |it| change_mark(it, |mark| mark.claim_uid = Some("earlier".into())),
        MISMATCH,
    ),
    ("a mark without a claim", |it| change_mark(it, |mark| mark.claim_uid = None), MISMATCH),
    (
        "neither mark nor PV with the UID of a claim",
        |it| {
            let of_no_claim = change_mark(it, |mark| mark.claim_uid = None);
            change_pv(of_no_claim, |pv| pv.claim.as_mut().unwrap().uid = None)
        },
        UNVERIFIED,
    ),
    (
        "the mark of another PV",
        |it| change_mark(it, |mark| mark.pv_uid = "earlier".into()),
        MISMATCH,
    ),
    (
        "the mark of another offer",
        |it| change_mark(it, |mark| mark.token = "f".repeat(32)),
        UNVERIFIED,
    ),
    (
        "the mark of another cluster",
        |it| change_mark(it, |mark| mark.cluster = "other".into()),
        MISMATCH,
    ),
    (
        "the mark of another disk",
        |it| change_mark(it, |mark| mark.identity_hash = fs(2).identity.hash()),
        &["patch pv: mark=used", "a is Unlinked"],
    ),
    (
        "no claim so far",
        |it| change_mark(it, |mark| mark.state = MarkState::Offered),
        &["patch pv: mark=used", "a is Unlinked"],
    ),
    ("a wipe has begun", |it| change_mark(it, |mark| mark.state = MarkState::Wiping), MISMATCH),
    (
        "wiped",
        |it| change_mark(it, |mark| mark.state = MarkState::Free),
        &["patch pv: mark=used (VolumeMarkMismatch)", "a is Unlinked"],
    ),
    ("no mark", |it| change_volume(it, |it| it.mark.on_disk = MarkOnDisk::Absent), MISMATCH),
    (
        "no mark, and no place for one",
        |it| change_volume(it, |it| it.mark = MarkFact::default()),
        UNVERIFIED,
    ),
    ("a mark that changes since the scan", |it| it.creating("/mnt/fast/a", &fs(1)), SOON),
    (
        "another disk with a copy of the mark",
        |it| it.fast("a", &marked(&fs(2), MarkOnDisk::Valid(used()))),
        &["VolumeIdentityMismatch of pv", TOLD, "a is IdentityMismatch"],
    ),
    (
        "not mounted",
        |it| it.entry("fast", "a", SkipReason::NotMounted),
        &["VolumeNotMounted of pv", TOLD, "a is NotMounted as NotMounted"],
    ),
    (
        "no entry",
        |it| change_entries(it, |entries| drop(entries.remove("a"))),
        &["VolumeMissing of pv", TOLD, "a is Missing"],
    ),
    ("a directory that cannot be read", |it| it.incomplete("fast"), UNVERIFIED),
    (
        "a class that is switched off",
        |mut it| {
            it.config.classes.clear();
            it.faulty.insert("fast".into(), "invalid".into());
            it
        },
        &["ClassInvalid of our Pod", "VolumeUnverified of pv", TOLD, "a is ClassGone"],
    ),
    (
        "no recorded identity",
        |it| change_pv(it, |pv| pv.identity = None),
        &["VolumeUnverified of pv", TOLD, "a is Unlinked"],
    ),
    (
        "Available after a restore of the API server",
        |it| change_pv(it, |pv| *pv = unused()),
        &["delete pv", "a is Terminating"],
    ),
    ("Released", |it| change_pv(it, |pv| pv.phase = Phase::Released), &["clean pv", "a is Due"]),
    (
        "of another installation",
        |it| change_pv(it, |pv| pv.installation = Some("other".into())),
        &["a is Skipped as PathClaimedByOtherPV"],
    ),
    (
        "of the Node before it was registered again",
        |it| change_pv(it, |pv| pv.provisioned_by = Some(FORMER.into())),
        &[
            "patch pv: provisioned-by=local-volume-provisioner-node-1-node-uid (VolumeAdopted)",
            "a is Foreign",
        ],
    ),
    (
        "of another node",
        |it| change_pv(it, |pv| pv.hostname_label = Some("host-2".into())),
        &["search /mnt/fast/a", "VolumeFailedDelete of pv", TOLD, "a is Creating", "a is Refused"],
    ),
    (
        "another volume has a copy of the mark",
        |it| it.fast("b", &marked(&fs(2), MarkOnDisk::Valid(used()))),
        &["search /mnt/fast/b", "VolumeUnverified of pv", TOLD, "a is Unlinked", "b is Creating"],
    ),
    (
        "another volume is a copy of the disk",
        |it| {
            let copy = with(fs(2), |copy| copy.identity = fs(1).identity);
            it.fast("b", &marked(&copy, MarkOnDisk::Valid(used())))
        },
        &["VolumeUnverified of pv", TOLD, "a is Unlinked", "b is Skipped as IdentityOnOtherPV"],
    ),
    (
        "another PV has its identity",
        |it| it.pv(pv("other", "/mnt/slow/b", &fs(1))),
        &["VolumeUnverified of pv", TOLD, "a is Unlinked", "b is ClassGone"],
    ),
    (
        "another PV has its path",
        |it| it.pv(pv("other", "/mnt/fast/a", &fs(2))),
        &["delete other", "VolumeUnverified of pv", TOLD, "a is Unlinked", "a is Terminating"],
    ),
];

#[test]
fn link_that_is_not_confirmed_is_removed_before_it_is_made_again() {
    let rows: [(_, fn(&mut Snapshot)); 3] = [
        ("a later doubt about the cluster", |it| it.epoch = 1),
        ("another process", |it| it.ledger.linked.clear()),
        ("another target", |it| {
            it.links.insert(LINK.into(), "/mnt/other/a".into());
        }),
    ];
    for (what, doubt) in rows {
        let world = change(mounted(), doubt);
        let expected = [UNLINK, "link pv", "a is Unlinked"];
        world.expect(what, &expected);
        assert_eq!(words(&world.plan()), expected, "{what}");
    }
}

#[test]
fn links_of_the_classes_need_a_pv() {
    let [without_pv, elsewhere] = ["1", "2"].map(|digit| digit.repeat(32));
    let links = |it: &mut Snapshot| {
        it.links.insert(without_pv.clone(), "/mnt/fast/b".into());
        it.links.insert(elsewhere.clone(), "/mnt/other/b".into());
    };
    let unlink = format!("unlink {without_pv}");
    let world = change(mounted(), links);
    world.expect("all is known", &[&unlink, "a is Bound"]);
    let unlisted = change(world.clone(), |it| it.pvs = None);
    unlisted.expect("PVs not listed", &[UNLINK, &unlink]);
    let unknown = change(world, |it| it.node = None);
    unknown.expect("no Node", &[UNLINK, &unlink]);
}
