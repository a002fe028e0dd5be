//! What holds of every plan, whatever the world.

use std::sync::Arc;

use proptest::prelude::*;

use super::due::expected as expected_due;
use super::kit::*;
use super::model::apply;
use super::random::{GONE, any_world, found};
use crate::config::{DiscoveryPolicy, MissingVolumePolicy, WeakIdentity};
use crate::host::footprint::overlap;
use crate::host::identity::{Match, compare, only_rebooted};
use crate::inventory::{Candidate, Contents, Finding, Observation};
use crate::plan::consent::{consent as naming, consents_to_forget};
use crate::plan::verdict::Due;
use crate::plan::{Action, CleanOrder, Plan, PvDraft, reasons};
use crate::quantity;
use crate::types::HostPath;
use crate::view::{Phase, PvRef, PvView, ReclaimPolicy};

fn creates(plan: &Plan) -> impl Iterator<Item = &PvDraft> {
    plan.actions.iter().filter_map(|action| match action {
        Action::Create(draft) => Some(&**draft),
        _ => None,
    })
}

fn cleans(plan: &Plan) -> impl Iterator<Item = &CleanOrder> {
    plan.actions.iter().filter_map(|action| match action {
        Action::Clean(order) => Some(&**order),
        _ => None,
    })
}

/// The object that a write is for.
fn written(action: &Action) -> Option<PvRef> {
    match action {
        Action::Patch(patch) => Some(patch.pv.clone()),
        Action::Clean(order) => Some(order.pv.reference()),
        Action::Withdraw(withdrawal) => Some(withdrawal.pv.clone()),
        _ => None,
    }
}

fn within(a: &HostPath, b: &HostPath) -> bool {
    a.is_within(b) || b.is_within(a)
}

/// Whether the volumes at two paths share storage, by their paths and by what was found there.
fn share(world: &World, a: &HostPath, b: &HostPath) -> bool {
    let both = found(world, a).zip(found(world, b));
    within(a, b) || both.is_some_and(|(a, b)| overlap(&a.footprint, &b.footprint).is_some())
}

fn on_node(world: &World) -> impl Iterator<Item = &PvView> {
    let node = world.snapshot.node.as_ref().unwrap();
    world.pvs().iter().filter(|pv| pv.hostnames.contains(&node.hostname))
}

fn active_paths(world: &World) -> impl Iterator<Item = &HostPath> {
    let cleanups = world.snapshot.ledger.cleanups.values();
    cleanups.filter(|cleanup| cleanup.is_active()).map(|cleanup| &cleanup.path)
}

/// Whether a disk may be wiped for a PV, as far as identities go.
fn is_the_disk_of(world: &World, pv: &PvView, disk: &Candidate, weak: WeakIdentity) -> bool {
    if pv.consent == Some(naming("wipe", Some(pv), disk)) {
        return true;
    }
    let same = |other: &PvView| other.identity.as_ref() == Some(&disk.identity.text);
    if !disk.identity.weak && on_node(world).any(|other| other.uid != pv.uid && same(other)) {
        return false;
    }
    match &pv.identity {
        None => pv.capacity == Some(quantity::offered(disk.capacity)),
        Some(recorded) => match compare(recorded, &disk.identity) {
            Match::Same => true,
            Match::Unknown => {
                weak == WeakIdentity::Accept && only_rebooted(recorded, &disk.identity)
            }
            Match::Different => false,
        },
    }
}

/// Whether another installation manages a PV.
fn is_others(world: &World, pv: &PvView) -> bool {
    pv.installation.is_some() && pv.installation != world.installation
}

/// What forbids an order to clean.
fn forbidden(world: &World, order: &CleanOrder) -> Option<&'static str> {
    let (pv, node) = (&order.pv, world.snapshot.node.as_ref().unwrap());
    let name_only = world.config.use_node_name_only;
    let by = pv.provisioned_by.as_deref().unwrap_or_default();
    let bare = "local-volume-provisioner-node-1";
    let ours = if name_only {
        by == bare || by.starts_with("local-volume-provisioner-node-1-")
    } else {
        by == OURS
    };
    let labelled = pv.hostname_label.as_ref() == Some(&node.hostname);
    let Some(class) = world.config.classes.get(&pv.class) else {
        return Some("class");
    };
    let disk = found(world, &order.volume.path);
    let others = || on_node(world).filter(|other| other.uid != pv.uid);
    let rules = [
        ("the PV is not as it was", !world.pvs().contains(pv)),
        ("not due", expected_due(pv) != Due::Yes),
        ("not ours", !ours || (name_only && by != bare && !labelled)),
        ("another installation's", is_others(world, pv)),
        ("not on this node", !pv.hostnames.contains(&node.hostname)),
        ("paused", world.config.pause_cleaning || node.paused || pv.paused),
        ("another path", pv.path() != Some(&order.volume.path)),
        ("another class", *class != order.volume.class),
        ("not in its class's directory", order.volume.path.child_of(&class.host_dir).is_none()),
        ("an incomplete scan", !world.snapshot.observed[&pv.class].complete),
        ("no volume", disk.is_none()),
        ("read-only", disk.is_some_and(|disk| disk.read_only)),
        ("the wrong mode", pv.mode != class.volume_mode),
        (
            "another disk",
            disk.is_some_and(|disk| !is_the_disk_of(world, pv, disk, class.weak_identity)),
        ),
        (
            "another PV's storage",
            others().filter_map(PvView::path).any(|path| share(world, path, &order.volume.path)),
        ),
        ("being cleaned", active_paths(world).any(|path| *path == order.volume.path)),
        ("being written", world.snapshot.ledger.writing.contains(&pv.name)),
    ];
    rules.into_iter().find(|(_, broken)| *broken).map(|(rule, _)| rule)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn plans_come_to_rest(world in any_world()) {
        let mut world = world;
        for _ in 0..8 {
            let plan = world.plan();
            if plan.actions.is_empty() {
                let again = world.plan();
                prop_assert_eq!(plan.classes, again.classes);
                return Ok(());
            }
            world = apply(world, plan.actions);
        }
        prop_assert!(false, "still at it: {:#?}", words(&world.plan()));
    }

    #[test]
    fn a_world_and_its_plan_are_one(world in any_world()) {
        let (a, b) = (world.plan(), world.clone().plan());
        prop_assert_eq!(a.actions, b.actions);
        prop_assert_eq!(a.notices, b.notices);
        prop_assert_eq!(a.classes, b.classes);
        prop_assert_eq!(a.not_ready, b.not_ready);
    }

    #[test]
    fn one_path_and_one_device_have_one_pv(world in any_world()) {
        let plan = world.plan();
        let drafts: Vec<_> = creates(&plan).collect();
        for (at, draft) in drafts.iter().enumerate() {
            for other in &drafts[..at] {
                prop_assert!(!share(&world, &draft.volume.path, &other.volume.path), "{draft:#?} {other:#?}");
            }
            for pv in on_node(&world) {
                let shared = pv.path().is_some_and(|path| share(&world, path, &draft.volume.path));
                prop_assert!(!shared, "{draft:#?} {pv:#?}");
                let disk = &found(&world, &draft.volume.path).unwrap().identity;
                let same = !disk.weak && pv.identity.as_ref() == Some(&disk.text);
                prop_assert!(!same, "{draft:#?} {pv:#?}");
            }
        }
    }

    #[test]
    fn nothing_is_offered_that_a_pv_is_being_created_for(world in any_world()) {
        for draft in creates(&world.plan()) {
            let disk = &found(&world, &draft.volume.path).unwrap().identity;
            for (path, identity) in &world.snapshot.ledger.creating {
                let same = !disk.weak && disk.text == *identity;
                prop_assert!(!within(path, &draft.volume.path) && !same, "{path} {draft:#?}");
            }
        }
    }

    #[test]
    fn nothing_is_offered_that_is_being_cleaned(world in any_world()) {
        let plan = world.plan();
        for draft in creates(&plan) {
            for path in active_paths(&world) {
                let both = found(&world, path).zip(found(&world, &draft.volume.path));
                let shared = both.is_some_and(|(a, b)| overlap(&a.footprint, &b.footprint).is_some());
                prop_assert!(*path != draft.volume.path && !shared, "{path} {draft:#?}");
            }
        }
    }

    #[test]
    fn only_what_may_be_cleaned_is_cleaned(world in any_world()) {
        let plan = world.plan();
        for order in cleans(&plan) {
            prop_assert_eq!(forbidden(&world, order), None, "{:#?}", order);
        }
    }

    #[test]
    fn an_incomplete_scan_changes_nothing(world in any_world()) {
        let complete = |class: &str| world.snapshot.observed.get(class).is_some_and(|it| it.complete);
        // An unused PV that is not an entry of its class on this node goes once its disk is seen at another PV's path.
        let is_replaced = |pv: &PvView| {
            let dir = world.config.classes.get(&pv.class).map(|it| &it.host_dir);
            let is_entry = pv.path().zip(dir).is_some_and(|(path, dir)| path.child_of(dir).is_some());
            let is_inside = is_entry && on_node(&world).any(|it| it.uid == pv.uid);
            let scans = world.snapshot.observed.values().filter(|it| it.complete);
            !is_inside && pv.never_used() && scans.flat_map(Observation::volumes).any(|it| {
                let disk = &it.candidate.identity;
                let is_at = |other: &PvView| other.uid != pv.uid && other.path() == Some(&it.path);
                !disk.weak && Some(&disk.text) == pv.identity.as_ref() && world.pvs().iter().any(is_at)
            })
        };
        for action in world.plan().actions {
            match action {
                Action::Create(draft) => prop_assert!(complete(&draft.volume.class.name)),
                Action::Clean(order) => prop_assert!(complete(&order.pv.class)),
                Action::Withdraw(withdrawal) if withdrawal.finalizers.is_none() => {
                    let pv = world.pvs().iter().find(|pv| pv.uid == withdrawal.pv.uid).unwrap();
                    let consented = consents_to_forget(pv);
                    prop_assert!(complete(&pv.class) || is_replaced(pv) || consented, "{pv:#?}");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn every_write_names_what_was_looked_at_and_only_one_is_made(world in any_world()) {
        let plan = world.plan();
        let writes: Vec<_> = plan.actions.iter().filter_map(written).collect();
        for (at, write) in writes.iter().enumerate() {
            let pv = world.pvs().iter().find(|pv| pv.name == write.name).unwrap();
            prop_assert_eq!(&pv.reference(), write);
            prop_assert!(!write.uid.is_empty() && !write.resource_version.is_empty());
            prop_assert!(!world.snapshot.ledger.writing.contains(&write.name));
            prop_assert!(!writes[..at].contains(write), "two writes to {write:?}");
            prop_assert!(pv.provisioned_by.as_deref() != Some(FOREIGN), "another provisioner's");
            let is_gone = pv.installation.as_deref() == Some(GONE);
            prop_assert!(is_gone || !is_others(&world, pv), "another installation's");
        }
    }

    #[test]
    fn the_pv_of_a_used_volume_is_not_deleted_unwiped(world in any_world()) {
        for action in world.plan().actions {
            let Action::Withdraw(withdrawal) = action else { continue };
            let pv = world.pvs().iter().find(|pv| pv.uid == withdrawal.pv.uid).unwrap();
            let untouched = matches!(pv.phase, Phase::Pending | Phase::Available)
                && pv.claim.is_none() && !pv.used && !pv.bound_by_controller;
            let consented = consents_to_forget(pv);
            let retained = pv.policy == ReclaimPolicy::Retain && pv.deleting;
            prop_assert!(untouched || consented || retained, "{withdrawal:#?} {pv:#?}");
        }
    }

    #[test]
    fn what_a_volume_holds_decides_only_whether_it_is_offered(world in any_world()) {
        let without = |mut world: World| {
            for class in world.config.classes.values_mut() {
                Arc::make_mut(class).discovery_policy = DiscoveryPolicy::Any;
            }
            world.plan()
        };
        let (plan, anyway) = (world.plan(), without(world.clone()));
        for draft in creates(&plan) {
            let choosy = draft.volume.class.discovery_policy;
            let contents = &found(&world, &draft.volume.path).unwrap().contents;
            prop_assert!(choosy == DiscoveryPolicy::Any || *contents == Contents::Empty, "{draft:#?}");
        }
        let key = |order: &CleanOrder| order.pv.uid.clone();
        prop_assert_eq!(cleans(&plan).map(key).collect::<Vec<_>>(), cleans(&anyway).map(key).collect::<Vec<_>>());
        let others = |plan: &Plan| {
            let to_pvs = plan.actions.iter().filter_map(written);
            to_pvs.collect::<Vec<_>>()
        };
        prop_assert_eq!(others(&plan), others(&anyway));
    }

    #[test]
    fn a_missing_volume_takes_no_pv_with_it_that_matters(world in any_world()) {
        for action in world.plan().actions {
            let Action::Withdraw(withdrawal) = action else { continue };
            if withdrawal.reason != reasons::VOLUME_MISSING {
                continue;
            }
            let pv = world.pvs().iter().find(|pv| pv.uid == withdrawal.pv.uid).unwrap();
            let class = &world.config.classes[&pv.class];
            let (path, snapshot) = (pv.path().unwrap(), &world.snapshot);
            let seen = &snapshot.observed[&pv.class];
            let since = snapshot.ledger.missing_since.get(&pv.uid);
            let absent = match seen.entries.get(path.child_of(&class.host_dir).unwrap()) {
                None => true,
                Some(Finding::Skipped(skip)) => skip.gone,
                Some(Finding::Volume(_)) => false,
            };
            let rules = [
                class.missing_volume_policy == MissingVolumePolicy::Delete,
                pv.phase == Phase::Available && pv.claim.is_none(),
                !pv.used && !pv.bound_by_controller && !pv.deleting,
                absent && seen.complete && seen.volumes().count() > 0,
                since.is_some_and(|since| *since + MISSING_LIMIT <= snapshot.now),
            ];
            prop_assert_eq!(rules, [true; 5], "{:#?}", pv);
        }
    }

    #[test]
    fn a_terminating_pv_keeps_our_finalizer_until_it_may_go(world in any_world()) {
        for action in world.plan().actions {
            let Action::Patch(patch) = action else { continue };
            let pv = world.pvs().iter().find(|pv| pv.uid == patch.pv.uid).unwrap();
            prop_assert!(!pv.deleting || patch.finalizers.is_none(), "{patch:#?}");
        }
    }
}

/// The properties say little of worlds in which nothing happens.
#[test]
fn random_worlds_are_eventful() {
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..3000 {
        let plan = any_world().new_tree(&mut runner).unwrap().current().plan();
        let told = plan.actions.iter().filter_map(|action| match action {
            Action::Withdraw(withdrawal) => Some(format!("for-{}", withdrawal.reason)),
            _ => None,
        });
        for word in words(&plan).into_iter().chain(told) {
            let subject = |part: &&str| !part.starts_with("pv-") && !part.starts_with('/');
            let kind = word.split(' ').filter(subject).take(1).collect::<String>();
            *counts.entry(kind).or_default() += 1;
        }
    }
    for kind in [
        "create",
        "clean",
        "delete",
        "let",
        "patch",
        "forget",
        "VolumeDuplicate",
        "VolumeIdentityMismatch",
        "for-VolumeMissing",
    ] {
        assert!(counts.get(kind).is_some_and(|count| *count >= 15), "{kind}: {counts:?}");
    }
}
