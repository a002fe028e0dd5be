//! `missingVolumePolicy: Delete`: when a PV goes with its disk, and when not.

use std::sync::Arc;

use std::time::Duration;

use super::kit::*;
use super::model::apply;
use crate::config::MissingVolumePolicy;
use crate::inventory::{Finding, Skip};
use crate::plan::Action;
use crate::types::SkipReason;
use crate::view::{Phase, PvView};

fn a() -> PvView {
    pv("pv-a", "/mnt/fast/a", &fs(1))
}

/// A class with the policy, and a volume in it that is there.
fn strict() -> World {
    world()
        .change_class("fast", |class| {
            class.missing_volume_policy = MissingVolumePolicy::Delete;
        })
        .fast("z", &fs(9))
        .pv(pv("pv-z", "/mnt/fast/z", &fs(9)))
}

const Z: &str = "z is Available";

/// The next pass, so much later.
fn later(world: &World, by: Duration) -> World {
    let plan = world.plan();
    with(world.clone(), |world| {
        world.snapshot.ledger.missing_since = plan.missing_since;
        world.snapshot.now += by;
    })
}

fn deletes(world: &World) -> bool {
    let gone = |action: &Action| matches!(action, Action::Withdraw(it) if it.pv.name == "pv-a");
    world.plan().actions.iter().any(gone)
}

/// Whether it is deleted when all stays as it is.
fn is_deleted(world: &World) -> bool {
    assert!(!deletes(world), "at once");
    let almost = later(world, MISSING_LIMIT.saturating_sub(Duration::from_nanos(1)));
    assert!(!deletes(&almost), "too early");
    deletes(&later(&almost, Duration::from_nanos(1)))
}

fn no_target() -> Finding {
    let link = Skip::new(SkipReason::NotADirectoryOrBlockDevice, "a link to nothing");
    Finding::Skipped(link.gone())
}

#[test]
fn an_unused_pv_goes_when_its_volume_has_been_missing_for_long_enough() {
    for (situation, world, state) in [
        ("vanished", strict(), "a is Missing"),
        (
            "not mounted",
            strict().entry("fast", "a", SkipReason::NotMounted),
            "a is NotMounted as NotMounted",
        ),
        (
            "a link to nothing",
            strict().entry("fast", "a", no_target()),
            "a is Missing as NotADirectoryOrBlockDevice",
        ),
    ] {
        let world = world.pv(a());
        let reason =
            if state.contains("NotMounted") { "VolumeNotMounted" } else { "VolumeMissing" };
        world.expect(situation, &[&format!("{reason} of pv-a"), state, Z]);
        let in_time = later(&world, MISSING_LIMIT);
        let plan = in_time.plan();
        let [Action::Withdraw(withdrawal)] = &plan.actions[..] else {
            panic!("{situation}: {:?}", plan.actions)
        };
        assert!(withdrawal.finalizers.is_none(), "{situation}");
        assert_eq!(withdrawal.pv, a().reference(), "{situation}");
        assert_eq!(withdrawal.reason, "VolumeMissing", "{situation}");
        assert!(withdrawal.because.contains("missingVolumePolicy"), "{situation}");
        assert!(is_deleted(&world), "{situation}");
    }
}

#[test]
fn a_missing_pv_that_may_be_used_or_is_not_ours_stays() {
    for (situation, pv) in [
        ("bound", bound(a())),
        ("released and kept", retained(released(a()))),
        ("reserved for a claim", with(a(), |pv| pv.claim = Some(claim()))),
        ("used before", with(a(), |pv| pv.used = true)),
        ("bound once", with(a(), |pv| pv.bound_by_controller = true)),
        ("not yet Available", with(a(), |pv| pv.phase = Phase::Pending)),
        ("made by hand", with(a(), |pv| pv.provisioned_by = None)),
        ("of the node's former self", with(a(), |pv| pv.provisioned_by = Some(FORMER.into()))),
        ("of another node", with(a(), |pv| pv.hostnames = vec!["host-2".into()])),
    ] {
        assert!(!is_deleted(&strict().pv(pv)), "{situation}");
    }
}

#[test]
fn a_pv_stays_whose_volume_may_be_there() {
    let absent = |reason| strict().entry("fast", "a", reason);
    for world in [
        absent(SkipReason::Unreadable),
        absent(SkipReason::TimedOut),
        absent(SkipReason::NoCapacity),
        absent(SkipReason::NamePatternMismatch),
        absent(SkipReason::NotADirectoryOrBlockDevice),
        strict().incomplete("fast"),
        strict().fast("a", &fs(1)),
        strict().change_class("fast", |class| class.host_dir = path("/mnt/other")),
        with(strict(), |world| world.config.classes.clear()),
    ] {
        assert!(!is_deleted(&world.clone().pv(a())), "{world:#?}");
    }
}

#[test]
fn a_missing_pv_stays_without_the_policy_or_while_it_is_written() {
    let lenient = strict().change_class("fast", |class| {
        class.missing_volume_policy = MissingVolumePolicy::Report;
    });
    assert!(!is_deleted(&lenient.pv(a())));
    let busy = with(strict(), |world| {
        world.snapshot.ledger.writing.insert("pv-a".to_owned());
    });
    assert!(!is_deleted(&busy.pv(a())));
}

#[test]
fn where_all_volumes_of_a_class_are_gone_none_is_deleted() {
    let pv_z = pv("pv-z", "/mnt/fast/z", &fs(9));
    let empty = world()
        .change_class("fast", |class| {
            class.missing_volume_policy = MissingVolumePolicy::Delete;
        })
        .class(class("slow"))
        .entry("slow", "y", fs(8))
        .pv(pv("pv-y", "/mnt/slow/y", &fs(8)))
        .pv(a())
        .pv(pv_z);
    assert!(!is_deleted(&empty), "no entry is left in the directory");
    let told = format!("{:?}", empty.plan().notices);
    assert!(told.contains("the PV stays, although"), "{told}");

    let none = SkipReason::NotMounted;
    let unmounted = empty.entry("fast", "a", none).entry("fast", "z", none);
    assert!(!is_deleted(&unmounted), "nothing is mounted in it");
    // When one is back, the others have been missing from then on only.
    let mut back = later(&unmounted, MISSING_LIMIT * 2);
    let observation = back.snapshot.observed.get_mut("fast").unwrap();
    Arc::make_mut(&mut observation.entries).pop_last();
    assert!(is_deleted(&back.fast("z", &fs(9))));
}

#[test]
fn an_interruption_restarts_the_limit() {
    let missing = strict().pv(a());
    let almost = later(&missing, MISSING_LIMIT / 2);
    for (situation, pass) in [
        ("it was back", almost.clone().fast("a", &fs(1))),
        ("the directory could not be read", almost.clone().incomplete("fast")),
        ("the PVs were not known", with(almost.clone(), |world| world.snapshot.pvs = None)),
        (
            "it was bound",
            with(almost.clone(), |world| {
                world.snapshot.pvs.get_or_insert_default().retain(|pv| pv.name != "pv-a");
                *world = world.clone().pv(bound(a()));
            }),
        ),
        (
            "a PV of the same name was created",
            with(almost.clone(), |world| {
                for pv in world.snapshot.pvs.iter_mut().flatten() {
                    pv.uid.push_str("-another");
                }
            }),
        ),
    ] {
        let after = with(missing.clone(), |world| {
            let next = later(&pass, MISSING_LIMIT / 2);
            world.snapshot.ledger.missing_since = next.snapshot.ledger.missing_since;
            world.snapshot.now = next.snapshot.now;
        });
        assert!(is_deleted(&after), "{situation}: from then on");
    }
    assert!(deletes(&later(&almost, MISSING_LIMIT / 2)), "without one");
}

#[test]
fn a_disk_that_is_back_gets_a_new_pv() {
    let gone = later(&strict().pv(a()), MISSING_LIMIT);
    let plan = gone.plan();
    let gone = apply(gone, plan.actions);
    gone.expect("the PV is gone", &[Z]);
    gone.fast("a", &fs(1)).expect("the disk is back", &["create /mnt/fast/a", "a is Creating", Z]);
}
