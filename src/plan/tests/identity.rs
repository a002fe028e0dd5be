//! Whether the disk at a PV's path is the one that the PV was made for.

use super::kit::*;
use super::mark::{mark, marked, offered};
use crate::config::WeakIdentity;
use crate::host::mark::{MarkOnDisk, MarkState};
use crate::inventory::Candidate;
use crate::plan::consent::{consent as naming, forget};
use crate::view::{Phase, PvView};

/// `fast/a` is `found`, and has a PV made for `recorded`.
fn seen(found: &Candidate, recorded: &Candidate) -> (World, PvView) {
    (world().fast("a", found), pv("pv-a", "/mnt/fast/a", recorded))
}

const MISMATCH: &str = "VolumeIdentityMismatch of pv-a";
const RECORDED: &str = "patch pv-a: identity=v1:fs=ext4,root=/,uuid=u2 (VolumeIdentityRecorded)";

#[test]
fn another_disk_withdraws_an_unused_pv_and_is_reported_for_a_used_one() {
    let (world, a) = seen(&fs(2), &fs(1));
    let told = &[MISMATCH, "a is IdentityMismatch"][..];
    let withdrawn = &["delete pv-a", "a is Terminating"][..];
    let phase = |phase| with(retained(released(a.clone())), |pv| pv.phase = phase);
    for (situation, pv, expected) in [
        ("Available, never used", a.clone(), withdrawn),
        ("Pending, never used", with(a.clone(), |pv| pv.phase = Phase::Pending), withdrawn),
        ("reserved", with(a.clone(), |pv| pv.claim = Some(claim())), told),
        ("used before", with(a.clone(), |pv| pv.used = true), told),
        ("bound before", with(a.clone(), |pv| pv.bound_by_controller = true), told),
        ("Bound", bound(a.clone()), told),
        ("Released, kept", retained(released(a.clone())), told),
        (
            "Failed",
            with(phase(Phase::Failed), |pv| {
                pv.policy = crate::view::ReclaimPolicy::Delete;
            }),
            &[MISMATCH, "VolumeFailedDelete of pv-a", "a is IdentityMismatch"],
        ),
        ("due", released(a.clone()), told),
        ("due and Terminating", terminating(released(a.clone())), told),
    ] {
        world.clone().pv(pv).expect(situation, expected);
    }
}

#[test]
fn a_pv_without_an_identity_gets_one_while_it_is_offered_or_used() {
    let (world, a) = seen(&fs(2), &fs(2));
    let a = without_identity(a);
    for (situation, pv, expected) in [
        ("Available", a.clone(), &[RECORDED, "a is Available"][..]),
        ("Bound", bound(a.clone()), &[RECORDED, "a is Bound"]),
        ("Released, kept", retained(released(a.clone())), &["a is Retained"]),
        ("due, all as it was", released(a.clone()), &["clean pv-a", "a is Due"]),
        (
            "due, of another size",
            with(released(a.clone()), |pv| pv.capacity = Some("99Gi".into())),
            &[MISMATCH, "a is IdentityMismatch"],
        ),
        (
            "due, without a size",
            with(released(a.clone()), |pv| pv.capacity = None),
            &[MISMATCH, "a is IdentityMismatch"],
        ),
    ] {
        world.clone().pv(pv).expect(situation, expected);
    }
}

#[test]
fn swapped_disks_are_never_cleaned_for_one_another() {
    let world = || world().fast("a", &fs(2)).fast("b", &fs(1));
    let (a, b) = (pv("pv-a", "/mnt/fast/a", &fs(1)), pv("pv-b", "/mnt/fast/b", &fs(2)));
    let told_b = ["VolumeIdentityMismatch of pv-b", "b is IdentityMismatch"];
    let bound_b = || world().pv(bound(b.clone()));
    bound_b()
        .pv(released(a.clone()))
        .expect("one is due", &[MISMATCH, "a is IdentityMismatch", told_b[0], told_b[1]]);
    bound_b().pv(a.clone()).expect(
        "one was never used: it goes",
        &["delete pv-a", "a is Terminating", told_b[0], told_b[1]],
    );
    bound_b().pv(without_identity(a.clone())).expect(
        "one was never used and is of the Go provisioner: it goes too",
        &["delete pv-a", "a is Terminating", told_b[0], told_b[1]],
    );
    bound_b().pv(without_identity(released(a.clone()))).expect(
        "one is due and of the Go provisioner: its size fits, but the disk is the other's",
        &[MISMATCH, "a is IdentityMismatch", told_b[0], told_b[1]],
    );
    bound_b().pv(without_identity(bound(a))).expect(
        "one is used and of the Go provisioner: the disk's name is not written on it",
        &["a is Bound", told_b[0], told_b[1]],
    );
}

#[test]
fn a_disk_that_two_pvs_claim_to_be_is_not_cleaned() {
    let (world, a) = seen(&fs(1), &fs(1));
    let copy = with(bound(pv("pv-b", "/mnt/fast/b", &fs(1))), |pv| {
        pv.provisioned_by = None;
    });
    world
        .pv(released(a))
        .pv(copy)
        .expect("its identity is on another PV too", &[MISMATCH, "a is IdentityMismatch"]);
}

#[test]
fn an_unused_pv_goes_when_its_disk_is_at_another_pv() {
    let world = world().fast("b", &fs(1)).pv(pv("pv-b", "/mnt/fast/b", &fs(1)));
    let a = pv("pv-a", "/mnt/fast/a", &fs(1));
    let missing = &["VolumeMissing of pv-a", "a is Missing", "b is Available"][..];
    for (situation, a, expected) in [
        ("never used", a.clone(), &["delete pv-a", "a is Terminating", "b is Available"][..]),
        ("its own disk", pv("pv-a", "/mnt/fast/a", &fs(2)), missing),
        ("used", with(a, |pv| pv.used = true), missing),
    ] {
        world.clone().pv(a).expect(situation, expected);
    }
    let weak = nameless(1, "now");
    let world = self::world().fast("b", &weak).pv(pv("pv-b", "/mnt/fast/b", &weak));
    world.pv(pv("pv-a", "/mnt/fast/a", &weak)).expect("any disk has this identity", missing);
}

#[test]
fn a_nameless_device_cannot_prove_itself_after_a_reboot() {
    let (world, a) = seen(&nameless(1, "now"), &nameless(1, "before"));
    let accept =
        world.clone().change_class("fast", |class| class.weak_identity = WeakIdentity::Accept);
    let wipe = naming("wipe", Some(&a), &nameless(1, "now"));
    let consented = consent(released(a.clone()), wipe);
    let clean = &["clean pv-a", "a is Due"][..];
    for (situation, world, pv, expected) in [
        ("due", &world, released(a.clone()), &[MISMATCH, "a is IdentityMismatch"][..]),
        ("due, accepted by the class", &accept, released(a.clone()), clean),
        ("due, with consent", &world, consented, clean),
        ("Bound: nothing is wrong yet", &world, bound(a.clone()), &["a is Bound"]),
        (
            "reserved",
            &world,
            with(a.clone(), |pv| pv.claim = Some(claim())),
            &[MISMATCH, "a is IdentityMismatch"],
        ),
        ("never used", &world, a.clone(), &["delete pv-a", "a is Terminating"]),
    ] {
        world.clone().pv(pv).expect(situation, expected);
    }
}

/// Disks without a serial number can be exchanged by a reboot.
#[test]
fn nameless_device_of_an_unused_volume_is_proven_by_its_header() {
    let then = nameless(1, "before");
    let now = |state, header: &str, is_same| {
        let mark = with(mark(state), |it| it.header = Some(header.into()));
        with(marked(&nameless(1, "now"), MarkOnDisk::Valid(mark.clone())), |it| {
            it.mark.on_disk =
                MarkOnDisk::Valid(with(mark, |it| it.identity_hash = then.identity.hash()));
            it.is_as_offered = is_same;
        })
    };
    let tenant = bound(pv("pv-b", "/mnt/fast/b", &nameless(2, "before")));
    let identity = "identity=v1:boot=now,link=/dev/nameless1,size=1000";
    let recorded = format!("patch pv: {identity} mark=offered (VolumeIdentityRecorded)");
    let kept = &[recorded.as_str(), "a is Available"][..];
    let withdrawn = &["delete pv", "a is Terminating"][..];
    let (offered_again, dirty) = (
        &["create /mnt/fast/a", "a is Creating"][..],
        &["VolumeDirty of Node node-1", "a is Skipped as Dirty"][..],
    );
    for (what, header, is_same, has_tenant, of_pv, without_pv) in [
        ("the same", "ab", true, true, kept, offered_again),
        ("blank, no tenant", "uniform-00", true, false, kept, offered_again),
        ("blank, another tenant", "uniform-00", true, true, withdrawn, dirty),
        ("changed", "ab", false, false, withdrawn, dirty),
    ] {
        let with_tenant = |world: World| {
            if has_tenant { world.pv(tenant.clone()) } else { world }
        };
        let volume = now(MarkState::Offered, header, is_same);
        let world = with_tenant(world().fast("a", &volume).pv(offered(&then)));
        let words = words(&world.plan());
        let words: Vec<_> =
            words.iter().filter(|it| !it.starts_with("b ") && !it.contains("pv-b")).collect();
        assert_eq!(words, of_pv, "{what}");
        let volume = now(MarkState::Free, header, is_same);
        let mut world = with_tenant(super::kit::world().fast("a", &volume));
        let searched = &mut world.snapshot.ledger.searched;
        searched.insert(volume.mark.on_disk.digest());
        let words = super::kit::words(&world.plan());
        let words: Vec<_> =
            words.iter().filter(|it| !it.starts_with("b ") && !it.contains("pv-b")).collect();
        assert_eq!(words, without_pv, "{what}");
    }
}

#[test]
fn what_a_class_accepts_is_a_reboot_and_nothing_else() {
    let accepting = |found: &Candidate| {
        world()
            .change_class("fast", |class| class.weak_identity = WeakIdentity::Accept)
            .fast("a", found)
    };
    let recorded = |text: &str| {
        with(released(pv("pv-a", "/mnt/fast/a", &fs(1))), |pv| {
            pv.identity = Some(text.into());
        })
    };
    let weak = nameless(1, "now");
    for (situation, found, text) in [
        ("a text of a later version", &weak, "v2:whatever"),
        ("a text that is none", &weak, "garbage"),
        ("an empty one", &weak, ""),
        ("another link", &weak, "v1:boot=before,link=/dev/nameless2,size=1000"),
        ("another size", &weak, "v1:boot=before,link=/dev/nameless1,size=2000"),
        ("a strong one that is unreadable", &fs(1), "garbage"),
        ("another disk", &disk(1), "v1:wwid=disk-2"),
    ] {
        let world = accepting(found).pv(recorded(text));
        world.expect(situation, &[MISMATCH, "a is IdentityMismatch"]);
    }
}

#[test]
fn consent_is_for_exactly_the_disk_that_it_names() {
    let (world, a) = seen(&fs(2), &fs(1));
    let other = with(a.clone(), |pv| pv.uid = "another PV".into());
    let wipe = naming("wipe", Some(&a), &fs(2));
    let refused = &[MISMATCH, "a is IdentityMismatch"][..];
    for (text, expected) in [
        (wipe.clone(), &["clean pv-a", "a is Due"][..]),
        (forget(&a), &["delete pv-a", "a is Terminating"]),
        (naming("wipe", Some(&a), &fs(1)), refused),
        (naming("wipe", Some(&other), &fs(2)), refused),
        (naming("wipe", None, &fs(2)), refused),
        (naming("forget", Some(&a), &fs(2)), refused),
        (forget(&other), refused),
        (format!("{wipe} "), refused),
        (wipe.to_uppercase(), refused),
        ("wipe:".into(), refused),
        ("forget:".into(), refused),
        ("true".into(), refused),
        (String::new(), refused),
    ] {
        let world = world.clone().pv(consent(released(a.clone()), &*text));
        world.expect(&text, expected);
    }
}

#[test]
fn consent_touches_nothing_that_is_not_due() {
    let (world, a) = seen(&fs(2), &fs(1));
    for text in [naming("wipe", Some(&a), &fs(2)), forget(&a)] {
        let reported = [MISMATCH, "a is IdentityMismatch"];
        for pv in [bound(a.clone()), retained(released(a.clone()))] {
            let world = world.clone().pv(consent(pv, &*text));
            world.expect(&text, &reported);
        }
    }
}

#[test]
fn a_pv_can_be_forgotten_whatever_is_at_its_path() {
    let due = released(pv("pv-a", "/mnt/fast/a", &fs(1)));
    let forget = |pv: PvView| consent(pv.clone(), forget(&pv));
    let goes = ["delete pv-a", "a is Terminating"];
    world().pv(forget(due.clone())).expect("nothing is there", &goes);
    world().fast("a", &fs(2)).pv(forget(due.clone())).expect("another disk", &goes);
    let paused = with(forget(due.clone()), |pv| pv.paused = true);
    world().fast("a", &fs(2)).pv(paused).expect("while cleaning is paused", &goes);
    world()
        .pv(forget(terminating(due.clone())))
        .expect("it is Terminating", &["let pv-a go", "a is Terminating"]);
    let none = forget(without_identity(due));
    world().pv(none).expect("no recorded identity", &goes);
}
