//! Volumes with a PV: the second table of docs/marks.md, and what the plan does about it.

use super::kit::*;
use super::mark::{TOKEN, foreign, mark, marked, offered, unreadable, valid};
use crate::host::mark::{MarkOnDisk, MarkState};
use crate::names::FINALIZER;
use crate::plan::consent::consent;
use crate::plan::{Agreement, agreement};
use crate::view::{PvLink, PvView, ReclaimPolicy};

#[test]
fn pv_and_mark_agree_or_are_reported() {
    use MarkState::{Free, Offered, Pending, Used, Wiping};
    let volume = fs(1);
    let unused = offered(&volume);
    let used = bound(unused.clone());
    let reserved = with(unused.clone(), |pv| pv.claim = Some(claim()));
    let deleting = with(released(unused.clone()), |pv| pv.deleting = true);
    let due = released(unused.clone());
    let kept = retained(due.clone());
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
        (
            "terminating, unused",
            &with(unused.clone(), |pv| pv.deleting = true),
            valid(Wiping),
            "agrees",
        ),
        (
            "terminating, in use",
            &with(used.clone(), |pv| pv.deleting = true),
            valid(Wiping),
            "mismatch",
        ),
        ("wiped", &deleting, valid(Free), "agrees"),
        ("wiping, released", &due, valid(Wiping), "agrees"),
        ("wiping, bound again", &used, valid(Wiping), "mismatch"),
        ("wiping, unused again", &unused, valid(Wiping), "mismatch"),
        ("wiping, kept", &kept, valid(Wiping), "used"),
        ("free, kept", &kept, valid(Free), "used"),
        ("free, bound again", &used, valid(Free), "used"),
        ("free, unused again", &unused, valid(Free), "offered"),
        ("API restored", &unused, valid(Used), "mismatch"),
        ("PV restored", &restored(&used), valid(Used), "mismatch"),
        ("restored and wiped", &restored(&used), valid(Free), "used"),
        ("another cluster", &used, foreign(Used), "mismatch"),
        ("another cluster", &used, foreign(Free), "mismatch"),
        ("unreadable", &used, unreadable(), "mismatch"),
        ("mark lost", &used, MarkOnDisk::Absent, "mismatch"),
        ("unused, mark lost", &unused, MarkOnDisk::Absent, "offered"),
        ("earlier version", &old(&used), MarkOnDisk::Absent, "used"),
        ("earlier version", &old(&unused), MarkOnDisk::Absent, "offered"),
        ("earlier version", &old(&restored(&used)), valid(Free), "used"),
        ("name taken", &old(&unused), pending("other"), "offered"),
        ("downgrade", &old(&restored(&used)), valid(Used), "used"),
        ("downgrade", &old(&restored(&deleting)), valid(Used), "mismatch"),
        ("downgrade", &old(&restored(&unused)), valid(Used), "mismatch"),
    ] {
        let found = marked(&volume, on_disk);
        let agreement = agreement(pv, CLUSTER, &found, world().snapshot.date);
        let agreement = match &agreement {
            Agreement::Agrees => "agrees",
            Agreement::Lags(mark) => {
                assert_eq!((&mark.pv_uid, &mark.cluster), (&pv.uid, &CLUSTER.to_owned()));
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
    assert!(matches!(agreement(&ours, CLUSTER, &found, date), Agreement::Lags(_)));
    let other = bound(offered(&fs(2)));
    assert!(matches!(agreement(&other, CLUSTER, &found, date), Agreement::Mismatch(_)));
    // A weak identity changes at a reboot.
    let weak = with(found, |it| it.identity.weak = true);
    assert_eq!(agreement(&ours, CLUSTER, &weak, date), Agreement::Agrees);
}

#[test]
fn lost_state_directory_is_written_again_for_a_proven_device() {
    let date = world().snapshot.date;
    let device = marked(&disk(1), MarkOnDisk::Absent);
    let ours = bound(offered(&disk(1)));
    assert!(matches!(agreement(&ours, CLUSTER, &device, date), Agreement::Lags(_)));
    let nameless = marked(&nameless(1, "now"), MarkOnDisk::Absent);
    let weak = bound(offered(&nameless));
    assert!(matches!(agreement(&weak, CLUSTER, &nameless, date), Agreement::Mismatch(_)));
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
            "claimed again after a restore of the API server",
            with(used.clone(), |pv| {
                pv.used = false;
                pv.claim.as_mut().unwrap().name = "later".into();
            }),
            valid(MarkState::Used),
            &["patch pv: used=unverified", "VolumeMarkMismatch of pv", "a is MarkMismatch"],
        ),
        (
            "the same, in the next pass",
            with(used.clone(), |pv| {
                pv.use_is_unverified = true;
                pv.claim.as_mut().unwrap().name = "later".into();
            }),
            valid(MarkState::Used),
            &["VolumeMarkMismatch of pv", "a is MarkMismatch"],
        ),
        ("never used", unused.clone(), valid(MarkState::Used), &["delete pv", "a is Terminating"]),
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
            &["VolumeMarkMismatch of pv", "a is MarkMismatch"],
        ),
        // Only the gate judges a PV that is due, on the locked volume.
        ("due", released(unused.clone()), foreign(MarkState::Used), &["clean pv", "a is Due"]),
    ] {
        let world = world().fast("a", &marked(&volume, on_disk));
        world.pv(pv).expect(what, expected);
    }
}

#[test]
fn accepted_mismatch_is_settled_by_a_new_mark() {
    let volume = marked(&fs(1), foreign(MarkState::Used));
    let used = bound(offered(&volume));
    let accept = consent("accept", Some(&used), &volume);
    let unwritable = with(volume.clone(), |it| it.mark.place = None);
    let restored = with(used.clone(), |pv| pv.uid = "restored".into());
    let mismatch = &["VolumeMarkMismatch of pv", "a is MarkMismatch"][..];
    for (what, pv, volume, expected) in [
        ("accepted", &used, &volume, &["patch pv: consent=(off) mark=used", "a is Bound"][..]),
        ("no place for the mark", &used, &unwritable, mismatch),
        ("PV restored with its annotations", &restored, &volume, mismatch),
    ] {
        let pv = with(pv.clone(), |pv| pv.consent = Some(accept.clone()));
        world().fast("a", volume).pv(pv).expect(what, expected);
    }
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
    world.pv(used).expect("first bind", &[&finalizer, "a is Bound"]);
}

#[test]
fn root_is_recorded_again_only_before_the_first_claim() {
    let date = world().snapshot.date;
    let unused = offered(&fs(1));
    let reserved = with(unused.clone(), |pv| pv.claim = Some(claim()));
    for (pv, kind, is_as_offered, expected) in [
        (&unused, fs(1), false, true),
        (&unused, fs(1), true, false),
        (&reserved, fs(1), false, false),
        (&unused, disk(1), false, false),
    ] {
        let volume = with(marked(&kind, valid(MarkState::Offered)), |it| {
            it.is_as_offered = is_as_offered;
        });
        let is_written = matches!(agreement(pv, CLUSTER, &volume, date), Agreement::Lags(_));
        assert_eq!(is_written, expected, "{pv:?} {volume:?}");
    }
}

#[test]
fn moved_disk_becomes_that_of_the_pv_which_names_the_old_one() {
    let (date, old) = (world().snapshot.date, "uid-pv:token");
    for (what, from, policy, of_claim, expected) in [
        ("moved", old, ReclaimPolicy::Retain, "data", true),
        ("another PV", "uid:token", ReclaimPolicy::Retain, "data", false),
        ("another claim", old, ReclaimPolicy::Retain, "other", false),
        ("not retained", old, ReclaimPolicy::Delete, "data", false),
    ] {
        let used = with(mark(MarkState::Used), |it| {
            it.claim = Some(format!("default/{of_claim}"));
        });
        let volume = marked(&fs(1), MarkOnDisk::Valid(used));
        let pv = with(bound(offered(&volume)), |pv| {
            (pv.uid, pv.moved_from) = ("new".into(), Some(from.into()));
            pv.policy = policy;
        });
        let is_written = matches!(agreement(&pv, CLUSTER, &volume, date), Agreement::Lags(_));
        assert_eq!(is_written, expected, "{what}");
    }
}

#[test]
fn claim_that_came_first_after_a_restore_of_the_api_is_a_mismatch() {
    let date = world().snapshot.date;
    let used = with(mark(MarkState::Used), |it| {
        it.claim = Some("default/late".into());
    });
    let volume = marked(&fs(1), MarkOnDisk::Valid(used));
    let recorded = bound(offered(&volume));
    let restored = with(recorded.clone(), |pv| pv.used = false);
    assert_eq!(agreement(&recorded, CLUSTER, &volume, date), Agreement::Agrees);
    let found = agreement(&restored, CLUSTER, &volume, date);
    assert!(matches!(found, Agreement::Mismatch(_)), "{found:?}");
}

#[test]
fn mark_of_an_earlier_claim_of_the_same_name_is_reported_with_both_uids() {
    let link = PvLink { token: TOKEN.into(), label: None };
    let pv = with(bound(offered(&fs(1))), |pv| pv.link = Some(link));
    let used = with(mark(MarkState::Used), |it| it.claim_uid = Some("earlier".into()));
    let volume = marked(&fs(1), MarkOnDisk::Valid(used));
    let found = agreement(&pv, CLUSTER, &volume, world().snapshot.date);
    let why = match found {
        Agreement::Mismatch(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(why.contains("of the claim with UID earlier, not claim-uid"), "{why}");
}
