//! Volumes without a PV: the first table of docs/marks.md.

use std::collections::BTreeSet;

use super::kit::*;
use crate::config::{Class, DiscoveryPolicy};
use crate::host::boot::BootTime;
use crate::host::mark::{Mark, MarkFact, MarkOnDisk, MarkState, Place};
use crate::inventory::{Candidate, Contents};
use crate::plan::Action;
use crate::plan::consent::consent;
use crate::types::VolumeMode;
use crate::view::PvView;

pub(super) const TOKEN: &str = "token";

/// The mark of `pv("pv", ...)` in a state.
pub(super) fn mark(state: MarkState) -> Mark {
    Mark {
        cluster: CLUSTER.into(),
        pv_uid: "uid-pv".into(),
        token: TOKEN.into(),
        state,
        identity_hash: fs(1).identity.hash(),
        class: "fast".into(),
        claim: (state >= MarkState::Used).then(|| claim().to_string()),
        written_at: world().snapshot.date - jiff::SignedDuration::from_hours(1),
        ..Mark::default()
    }
}

pub(super) fn marked(candidate: &Candidate, on_disk: MarkOnDisk) -> Candidate {
    with(candidate.clone(), |it| {
        let place = Some(match it.kind {
            VolumeMode::Filesystem => Place::Attribute,
            VolumeMode::Block => Place::StateDirectory,
        });
        if let MarkOnDisk::Valid(mark) = &on_disk {
            let mut mark = mark.clone();
            mark.identity_hash = it.identity.hash();
            it.mark = MarkFact { on_disk: MarkOnDisk::Valid(mark), place, ..MarkFact::default() };
        } else {
            it.mark = MarkFact { on_disk, place, ..MarkFact::default() };
        }
        it.contents = Contents::Holds("a file".into());
    })
}

pub(super) fn valid(state: MarkState) -> MarkOnDisk {
    MarkOnDisk::Valid(mark(state))
}

pub(super) fn foreign(state: MarkState) -> MarkOnDisk {
    MarkOnDisk::Valid(with(mark(state), |it| it.cluster = "other".into()))
}

pub(super) fn unreadable() -> MarkOnDisk {
    MarkOnDisk::Unreadable { digest: "0123456789abcdef".into() }
}

/// The PV of [`mark`], with the annotation of its offer.
pub(super) fn offered(candidate: &Candidate) -> PvView {
    with(pv("pv", "/mnt/fast/a", candidate), |pv| {
        pv.offer = Some(TOKEN.into());
    })
}

pub(super) fn empty(candidate: Candidate) -> Candidate {
    with(candidate, |it| it.contents = Contents::Empty)
}

/// The world with this volume, after the PV of its mark was searched.
pub(super) fn searched(volume: &Candidate) -> World {
    let mut world = world().fast("a", volume);
    let digest = volume.mark.on_disk.digest();
    world.snapshot.ledger.searched.insert(digest);
    world
}

pub(super) const OFFERED: &[&str] = &["create /mnt/fast/a", "a is Creating"];
pub(super) const DIRTY: &[&str] = &["VolumeDirty of Node node-1", "a is Skipped as Dirty"];
const CLEANED: &[&str] = &["clean ", "a is Skipped as CleanupRunning"];

#[test]
fn volume_without_a_pv_is_offered_by_its_mark() {
    use MarkState::{Free, Offered, Pending, Used, Wiping};
    for (what, on_disk, expected) in [
        ("none", MarkOnDisk::Absent, OFFERED),
        ("free", valid(Free), OFFERED),
        ("pending", valid(Pending), DIRTY),
        ("offered", valid(Offered), DIRTY),
        ("used", valid(Used), DIRTY),
        ("wiping", valid(Wiping), DIRTY),
        ("unreadable", unreadable(), DIRTY),
        ("free of another cluster", foreign(Free), DIRTY),
        ("used of another cluster", foreign(Used), DIRTY),
        ("wiping of another cluster", foreign(Wiping), DIRTY),
    ] {
        for volume in [fs(1), disk(1)] {
            let volume = marked(&volume, on_disk.clone());
            searched(&volume).expect(what, expected);
        }
        // Its class may offer empty volumes only: a tenant's data is the graver reason.
        if expected == DIRTY {
            let world = searched(&marked(&fs(1), on_disk.clone()));
            let choosy = |class: &mut Class| class.discovery_policy = DiscoveryPolicy::EmptyOnly;
            world.change_class("fast", choosy).expect(what, DIRTY);
        }
        // An empty filesystem holds no data of a tenant.
        let volume = empty(marked(&fs(1), on_disk.clone()));
        searched(&volume).expect(what, OFFERED);
    }
}

#[test]
fn interrupted_offer_of_a_device_needs_its_header_and_a_recent_mark() {
    let at = |boot_time| {
        // The wall clock may be wrong.
        let date = world().snapshot.date;
        MarkOnDisk::Valid(with(mark(MarkState::Pending), |it| {
            it.boot_time = boot_time;
            it.written_at = date;
        }))
    };
    let minutes = |before: u64| {
        let change = |it: &mut BootTime| it.seconds -= 60 * before;
        at(world().snapshot.boot_time.map(|it| with(it, change)))
    };
    let other_boot = BootTime { boot_id: "other".into(), seconds: 1 };
    for (what, on_disk, unborn, is_as_offered, expected) in [
        ("its PV was not created", minutes(0), TOKEN, false, OFFERED),
        ("its PV was created", minutes(0), "", false, DIRTY),
        ("before the start", minutes(9), "", true, OFFERED),
        ("long ago", minutes(20), "", true, DIRTY),
        ("in an earlier boot", at(Some(other_boot)), "", true, DIRTY),
        ("by an earlier version", at(None), "", true, DIRTY),
        ("other bytes", minutes(9), "", false, DIRTY),
        ("offered", valid(MarkState::Offered), "", true, DIRTY),
    ] {
        let device = with(marked(&disk(1), on_disk), |it| {
            it.is_as_offered = is_as_offered;
        });
        let mut world = searched(&device);
        world.snapshot.ledger.unborn = BTreeSet::from([unborn.to_owned()]);
        world.expect(what, expected);
    }
}

#[test]
fn read_only_volume_is_offered_again_if_it_was_offered_so() {
    for (then, now, expected) in [(true, true, OFFERED), (false, true, DIRTY), (true, false, DIRTY)]
    {
        let offered = with(mark(MarkState::Offered), |it| it.read_only = then);
        let volume = marked(&fs(1), MarkOnDisk::Valid(offered));
        let volume = with(volume, |it| it.read_only = now);
        searched(&volume).expect("read-only", expected);
    }
}

#[test]
fn mark_of_a_pv_that_was_deleted_unused_is_freed() {
    let freed: &[_] = &["mark /mnt/fast/a free", "a is Creating"];
    let pending = MarkOnDisk::Valid(with(mark(MarkState::Pending), |it| it.pv_uid.clear()));
    for (what, on_disk, uid, expected) in [
        ("offered", valid(MarkState::Offered), "uid-pv", freed),
        ("pending", pending, "uid-pv", freed),
        ("restored", valid(MarkState::Offered), "uid-of-backup", DIRTY),
        ("used", valid(MarkState::Used), "uid-pv", DIRTY),
    ] {
        let mut world = searched(&marked(&disk(1), on_disk));
        let ended = (TOKEN.into(), uid.into());
        world.snapshot.ended.insert(ended);
        world.expect(what, expected);
    }
}

#[test]
fn volume_whose_pv_names_another_path_is_not_wiped() {
    let volume = marked(&fs(1), valid(MarkState::Used));
    let pv = with(bound(offered(&fs(1))), |pv| {
        pv.local_path = Ok(path("/mnt/fast/b"));
    });
    // Or the identity of the PV was removed.
    let unrecorded = with(pv.clone(), |pv| pv.identity = None);
    for pv in [pv, unrecorded] {
        let mut world = searched(&volume).pv(pv);
        let node = world.snapshot.node.as_mut().unwrap();
        node.consents.insert(consent("wipe", None, &volume));
        let words = words(&world.plan());
        assert!(words.contains(&"a is Skipped as IdentityOnOtherPV".to_owned()), "{words:?}");
        assert!(!words.iter().any(|it| it.starts_with("clean")), "{words:?}");
    }
}

/// As after `rsync --xattrs` from one root to another.
#[test]
fn volume_with_a_copied_mark_is_cleaned_although_the_pv_of_the_mark_lives() {
    let mut volume = marked(&fs(2), valid(MarkState::Used));
    volume.mark.on_disk = valid(MarkState::Used);
    let pv = with(bound(offered(&fs(1))), |pv| {
        pv.local_path = Ok(path("/mnt/fast/b"));
    });
    let mut world = searched(&volume).pv(pv);
    let node = world.snapshot.node.as_mut().unwrap();
    node.consents.insert(consent("wipe", None, &volume));
    let words = words(&world.plan());
    assert!(words.contains(&"clean ".to_owned()), "{words:?}");
}

#[test]
fn readable_mark_counts_although_it_cannot_be_written() {
    let volume = with(marked(&fs(1), valid(MarkState::Used)), |it| {
        it.mark.place = None;
    });
    searched(&volume).expect("no place", DIRTY);
}

#[test]
fn consent_names_the_disk_and_the_contents_of_its_mark() {
    let used = marked(&fs(1), valid(MarkState::Used));
    let unreadable = marked(&fs(1), unreadable());
    let foreign = marked(&fs(1), foreign(MarkState::Used));
    let later = with(used.clone(), |it| {
        let written_at = world().snapshot.date;
        it.mark.on_disk = MarkOnDisk::Valid(with(mark(MarkState::Used), |it| {
            it.identity_hash = fs(1).identity.hash();
            it.written_at = written_at;
        }));
    });
    let other_disk = marked(&fs(2), valid(MarkState::Used));
    let unwritable = with(used.clone(), |it| it.mark.place = None);
    let wipe = |volume| consent("wipe", None, volume);
    let accept = |volume| consent("accept", None, volume);
    let of_a_pv = consent("wipe", Some(&offered(&used)), &used);
    for (what, given, volume, expected) in [
        ("wipe", wipe(&used), &used, CLEANED),
        ("accept", accept(&used), &used, OFFERED),
        ("one of several", format!("x,{}", wipe(&used)), &used, CLEANED),
        ("unreadable, accept", accept(&unreadable), &unreadable, OFFERED),
        ("unreadable, wipe", wipe(&unreadable), &unreadable, CLEANED),
        ("of another cluster", wipe(&foreign), &foreign, CLEANED),
        ("another write of the mark", accept(&later), &used, DIRTY),
        ("another disk", wipe(&other_disk), &used, DIRTY),
        ("no place for the mark", accept(&unwritable), &unwritable, DIRTY),
        ("given to a PV", of_a_pv, &used, DIRTY),
        ("without a name", "accept".into(), &used, DIRTY),
    ] {
        let mut world = searched(volume);
        let node = world.snapshot.node.as_mut().unwrap();
        node.consents = given.split(',').map(Into::into).collect();
        world.expect(what, expected);
    }
}

#[test]
fn pv_of_a_mark_is_searched_before_the_mark_is_judged() {
    let expected = ["search /mnt/fast/a", "a is Creating"];
    for state in [MarkState::Pending, MarkState::Used, MarkState::Wiping] {
        let world = world().fast("a", &marked(&fs(1), valid(state)));
        world.expect("not searched", &expected);
    }
}

#[test]
fn each_offer_has_another_token_and_keeps_it() {
    let volume = marked(&fs(1), MarkOnDisk::Absent);
    let token = |world: World| {
        let actions = world.plan().actions;
        let token = actions.iter().find_map(|action| match action {
            Action::Create(draft) => draft.mark.as_ref().map(|it| it.mark.token.clone()),
            _ => None,
        });
        token.unwrap()
    };
    let later = with(searched(&volume), |world| {
        world.snapshot.date += jiff::SignedDuration::from_nanos(1);
    });
    assert_ne!(token(searched(&volume)), token(later));
    // Another provisioner of the node has written the mark, and may create the PV.
    let begun = with(mark(MarkState::Pending), |it| {
        it.written_at = world().snapshot.date;
    });
    let begun = searched(&empty(marked(&fs(1), MarkOnDisk::Valid(begun))));
    assert_eq!(token(begun), TOKEN);
}

#[test]
fn mark_is_not_judged_while_a_write_may_have_changed_it() {
    let mut world = searched(&marked(&fs(1), valid(MarkState::Used)));
    world.snapshot.ledger.creating.insert(path("/mnt/fast/a"), String::new());
    world.expect("its last scan is older", &["a is Creating"]);
}
