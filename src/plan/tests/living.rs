//! What is kept right, and told, while a PV can be used.

use super::kit::*;
use crate::names::FINALIZER;
use crate::plan::Action;
use crate::types::{SkipReason, VolumeMode};
use crate::view::{Phase, PvView, ReclaimPolicy};

const PROTECTION: &str = "kubernetes.io/pv-protection";

fn a() -> PvView {
    pv("pv-a", "/mnt/fast/a", &fs(1))
}

#[test]
fn a_pv_that_is_as_it_ought_to_be_is_left_alone() {
    for (pv, state) in [
        (a(), "a is Available"),
        (bound(a()), "a is Bound"),
        (retained(released(a())), "a is Retained"),
        (with(bound(a()), |pv| pv.deleting = true), "a is Terminating"),
    ] {
        world().fast("a", &fs(1)).pv(pv).expect(state, &[state]);
    }
}

#[test]
fn a_pv_that_is_seen_bound_is_used_for_ever() {
    let unmarked = with(bound(a()), |pv| pv.used = false);
    let marked = ["patch pv-a: used=true", "a is Bound"];
    world().fast("a", &fs(1)).pv(unmarked.clone()).expect("bound", &marked);
    // A restored API server may have bound it to a claim whose tenant has not seen its disk.
    let missing = ["patch pv-a: used=unverified", "VolumeMissing of pv-a", "a is Missing"];
    world().pv(unmarked.clone()).expect("bound, its disk gone", &missing);
    let unread = ["patch pv-a: used=unverified", "a is Bound"];
    world()
        .incomplete("fast")
        .pv(unmarked.clone())
        .expect("bound, its directory unreadable", &unread);
    let back = with(unmarked, |pv| {
        (pv.used, pv.use_is_unverified) = (true, true);
    });
    world().fast("a", &fs(1)).pv(back).expect("its disk is back", &marked);
    let again = with(a(), |pv| pv.used = true);
    world().fast("a", &fs(1)).pv(again).expect("Available again", &["a is Available"]);
}

#[test]
fn the_finalizer_follows_configuration_and_policy() {
    let held = |pv: PvView| {
        with(pv, |pv| {
            pv.finalizers = vec![PROTECTION.into(), FINALIZER.into()];
        })
    };
    let free = |pv: PvView| with(pv, |pv| pv.finalizers = vec![PROTECTION.into()]);
    let recycled = |pv: PvView| with(pv, |pv| pv.policy = ReclaimPolicy::Recycle);
    let deleting = |pv: PvView| with(pv, |pv| pv.deleting = true);
    let added = format!("patch pv-a: finalizers={:?}", [PROTECTION, FINALIZER]);
    let taken_off = format!("patch pv-a: finalizers={:?}", [PROTECTION]);
    for (situation, protect, pv, action) in [
        ("on: added", true, free(a()), Some(&added)),
        ("on: added to a bound one", true, free(bound(a())), Some(&added)),
        ("on: stays", true, held(a()), None),
        ("on: kept data needs none", true, free(retained(a())), None),
        ("on: the policy became Retain", true, held(retained(a())), Some(&taken_off)),
        ("on: a policy that is not supported", true, held(recycled(a())), None),
        ("on: never added to one that is", true, free(recycled(a())), None),
        ("on: never added to a Terminating one", true, deleting(free(bound(a()))), None),
        ("off: taken off", false, held(a()), Some(&taken_off)),
        ("off: taken off a bound one", false, held(bound(a())), Some(&taken_off)),
        ("off: not from a Terminating one", false, deleting(held(bound(a()))), None),
        ("off: none", false, free(a()), None),
    ] {
        let world = world().config(|config| config.protect_released_data = protect);
        let actions: Vec<_> = words(&world.fast("a", &fs(1)).pv(pv).plan())
            .into_iter()
            .filter(|word| !word.contains(" is "))
            .collect();
        assert_eq!(actions.first(), action, "{situation}");
        assert!(actions.len() < 2, "{situation}");
    }
}

#[test]
fn a_pv_that_goes_keeps_the_finalizers_of_others() {
    let pv = with(terminating(a()), |pv| {
        pv.finalizers.insert(0, PROTECTION.into());
    });
    let plan = world().fast("a", &fs(1)).pv(pv).plan();
    let [Action::Withdraw(withdrawal)] = &plan.actions[..] else { panic!("{:?}", plan.actions) };
    assert_eq!(withdrawal.finalizers, Some(vec![PROTECTION.to_owned()]));
    assert!(withdrawal.finalizers.is_some());
}

#[test]
fn a_volume_that_is_not_well_is_told_of() {
    let block = |pv| with(pv, |pv: &mut PvView| pv.mode = VolumeMode::Block);
    let none = |reason| world().entry("fast", "a", reason);
    for (situation, world, pv, expected) in [
        ("vanished", world(), a(), &["VolumeMissing of pv-a", "a is Missing"][..]),
        (
            "not mounted",
            none(SkipReason::NotMounted),
            bound(a()),
            &["VolumeNotMounted of pv-a", "a is NotMounted as NotMounted"],
        ),
        (
            "unreadable",
            none(SkipReason::Unreadable),
            a(),
            &["VolumeMissing of pv-a", "a is Unhealthy as Unreadable"],
        ),
        (
            "read-only",
            world().fast("a", &with(fs(1), |fs| fs.read_only = true)),
            a(),
            &["VolumeReadOnly of pv-a", "a is Available"],
        ),
        (
            "a directory where a device was",
            none(SkipReason::ModeMismatch)
                .change_class("fast", |c| c.volume_mode = VolumeMode::Block),
            block(a()),
            &["VolumeFailedDelete of pv-a", "a is Unhealthy as ModeMismatch"],
        ),
        (
            "the same in a class that became Filesystem",
            world().fast("a", &fs(1)),
            block(a()),
            &["VolumeFailedDelete of pv-a", "a is Unhealthy"],
        ),
        ("its directory unreadable", world().incomplete("fast"), a(), &["a is Available"]),
    ] {
        world.pv(pv).expect(situation, expected);
    }
}

#[test]
fn all_that_is_to_be_changed_is_one_patch() {
    let pv = with(without_identity(bound(a())), |pv| {
        (pv.used, pv.hostname_label) = (false, None);
    });
    let world =
        world().config(|config| config.protect_released_data = true).fast("a", &fs(1)).pv(pv);
    let patch = format!(
        "patch pv-a: identity=v1:fs=ext4,root=/,uuid=u1 used=true label=host-1 \
         finalizers={:?} (VolumeAdopted) (VolumeIdentityRecorded)",
        [FINALIZER]
    );
    world.expect("everything is missing", &[&patch, "a is Bound"]);
}

#[test]
fn capacity_of_a_bound_pv_of_an_expandable_class_only_grows() {
    for (size, expected) in [(200 * GIB, Some("patch pv-a: capacity=200Gi")), (40 * GIB, None)] {
        let volume = with(fs(1), |fs| fs.capacity = size);
        let pv = bound(with(a(), |pv| pv.capacity = Some("100Gi".into())));
        let class = with(storage_class(ReclaimPolicy::Delete), |it| {
            it.expandable = true;
        });
        let world = world().storage_class("fast", Some(class));
        let found = words(&world.fast("a", &volume).pv(pv).plan());
        let found = found.iter().find(|word| word.starts_with("patch"));
        assert_eq!(found.map(String::as_str), expected, "{size}");
    }
}

#[test]
fn capacity_of_an_available_pv_follows_the_growth_of_its_volume() {
    let pv = |capacity: &str| with(a(), |pv| pv.capacity = Some(capacity.into()));
    let sized = |bytes| with(fs(1), |fs| fs.capacity = bytes);
    let another = |bytes| with(fs(2), |fs| fs.capacity = bytes);
    let used = |pv| with(pv, |pv: &mut PvView| pv.used = true);
    for (situation, pv, volume, expected) in vec![
        ("it shrank", pv("100Gi"), sized(40 * GIB), Some("delete pv-a")),
        ("it grew", pv("100Gi"), sized(101 * GIB), Some("patch pv-a: capacity=101Gi")),
        ("less than a unit", pv("100Gi"), sized(101 * GIB - 1), None),
        ("the same in other words", pv("102400Mi"), sized(100 * GIB), None),
        ("in decimal", pv("20M"), sized(20_000_000), None),
        ("in decimal, equal", pv("9M"), sized(9_000_000), None),
        ("not to be read", pv("1.5Ti"), sized(40 * GIB), None),
        ("the disk was exchanged", pv("100Gi"), another(40 * GIB), Some("delete pv-a")),
        ("it has data of a former claim", used(pv("100Gi")), sized(40 * GIB), None),
        (
            "reserved for a claim",
            with(pv("100Gi"), |pv| pv.claim = Some(claim())),
            sized(40 * GIB),
            None,
        ),
        ("Bound", bound(pv("100Gi")), sized(200 * GIB), None),
        ("Released and kept", retained(released(pv("100Gi"))), sized(40 * GIB), None),
        (
            "not Available yet",
            with(pv("100Gi"), |pv| pv.phase = Phase::Pending),
            sized(40 * GIB),
            Some("delete pv-a"),
        ),
    ] {
        let plan = world().fast("a", &volume).pv(pv).plan();
        let found = words(&plan)
            .into_iter()
            .find(|word| word.starts_with("patch") || word.starts_with("delete"));
        assert_eq!(found.as_deref(), expected, "{situation}");
    }
    world().fast("a", &another(40 * GIB)).pv(used(pv("100Gi"))).expect(
        "another disk, and a former claim's data somewhere",
        &["VolumeIdentityMismatch of pv-a", "a is IdentityMismatch"],
    );
}
