//! Both tables of docs/marks.md: a volume without a PV, and a volume with one.

use super::kit::*;
use crate::host::mark::{Mark, MarkFact, MarkOnDisk, MarkState, Place};
use crate::inventory::{Candidate, Contents};
use crate::names::FINALIZER;
use crate::plan::{Action, Agreement, agreement};
use crate::types::VolumeMode;
use crate::view::{Phase, PvView, ReclaimPolicy};

const TOKEN: &str = "token";

/// The mark of `pv("pv", ...)` in a state.
fn mark(state: MarkState) -> Mark {
    Mark {
        cluster: CLUSTER.into(),
        pv_uid: "uid-pv".into(),
        token: TOKEN.into(),
        state,
        identity_hash: fs(1).identity.hash(),
        class: "fast".into(),
        written_at: world().snapshot.date - jiff::SignedDuration::from_hours(1),
        ..Mark::default()
    }
}

fn marked(candidate: &Candidate, on_disk: MarkOnDisk) -> Candidate {
    with(candidate.clone(), |it| {
        let place = Some(match it.kind {
            VolumeMode::Filesystem => Place::Attribute,
            VolumeMode::Block => Place::StateDirectory,
        });
        if let MarkOnDisk::Valid(mark) = &on_disk {
            let mut mark = mark.clone();
            mark.identity_hash = it.identity.hash();
            it.mark = MarkFact {
                on_disk: MarkOnDisk::Valid(mark),
                place,
            };
        } else {
            it.mark = MarkFact { on_disk, place };
        }
        it.contents = Contents::Holds("a file".into());
    })
}

fn valid(state: MarkState) -> MarkOnDisk {
    MarkOnDisk::Valid(mark(state))
}

fn foreign(state: MarkState) -> MarkOnDisk {
    MarkOnDisk::Valid(with(mark(state), |it| it.cluster = "other".into()))
}

fn unreadable() -> MarkOnDisk {
    MarkOnDisk::Unreadable {
        digest: "0123456789abcdef".into(),
    }
}

fn empty(candidate: Candidate) -> Candidate {
    with(candidate, |it| it.contents = Contents::Empty)
}

/// The world after the PVs of all marks were searched.
fn searched() -> World {
    with(world(), |world| {
        use MarkState::{Free, Offered, Pending, Used, Wiping};
        let states = [Pending, Offered, Used, Wiping, Free];
        let states = states.map(|state| format!("{TOKEN}:{}", state.as_str()));
        let marks = &mut world.snapshot.searched;
        marks.extend(states);
        marks.insert("sha256-0123456789abcdef:unreadable".into());
    })
}

const OFFERED: &[&str] = &["create /mnt/fast/a", "a is Creating"];
const DIRTY: &[&str] = &["VolumeDirty of Node node-1", "a is Skipped as Dirty"];
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
        ("wiping", valid(Wiping), CLEANED),
        ("unreadable", unreadable(), DIRTY),
        ("free of another cluster", foreign(Free), DIRTY),
        ("used of another cluster", foreign(Used), DIRTY),
        ("wiping of another cluster", foreign(Wiping), DIRTY),
    ] {
        for volume in [fs(1), disk(1)] {
            let volume = marked(&volume, on_disk.clone());
            searched().fast("a", &volume).expect(what, expected);
        }
        // An empty filesystem holds no data of a tenant.
        let is_cleaned = expected == CLEANED;
        let volume = empty(marked(&fs(1), on_disk.clone()));
        let expected = if is_cleaned { CLEANED } else { OFFERED };
        let expected = if what == "wiping" { OFFERED } else { expected };
        searched().fast("a", &volume).expect(what, expected);
    }
}

#[test]
fn interrupted_offer_of_a_device_needs_its_header_and_a_recent_mark() {
    let minutes = |before| {
        let date = world().snapshot.date - jiff::SignedDuration::from_mins(before);
        MarkOnDisk::Valid(with(mark(MarkState::Pending), |it| it.written_at = date))
    };
    for (what, on_disk, is_header_unchanged, expected) in [
        ("of this process", minutes(0), false, OFFERED),
        ("before the start", minutes(9), true, OFFERED),
        ("long ago", minutes(20), true, DIRTY),
        ("other bytes", minutes(9), false, DIRTY),
        ("offered", valid(MarkState::Offered), true, DIRTY),
    ] {
        let device = with(marked(&disk(1), on_disk), |it| {
            it.is_header_unchanged = is_header_unchanged;
        });
        searched().fast("a", &device).expect(what, expected);
    }
}

#[test]
fn read_only_volume_is_offered_again_if_it_was_offered_so() {
    for (then, now, expected) in [
        (true, true, OFFERED),
        (false, true, DIRTY),
        (true, false, DIRTY),
    ] {
        let offered = with(mark(MarkState::Offered), |it| it.read_only = then);
        let volume = marked(&fs(1), MarkOnDisk::Valid(offered));
        let volume = with(volume, |it| it.read_only = now);
        searched().fast("a", &volume).expect("read-only", expected);
    }
}

#[test]
fn mark_of_a_pv_that_was_deleted_unused_is_freed() {
    for (state, expected) in [
        (
            MarkState::Offered,
            &["mark /mnt/fast/a free", "a is Creating"][..],
        ),
        (MarkState::Used, DIRTY),
    ] {
        let mut world = searched().fast("a", &marked(&disk(1), valid(state)));
        world.snapshot.ended.insert(TOKEN.into());
        world.expect("deleted", expected);
    }
}

#[test]
fn interrupted_wipe_goes_on_only_on_the_same_disk() {
    let wiping = marked(&fs(1), valid(MarkState::Wiping));
    let copied = with(wiping.clone(), |it| {
        it.mark.on_disk = MarkOnDisk::Valid(with(mark(MarkState::Wiping), |mark| {
            mark.identity_hash = "other".into();
        }));
    });
    searched().fast("a", &wiping).expect("same", CLEANED);
    searched().fast("a", &copied).expect("copied", DIRTY);
}

#[test]
fn volume_whose_pv_names_another_path_is_not_wiped() {
    let volume = marked(&fs(1), valid(MarkState::Wiping));
    let pv = with(bound(offered(&fs(1))), |pv| {
        pv.local_path = Ok(path("/mnt/fast/b"));
    });
    let world = searched().fast("a", &volume).pv(pv);
    let words = words(&world.plan());
    assert!(!words.iter().any(|it| it.starts_with("clean")), "{words:?}");
}

#[test]
fn readable_mark_counts_although_it_cannot_be_written() {
    let volume = with(marked(&fs(1), valid(MarkState::Used)), |it| {
        it.mark.place = None;
    });
    searched().fast("a", &volume).expect("no place", DIRTY);
}

#[test]
fn consent_names_the_mark() {
    let hash = fs(1).identity.hash();
    let used = valid(MarkState::Used);
    for (consent, on_disk, expected) in [
        ("wipe:token:used", &used, CLEANED),
        ("accept:token:used", &used, OFFERED),
        ("accept:token:offered", &used, DIRTY),
        ("accept:other:used", &used, DIRTY),
        ("accept", &used, DIRTY),
        (
            "accept:sha256-0123456789abcdef:unreadable",
            &unreadable(),
            OFFERED,
        ),
        (
            "wipe:sha256-0123456789abcdef:unreadable",
            &unreadable(),
            CLEANED,
        ),
        ("wipe:token:used", &foreign(MarkState::Used), CLEANED),
    ] {
        let mut world = searched().fast("a", &marked(&fs(1), on_disk.clone()));
        let node = world.snapshot.node.as_mut().unwrap();
        node.consents.insert(hash.clone(), consent.into());
        world.expect(consent, expected);
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
fn two_provisioners_derive_the_same_token_and_each_offer_has_another() {
    let token = |world: World| {
        let actions = world.plan().actions;
        let token = actions.iter().find_map(|action| match action {
            Action::Create(draft) => draft.mark.as_ref().map(|it| it.mark.token.clone()),
            _ => None,
        });
        token.unwrap()
    };
    let first = || searched().fast("a", &marked(&fs(1), MarkOnDisk::Absent));
    assert_eq!(token(first()), token(first()));
    let later = searched().fast("a", &marked(&fs(1), valid(MarkState::Free)));
    assert_ne!(token(first()), token(later));
}

#[test]
fn mark_is_not_judged_while_a_write_may_have_changed_it() {
    let mut world = searched().fast("a", &marked(&fs(1), valid(MarkState::Used)));
    world
        .snapshot
        .creating
        .insert(path("/mnt/fast/a"), String::new());
    world.expect("its last scan is older", &["a is Creating"]);
}

/// The PV of [`mark`], with the annotation of its offer.
fn offered(candidate: &Candidate) -> PvView {
    with(pv("pv", "/mnt/fast/a", candidate), |pv| {
        pv.offer = Some(TOKEN.into());
    })
}

#[test]
fn pv_and_mark_agree_or_are_reported() {
    use MarkState::{Free, Offered, Pending, Used, Wiping};
    let volume = fs(1);
    let unused = offered(&volume);
    let used = bound(unused.clone());
    let reserved = with(unused.clone(), |pv| pv.claim = Some(claim()));
    let deleting = with(released(unused.clone()), |pv| pv.deleting = true);
    let old = |pv: &PvView| with(pv.clone(), |pv| pv.offer = None);
    let restored = |pv: &PvView| with(pv.clone(), |pv| pv.uid = "restored".into());
    let pending = |token: &str| {
        let mark = with(mark(Pending), |it| {
            it.pv_uid.clear();
            it.token = token.into();
        });
        MarkOnDisk::Valid(mark)
    };
    for (what, pv, on_disk, expected) in [
        ("offered", &unused, valid(Offered), "agrees"),
        ("used", &used, valid(Used), "agrees"),
        ("reserved", &reserved, valid(Offered), "agrees"),
        ("bound", &used, valid(Offered), "used"),
        ("created", &unused, pending(TOKEN), "offered"),
        ("created and bound", &used, pending(TOKEN), "used"),
        ("of another offer", &used, pending("other"), "mismatch"),
        ("terminating", &deleting, valid(Wiping), "agrees"),
        ("wiped", &deleting, valid(Free), "agrees"),
        ("not terminating", &used, valid(Wiping), "mismatch"),
        ("free, but in use", &used, valid(Free), "mismatch"),
        ("API restored", &unused, valid(Used), "mismatch"),
        ("PV restored", &restored(&used), valid(Used), "mismatch"),
        ("another cluster", &used, foreign(Used), "mismatch"),
        ("unreadable", &used, unreadable(), "mismatch"),
        ("mark lost", &used, MarkOnDisk::Absent, "mismatch"),
        ("unused, mark lost", &unused, MarkOnDisk::Absent, "offered"),
        ("earlier version", &old(&used), MarkOnDisk::Absent, "used"),
        (
            "earlier version",
            &old(&unused),
            MarkOnDisk::Absent,
            "offered",
        ),
        (
            "earlier version",
            &old(&restored(&used)),
            valid(Free),
            "used",
        ),
        ("name taken", &old(&unused), pending("other"), "offered"),
        ("downgrade", &old(&restored(&used)), valid(Used), "used"),
        (
            "downgrade",
            &old(&restored(&deleting)),
            valid(Used),
            "mismatch",
        ),
        (
            "downgrade",
            &old(&restored(&unused)),
            valid(Used),
            "mismatch",
        ),
    ] {
        let found = marked(&volume, on_disk);
        let agreement = agreement(pv, CLUSTER, &found, world().snapshot.date);
        let agreement = match &agreement {
            Agreement::Agrees => "agrees",
            Agreement::Lags(mark) => {
                assert_eq!(
                    (&mark.pv_uid, &mark.cluster),
                    (&pv.uid, &CLUSTER.to_owned())
                );
                mark.state.as_str()
            }
            Agreement::Mismatch(_) => "mismatch",
        };
        assert_eq!(agreement, expected, "{what}: {pv:?}");
    }
}

#[test]
fn copied_mark_is_rewritten_if_the_identity_of_the_pv_fits() {
    let found = with(marked(&fs(1), valid(MarkState::Used)), |it| {
        let mark = with(mark(MarkState::Used), |it| {
            it.identity_hash = "other".into();
        });
        it.mark.on_disk = MarkOnDisk::Valid(mark);
    });
    let date = world().snapshot.date;
    let ours = bound(offered(&fs(1)));
    assert!(matches!(
        agreement(&ours, CLUSTER, &found, date),
        Agreement::Lags(_)
    ));
    let other = bound(offered(&fs(2)));
    assert!(matches!(
        agreement(&other, CLUSTER, &found, date),
        Agreement::Mismatch(_)
    ));
    // A weak identity changes at a reboot.
    let weak = with(found, |it| it.identity.weak = true);
    assert_eq!(agreement(&ours, CLUSTER, &weak, date), Agreement::Agrees);
}

#[test]
fn lost_state_directory_is_written_again_for_a_proven_device() {
    let date = world().snapshot.date;
    let device = marked(&disk(1), MarkOnDisk::Absent);
    let ours = bound(offered(&disk(1)));
    assert!(matches!(
        agreement(&ours, CLUSTER, &device, date),
        Agreement::Lags(_)
    ));
    let nameless = marked(&nameless(1, "now"), MarkOnDisk::Absent);
    let weak = bound(offered(&nameless));
    assert!(matches!(
        agreement(&weak, CLUSTER, &nameless, date),
        Agreement::Mismatch(_)
    ));
}

#[test]
fn filesystem_in_memory_loses_its_mark_with_its_contents() {
    let date = world().snapshot.date;
    let volume = marked(&tmpfs(1, "/ours/fast/a"), MarkOnDisk::Absent);
    let pv = bound(offered(&volume));
    let agreement = agreement(&pv, CLUSTER, &volume, date);
    assert!(matches!(agreement, Agreement::Lags(_)), "{agreement:?}");
}

#[test]
fn plan_writes_what_agrees_and_reports_what_does_not() {
    let volume = fs(1);
    let unused = offered(&volume);
    let used = bound(unused.clone());
    for (what, pv, on_disk, expected) in [
        (
            "first bind",
            with(used.clone(), |pv| pv.used = false),
            valid(MarkState::Offered),
            &["patch pv: used=true mark=used", "a is Bound"][..],
        ),
        (
            "adoption",
            with(used.clone(), |pv| pv.offer = None),
            MarkOnDisk::Absent,
            &["patch pv: offer=uid-pv mark=used", "a is Bound"],
        ),
        (
            "in use",
            used.clone(),
            foreign(MarkState::Used),
            &["VolumeMarkMismatch of pv", "a is MarkMismatch"],
        ),
        (
            "never used",
            unused.clone(),
            valid(MarkState::Used),
            &["delete pv", "a is Terminating"],
        ),
        (
            "annotation lost",
            with(used.clone(), |pv| pv.offer = None),
            valid(MarkState::Used),
            &["patch pv: offer=token", "a is Bound"],
        ),
        (
            "kept in mid-wipe",
            with(released(unused.clone()), |pv| {
                (pv.deleting, pv.policy) = (true, ReclaimPolicy::Retain);
                pv.finalizers = vec![FINALIZER.into()];
            }),
            valid(MarkState::Wiping),
            &["mark /mnt/fast/a used", "a is Skipped"],
        ),
        (
            "a wipe for an earlier PV",
            used.clone(),
            MarkOnDisk::Valid(with(mark(MarkState::Wiping), |it| it.pv_uid = "old".into())),
            &["mark /mnt/fast/a used", "a is Bound"],
        ),
        // Only the gate judges a PV that is due, on the locked volume.
        (
            "due",
            released(unused.clone()),
            foreign(MarkState::Used),
            &["clean pv", "a is Due"],
        ),
    ] {
        let world = world().fast("a", &marked(&volume, on_disk));
        world.pv(pv).expect(what, expected);
    }
}

#[test]
fn accepted_mismatch_is_settled_by_a_new_mark() {
    let volume = marked(&fs(1), foreign(MarkState::Used));
    let consent = format!("accept:{}", volume.identity.text);
    let pv = with(bound(offered(&volume)), |pv| pv.consent = Some(consent));
    assert_eq!(pv.phase, Phase::Bound);
    let world = world().fast("a", &volume).pv(pv);
    world.expect("accepted", &["patch pv: mark=used", "a is Bound"]);
}

#[test]
fn marked_unused_pv_has_no_finalizer() {
    let volume = marked(&fs(1), valid(MarkState::Offered));
    let protected = |mut world: World| {
        world.config.protect_released_data = true;
        world
    };
    let held = with(offered(&volume), |pv| {
        pv.finalizers = vec![FINALIZER.into()];
    });
    let world = protected(world().fast("a", &volume));
    let expected = ["patch pv: finalizers=[]", "a is Available"];
    world.clone().pv(held).expect("upgrade", &expected);
    let used = with(bound(offered(&volume)), |pv| pv.used = false);
    let used_volume = marked(&fs(1), valid(MarkState::Used));
    let finalizer = format!("patch pv: used=true finalizers=[{FINALIZER:?}]");
    let world = protected(super::kit::world().fast("a", &used_volume));
    world
        .pv(used)
        .expect("first bind", &[&finalizer, "a is Bound"]);
}
