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

#[test]
fn emptied_volume_is_offered_with_the_root_of_its_offer() {
    let offered = Some(RootAttributes {
        uid: 1,
        ..RootAttributes::default()
    });
    let recorded = |state| MarkOnDisk::Valid(with(mark(state), |it| it.root.clone_from(&offered)));
    for (what, on_disk, unborn, expected, resets) in [
        ("no mark", MarkOnDisk::Absent, "", &None, false),
        // An administrator may have prepared it since.
        ("free", recorded(MarkState::Free), "", &None, false),
        (
            "being offered",
            recorded(MarkState::Pending),
            TOKEN,
            &None,
            false,
        ),
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
        assert_eq!(
            (&write.mark.root, write.resets_root),
            (expected, resets),
            "{what}"
        );
    }
}

/// The directory was removed and made again, or the node was installed again.
#[test]
fn unmarked_device_is_dirty_while_a_pv_records_another_state_directory() {
    let recorded = "local-volume-provisioner/state-directory";
    let place = |candidate: Candidate| marked(&candidate, MarkOnDisk::Absent);
    let world = |of_pv: Option<&str>, device: &Candidate| {
        let other = marked(&disk(2), MarkOnDisk::Valid(mark(MarkState::Used)));
        let pv = with(bound(offered(&other)), |pv| {
            pv.local_path = Ok(path("/mnt/fast/b"));
            pv.state_directory = of_pv.map(str::to_owned);
        });
        let mut world = searched(device).fast("b", &other).pv(pv);
        world.snapshot.state_directory = Some("present".into());
        let searched = &mut world.snapshot.ledger.searched;
        searched.insert(device.identity.hash());
        world
    };
    let blank = with(place(disk(1)), |it| it.is_blank = true);
    for (what, of_pv, volume, expected) in [
        ("lost", Some("former"), place(disk(1)), DIRTY[1]),
        ("blank", Some("former"), blank, OFFERED[1]),
        (
            "a filesystem has its own",
            Some("former"),
            place(fs(1)),
            OFFERED[1],
        ),
        ("the same", Some("present"), place(disk(1)), OFFERED[1]),
        ("an earlier version's", None, place(disk(1)), OFFERED[1]),
    ] {
        let world = world(of_pv, &volume);
        let found = words(&world.plan());
        assert!(found.iter().any(|it| it == expected), "{what}: {found:?}");
        let patches = world
            .plan()
            .actions
            .into_iter()
            .filter_map(|action| match action {
                Action::Patch(patch) => patch.annotations.get(recorded).cloned(),
                _ => None,
            });
        let is_recorded = patches.flatten().any(|it| it == "present");
        assert_eq!(is_recorded, of_pv.is_none(), "{what}");
    }
    let device = place(disk(1));
    let consents = consent("wipe", None, &device);
    let later = with(device.clone(), |it| {
        it.mark.directory = Some("later".into());
    });
    assert_ne!(consent("wipe", None, &later), consents, "another loss");
    let world = world(Some("former"), &device).node(|node| node.consents = [consents].into());
    let found = words(&world.plan());
    assert!(found.iter().any(|it| it.starts_with("clean ")), "{found:?}");
}
