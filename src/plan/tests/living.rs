//! What is kept right, and told, while a PV can be used.

use super::kit::*;
use crate::names::FINALIZER;
use crate::plan::Action;
use crate::types::{SkipReason, VolumeMode};
use crate::view::{PvView, ReclaimPolicy};

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
        (
            with(bound(a()), |pv| pv.deleting = true),
            "a is Terminating",
        ),
    ] {
        world().fast("a", &fs(1)).pv(pv).expect(state, &[state]);
    }
}

#[test]
fn a_pv_that_is_seen_bound_is_used_for_ever() {
    let unmarked = with(bound(a()), |pv| pv.used = false);
    let marked = ["patch pv-a: used=true", "a is Bound"];
    world()
        .fast("a", &fs(1))
        .pv(unmarked.clone())
        .expect("bound", &marked);
    let missing = [
        "patch pv-a: used=true",
        "VolumeMissing of pv-a",
        "a is Missing",
    ];
    world()
        .pv(unmarked.clone())
        .expect("bound, its disk gone", &missing);
    world()
        .incomplete("fast")
        .pv(unmarked)
        .expect("bound, its directory unreadable", &marked);
    let again = with(a(), |pv| pv.used = true);
    world()
        .fast("a", &fs(1))
        .pv(again)
        .expect("Available again", &["a is Available"]);
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
        (
            "on: added to a bound one",
            true,
            free(bound(a())),
            Some(&added),
        ),
        ("on: stays", true, held(a()), None),
        ("on: kept data needs none", true, free(retained(a())), None),
        (
            "on: the policy became Retain",
            true,
            held(retained(a())),
            Some(&taken_off),
        ),
        (
            "on: a policy that nobody knows how to serve",
            true,
            held(recycled(a())),
            None,
        ),
        (
            "on: never added to one that is",
            true,
            free(recycled(a())),
            None,
        ),
        (
            "on: never added to a Terminating one",
            true,
            deleting(free(bound(a()))),
            None,
        ),
        ("off: taken off", false, held(a()), Some(&taken_off)),
        (
            "off: taken off a bound one",
            false,
            held(bound(a())),
            Some(&taken_off),
        ),
        (
            "off: not from a Terminating one",
            false,
            deleting(held(bound(a()))),
            None,
        ),
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
    let [Action::Withdraw(withdrawal)] = &plan.actions[..] else {
        panic!("{:?}", plan.actions)
    };
    assert_eq!(withdrawal.finalizers, Some(vec![PROTECTION.to_owned()]));
    assert!(!withdrawal.delete);
}

#[test]
fn a_volume_that_is_not_well_is_told_of() {
    let block = |pv| with(pv, |pv: &mut PvView| pv.mode = VolumeMode::Block);
    let none = |reason| world().entry("fast", "a", reason);
    for (situation, world, pv, expected) in [
        (
            "vanished",
            world(),
            a(),
            &["VolumeMissing of pv-a", "a is Missing"][..],
        ),
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
            &[
                "VolumeFailedDelete of pv-a",
                "a is Unhealthy as ModeMismatch",
            ],
        ),
        (
            "the same in a class that became Filesystem",
            world().fast("a", &fs(1)),
            block(a()),
            &["VolumeFailedDelete of pv-a", "a is Unhealthy"],
        ),
        (
            "its directory unreadable",
            world().incomplete("fast"),
            a(),
            &["a is Available"],
        ),
    ] {
        world.pv(pv).expect(situation, expected);
    }
}

#[test]
fn all_that_is_to_be_changed_is_one_patch() {
    let pv = with(without_identity(bound(a())), |pv| {
        (pv.used, pv.hostname_label) = (false, None);
    });
    let world = world()
        .config(|config| config.protect_released_data = true)
        .fast("a", &fs(1))
        .pv(pv);
    let patch = format!(
        "patch pv-a: identity=v1:fs=ext4,root=/,uuid=u1 used=true label=host-1 \
         finalizers={:?} (VolumeAdopted) (VolumeIdentityRecorded)",
        [FINALIZER]
    );
    world.expect("everything is missing", &[&patch, "a is Bound"]);
}
