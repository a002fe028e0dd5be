//! What a volume without a PV may still have of its past, although its mark is free, absent or of an emptied one.

use std::collections::BTreeSet;

use super::kit::*;
use super::mark::{
    DIRTY, OFFERED, TOKEN, empty, mark, marked, offered, searched, unreadable, valid,
};
use crate::config::{CleanMethod, Cleaner};
use crate::host::mark::{MarkOnDisk, MarkState, RootAttributes};
use crate::inventory::Candidate;
use crate::plan::Action;
use crate::plan::consent::consent;
use crate::types::VolumeMode;

#[test]
fn free_after_a_quick_reset_is_dirty_where_the_class_promises_zeros() {
    use VolumeMode::{Block, Filesystem};
    let (quick, zero) = (CleanMethod::Quick, CleanMethod::Zero);
    for (left, of, mode, method, expected) in [
        (Some(true), "fast", Block, zero, DIRTY),
        (Some(true), "fast", Block, quick, OFFERED),
        (Some(true), "fast", Filesystem, zero, OFFERED),
        (Some(false), "other", Block, zero, OFFERED),
        // A mark of an earlier version.
        (None, "other", Block, zero, DIRTY),
        (None, "fast", Block, zero, OFFERED),
    ] {
        let what = format!("{left:?} {of} {mode:?} {method:?}");
        let free = with(mark(MarkState::Free), |it| {
            it.data_left = left;
            it.class = of.into();
        });
        let device = marked(&disk(1), MarkOnDisk::Valid(free));
        let class = |world: World| {
            world.change_class("fast", |class| {
                class.volume_mode = mode;
                class.cleaner = Cleaner::Method(method);
            })
        };
        class(searched(&device)).expect(&what, expected);
        // The PV at its path was restored, or is of another disk.
        let restored = with(offered(&device), |pv| pv.mode = mode);
        let plan = words(&class(searched(&device).pv(restored)).plan());
        let is_withdrawn = plan.iter().any(|it| it.starts_with("delete "));
        assert_eq!(is_withdrawn, expected == DIRTY, "{what}: {plan:?}");
        let consents = consent("wipe", None, &device);
        let world = class(searched(&device)).node(|node| node.consents = [consents].into());
        let plan = words(&world.plan());
        let is_cleaned = plan.iter().any(|it| it.starts_with("clean "));
        assert_eq!(is_cleaned, expected == DIRTY, "{what}: {plan:?}");
    }
}

/// The disk was used on another node, or the state directory that had the marks since was lost.
#[test]
fn free_mark_is_believed_only_beside_the_directory_that_could_have_a_newer_one() {
    let free = marked(&fs(1), MarkOnDisk::Valid(mark(MarkState::Free)));
    searched(&free).expect("its own", OFFERED);
    let outdated = with(free, |it| it.mark.is_outdated = true);
    searched(&outdated).expect("it may have been used since", DIRTY);
    let empty = empty(outdated);
    searched(&empty).expect("empty", OFFERED);
}

#[test]
fn emptied_volume_is_offered_with_the_root_of_its_offer() {
    let offered = Some(RootAttributes { uid: 1, ..RootAttributes::default() });
    let recorded = |state| MarkOnDisk::Valid(with(mark(state), |it| it.root.clone_from(&offered)));
    for (what, on_disk, unborn, expected, resets) in [
        ("no mark", MarkOnDisk::Absent, "", &None, false),
        // An administrator may have prepared it since.
        ("free", recorded(MarkState::Free), "", &None, false),
        ("being offered", recorded(MarkState::Pending), TOKEN, &None, false),
        ("offered", recorded(MarkState::Offered), "", &offered, true),
        ("used", recorded(MarkState::Used), "", &offered, true),
        ("nothing recorded", valid(MarkState::Used), "", &None, true),
        ("unreadable", unreadable(), "", &None, true),
    ] {
        let volume = empty(marked(&fs(1), on_disk));
        let mut world = searched(&volume);
        world.snapshot.ledger.unborn = BTreeSet::from([unborn.to_owned()]);
        let plan = world.plan();
        let write = plan.actions.iter().find_map(|action| match action {
            Action::Create(draft) => draft.mark.as_ref(),
            _ => None,
        });
        let write = write.unwrap_or_else(|| panic!("{what}: {:?}", words(&plan)));
        assert_eq!((&write.mark.root, write.resets_root), (expected, resets), "{what}");
    }
}

/// The directory was removed and made again, or the node was installed again.
#[test]
fn unmarked_device_is_dirty_where_marks_were_lost() {
    let recorded = "local-volume-provisioner/state-directory";
    let place = |candidate: Candidate| marked(&candidate, MarkOnDisk::Absent);
    let world = |has_doubt: bool, of_pv: Option<&str>, device: &Candidate| {
        let other = marked(&disk(2), MarkOnDisk::Valid(mark(MarkState::Used)));
        let pv = with(bound(offered(&other)), |pv| {
            pv.local_path = Ok(path("/mnt/fast/b"));
            pv.state_directory = of_pv.map(str::to_owned);
        });
        let mut world = searched(device).fast("b", &other).pv(pv);
        world.snapshot.state_directory = Some("present".into());
        world.snapshot.has_doubt = has_doubt;
        let searched = &mut world.snapshot.ledger.searched;
        searched.insert(device.identity.hash());
        world
    };
    let blank = with(place(disk(1)), |it| it.is_blank = true);
    let (former, present) = (Some("former"), Some("present"));
    for (what, has_doubt, of_pv, volume, expected, is_due) in [
        ("lost", false, former, place(disk(1)), DIRTY[1], false),
        ("kept", true, former, place(disk(1)), DIRTY[1], true),
        ("settled", true, present, place(disk(1)), DIRTY[1], false),
        ("blank", false, former, blank, OFFERED[1], false),
        ("its own", false, former, place(fs(1)), OFFERED[1], false),
        ("same", false, present, place(disk(1)), OFFERED[1], false),
        ("earlier", false, None, place(disk(1)), OFFERED[1], true),
    ] {
        let world = world(has_doubt, of_pv, &volume);
        let found = words(&world.plan());
        assert!(found.iter().any(|it| it == expected), "{what}: {found:?}");
        let patches = world.plan().actions.into_iter().filter_map(|action| match action {
            Action::Patch(patch) => patch.annotations.get(recorded).cloned(),
            _ => None,
        });
        let is_recorded = patches.flatten().any(|it| it == "present");
        assert_eq!(is_recorded, is_due, "{what}");
    }
    let device = place(disk(1));
    let consents = consent("wipe", None, &device);
    let later = with(device.clone(), |it| {
        it.mark.directory = Some("later".into());
    });
    assert_ne!(consent("wipe", None, &later), consents, "another loss");
    let former = with(world(false, former, &device), |world| {
        world.snapshot.state_directory = None;
        world.snapshot.node.as_mut().unwrap().uid = "registered again".into();
    });
    let found = words(&former.plan());
    assert!(found.iter().any(|it| it == DIRTY[1]), "{found:?}");
    let world = world(true, None, &device).node(|node| node.consents = [consents].into());
    let found = words(&world.plan());
    assert!(found.iter().any(|it| it.starts_with("clean ")), "{found:?}");
}
