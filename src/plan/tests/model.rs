//! A world that does what a plan says: an API server and disks, as far as plans can tell.

use std::collections::BTreeMap;

use super::kit::{World, made, with};
use crate::names::{
    ANNOTATION_CONSENT, ANNOTATION_IDENTITY, ANNOTATION_INSTALLATION, ANNOTATION_PROVISIONED_BY,
    ANNOTATION_USED, FINALIZER, LABEL_HOSTNAME, LABEL_IDENTITY_HASH,
};
use crate::plan::{Action, CleanupState, JobWrite, OtherPvs, Patch, PvDraft, Withdrawal};
use crate::quantity;
use crate::view::{Phase, PvRef, PvView};

/// The world after all actions; what was being written is written.
pub fn apply(mut world: World, actions: Vec<Action>) -> World {
    world.snapshot.ledger.writing.clear();
    world.snapshot.ledger.creating.clear();
    let mut pvs: BTreeMap<String, PvView> =
        world.pvs().iter().map(|pv| (pv.name.clone(), pv.clone())).collect();
    for action in actions {
        match action {
            Action::Create(draft) => create(&mut pvs, &draft),
            Action::Patch(change) => patch(looked_at(&mut pvs, &change.pv), change),
            Action::Withdraw(withdrawal) => withdraw(&mut pvs, withdrawal),
            Action::Clean(order) => {
                looked_at(&mut pvs, &order.pv.reference());
                pvs.remove(&order.pv.name);
                let released = CleanupState::Released;
                world = world.cleanup(&order.pv, released);
            }
            Action::WriteMark(_)
            | Action::FindPv(_)
            | Action::TakeOver(_)
            | Action::Unlink(_)
            | Action::Link(_)
            | Action::TakeIn(_)
            | Action::LabelNode(_) => {
                unreachable!("no volume of the model has a mark, and no class a rule")
            }
            Action::WriteJob(_, JobWrite::Disown) => {}
            Action::Suspend(tenancy, on) => {
                if let Some(cleanup) = world.snapshot.ledger.cleanups.get_mut(&tenancy) {
                    cleanup.suspended = on;
                }
            }
            Action::Cancel(cancel) => match cancel.job {
                Some(job) => drop(world.snapshot.jobs.remove(&job.name)),
                None => drop(world.snapshot.ledger.cleanups.remove(&cancel.tenancy)),
            },
            Action::FindOwners(queries) => {
                for query in queries {
                    let found = OtherPvs { hash: query.identity.hash, ..OtherPvs::default() };
                    world.snapshot.ledger.others.insert(query.key, found);
                }
            }
            Action::Release(tenancy) => {
                let done = world.snapshot.ledger.cleanups.get_mut(&tenancy).unwrap();
                pvs.remove(&done.pv);
                done.state = CleanupState::Released;
            }
            Action::Track(track) => {
                let pv = pvs[&track.pv].clone();
                world = world.cleanup_on(&pv, track.state, track.basis);
            }
            Action::WriteJob(job, _) => {
                world.snapshot.jobs.remove(&job.name);
            }
            Action::Forget(tenancy) => {
                let forgotten = world.snapshot.ledger.cleanups.remove(&tenancy).unwrap();
                assert!(!forgotten.running, "a cleanup at work was forgotten");
            }
        }
    }
    pvs.retain(|_, pv| !pv.deleting || pv.phase == Phase::Bound || !pv.finalizers.is_empty());
    world.snapshot.pvs = Some(pvs.into_values().collect());
    world
}

/// The object that a write is for, if it is still the one that was looked at.
fn looked_at<'a>(pvs: &'a mut BTreeMap<String, PvView>, wanted: &PvRef) -> &'a mut PvView {
    let pv = pvs.get_mut(&wanted.name).unwrap();
    assert_eq!(pv.reference(), *wanted, "a write must name the version that was looked at");
    pv
}

fn create(pvs: &mut BTreeMap<String, PvView>, draft: &PvDraft) {
    let free = [&draft.name, &draft.second_name].into_iter().find(|name| !pvs.contains_key(*name));
    let made = with(made(draft), |pv| {
        pv.name.clone_from(free.unwrap());
        (pv.uid, pv.resource_version) = (format!("uid-{}", pv.name), "1".into());
        pv.phase = Phase::Available;
    });
    pvs.insert(made.name.clone(), made);
}

fn patch(pv: &mut PvView, change: Patch) {
    for (key, value) in change.annotations {
        match key {
            ANNOTATION_IDENTITY => pv.identity = value,
            ANNOTATION_USED => {
                (pv.used, pv.use_is_unverified) = (true, value.as_deref() != Some("true"));
            }
            ANNOTATION_PROVISIONED_BY => pv.provisioned_by = value,
            ANNOTATION_CONSENT => pv.consent = value,
            ANNOTATION_INSTALLATION => pv.installation = value,
            other => panic!("{other} is not for the plan to write"),
        }
    }
    for (key, value) in change.labels {
        match key {
            LABEL_HOSTNAME => pv.hostname_label = value,
            LABEL_IDENTITY_HASH => pv.identity_hash = value,
            other => panic!("{other} is not for the plan to write"),
        }
    }
    if let Some(finalizers) = change.finalizers {
        let added = finalizers.contains(&FINALIZER.to_owned()) && !pv.has_finalizer();
        assert!(!(added && pv.deleting), "the API refuses finalizers on Terminating PVs");
        pv.finalizers = finalizers;
    }
    if let Some(owners) = change.owners {
        pv.owners = owners;
    }
    if let Some(bytes) = change.capacity {
        let current = pv.capacity.as_deref().and_then(quantity::parse);
        let grows = current.is_some_and(|current| current < bytes);
        assert!(pv.claim.is_none() || grows, "a claim counts on the capacity");
        pv.capacity = Some(quantity::format(bytes));
    }
    pv.resource_version.push('+');
}

fn withdraw(pvs: &mut BTreeMap<String, PvView>, withdrawal: Withdrawal) {
    let pv = looked_at(pvs, &withdrawal.pv);
    assert!(
        pv.deleting || withdrawal.finalizers.is_none(),
        "it must be Terminating before its finalizer goes"
    );
    pv.deleting = true;
    if let Some(finalizers) = withdrawal.finalizers {
        pv.finalizers = finalizers;
    }
    pv.resource_version.push('+');
    if pv.finalizers.is_empty() {
        let name = pv.name.clone();
        pvs.remove(&name);
    }
}
