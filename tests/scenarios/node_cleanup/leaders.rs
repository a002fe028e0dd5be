//! Two processes, of which one acts.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Patch, PatchParams};
use nix::sys::signal::Signal;

use super::*;

fn lease(stage: &Stage) -> LeaseSpec {
    let api: Api<Lease> = Api::namespaced(stage.client.clone(), &stage.namespace());
    let lease = stage
        .block_on(api.get("local-volume-node-cleanup"))
        .unwrap();
    lease.spec.unwrap()
}

fn is_follower(stage: &Stage, program: &mut Program) {
    stage.eventually("it follows", || {
        program
            .log()
            .contains("is the leader; this process waits")
            .then_some(())
    });
    let (code, word) = program.http_get("/healthz").unwrap();
    assert_eq!((code, word.as_str()), (200, "follower\n"));
    assert_eq!(program.http_get("/ready").unwrap().0, 200);
}

#[test]
fn a_leader_that_ends_hands_over_at_once() {
    let (stage, node) = or_skip!(ground());
    let pv = bound(&stage, "data", &node);
    let args = ["--pvc-deletion-delay=4s"];
    let mut first = leader(&stage, "first", &args);
    let mut second = cleanup(&stage, "second", &args);
    is_follower(&stage, &mut second);
    let holder = lease(&stage).holder_identity.unwrap();
    assert!(holder.starts_with("provisioner-pod_"), "{holder}");
    lose(&stage, &node);
    timer_starts(&stage, &pv);
    first.stop(stage.patience()).unwrap();
    is_leader(&stage, &mut second);
    let now = lease(&stage);
    assert_ne!(now.holder_identity.as_ref(), Some(&holder));
    assert_eq!(now.lease_transitions, Some(2), "given back, and taken");
    claim_goes(&stage, "data");
    pv_goes(&stage, &pv);
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), 1);
    assert_eq!(writes(&stage, Verb::Delete, PVS), 1);
}

/// The API server does what it was asked, and its answer is lost. Told to end before the next try, the
/// process gives back what it does not know it has.
fn is_given_back(lost: Verb, reads: usize) {
    let stage = or_skip!(stage());
    stage.storage_class("fast", "Delete", "Immediate").unwrap();
    let of_leases = |verb| stage.faults().on(verb).resource("leases");
    let lost = of_leases(lost).times(1).reset_after();
    let next_try = of_leases(Verb::Get).skip(reads).times(1).hold();
    let mut cleanup = cleanup(&stage, "cleanup", &[]);
    stage.eventually("it hears nothing, and tries again", || {
        (next_try.hits() == 1).then_some(())
    });
    assert_eq!(lost.hits(), 1);
    let holder = lease(&stage).holder_identity.unwrap();
    assert!(holder.starts_with("provisioner-pod_"), "{holder}");
    cleanup.stop(stage.patience()).unwrap();
    let holder = lease(&stage).holder_identity.unwrap_or_default();
    assert_eq!(holder, "", "{}", cleanup.log());
}

#[test]
fn a_lease_is_given_back_by_a_process_that_was_not_told_that_it_had_it() {
    is_given_back(Verb::Create, 1);
}

#[test]
fn a_lease_is_given_back_after_a_renewal_that_was_not_answered() {
    is_given_back(Verb::Update, 2);
}

fn patch_lease(stage: &Stage, patch: Value) {
    let (patch, params) = (Patch::Merge(patch), PatchParams::default());
    let api: Api<Lease> = Api::namespaced(stage.client.clone(), &stage.namespace());
    let patched = api.patch("local-volume-node-cleanup", &params, &patch);
    stage.block_on(patched).unwrap();
}

/// Writes to the lease between a leader's look at it and its renewal. Whether that has met the conflict:
/// a leader waits four seconds for an answer, and the machine may be slow.
fn is_written_beside_a_renewal(stage: &Stage, patch: Value) -> bool {
    let begun = stage.requests().mark();
    let renewals = stage.faults().on(Verb::Update).resource("leases");
    let held = renewals.times(1).hold();
    stage.eventually("it renews", || (held.hits() == 1).then_some(()));
    patch_lease(stage, patch);
    let mark = stage.requests().mark();
    held.clear();
    let of_leases = |r: &Request, verb| r.verb == verb && r.resource == "leases";
    stage.eventually("it looks again", || {
        let later = stage.requests().since(mark);
        later
            .iter()
            .find_map(|r| of_leases(r, Verb::Get).then_some(()))
    });
    let met = |r: &Request| of_leases(r, Verb::Update) && r.status() == 409;
    stage.requests().since(begun).iter().any(|r| met(r))
}

#[test]
fn a_leader_that_somebody_else_writes_beside_stays_the_leader() {
    let stage = or_skip!(stage());
    let mut cleanup = leader(&stage, "cleanup", &[]);
    let seen = json!({ "metadata": { "annotations": { "example.com/seen": "yes" } } });
    stage.eventually("a renewal meets a conflict", || {
        is_written_beside_a_renewal(&stage, seen.clone()).then_some(())
    });
    let before = lease(&stage);
    stage.eventually("it has renewed it", || {
        let leads = cleanup.http_get("/ready").ok()?.1 == "leader\n";
        assert!(leads, "{}", cleanup.log());
        (lease(&stage) != before).then_some(())
    });
    let log = cleanup.log();
    assert!(!log.contains("another process"), "{log}");
}

/// As when the lease is deleted, and another process is the first to make it anew.
#[test]
fn a_leader_whose_lease_is_taken_while_it_renews_it_leads_no_longer() {
    let stage = or_skip!(stage());
    let mut cleanup = leader(&stage, "cleanup", &[]);
    let held_by = |holder: &str| json!({ "spec": { "holderIdentity": holder } });
    stage.eventually("a renewal meets a conflict", || {
        let met = is_written_beside_a_renewal(&stage, held_by("pod-9"));
        stage.eventually("it follows", || {
            (cleanup.http_get("/healthz").ok()?.1 == "follower\n").then_some(())
        });
        if !met {
            patch_lease(&stage, held_by(""));
            is_leader(&stage, &mut cleanup);
        }
        met.then_some(())
    });
    let log = cleanup.log();
    assert!(log.contains("pod-9 is the leader"), "{log}");
    let led_on = "the object has changed since it was looked at";
    assert!(!log.contains(led_on), "{log}");
}

/// It takes the fifteen seconds of the lease.
#[test]
fn a_leader_that_is_killed_is_replaced_and_nothing_is_deleted_twice_or_early() {
    let (stage, node) = or_skip!(ground());
    let pvs: Vec<_> = (0..10)
        .map(|number| bound(&stage, &format!("data-{number}"), &node))
        .collect();
    let args = ["--pvc-deletion-delay=5s", "--requests-per-second=10"];
    let mut first = leader(&stage, "first", &args);
    let mut second = cleanup(&stage, "second", &args);
    is_follower(&stage, &mut second);
    let begun = Instant::now();
    lose(&stage, &node);
    stage.within(Duration::from_secs(20), "the first claim goes", || {
        (writes(&stage, Verb::Delete, CLAIMS) > 0).then_some(())
    });
    assert!(begun.elapsed() > Duration::from_secs(5));
    first.kill();
    let killed = Instant::now();
    let mark = stage.requests().mark();
    stage.within(Duration::from_secs(25), "the second one leads", || {
        (second.http_get("/ready").ok()?.1 == "leader\n").then_some(())
    });
    assert!(
        killed.elapsed() > Duration::from_secs(10),
        "the lease kept it out: {:?}",
        killed.elapsed()
    );
    for (number, pv) in pvs.iter().enumerate() {
        claim_goes(&stage, &format!("data-{number}"));
        pv_goes(&stage, pv);
    }
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), 10, "each once");
    assert_eq!(writes(&stage, Verb::Delete, PVS), 10, "each once");
    let early = stage.requests().since(mark);
    let early = early
        .iter()
        .filter(|r| r.resource != "leases" && r.at < killed + Duration::from_secs(5));
    assert_eq!(early.count(), 0, "only the lease is asked for without it");
}

/// A leader that hears nothing from the API server must not act, even if it does not know what
/// became of the lease.
#[test]
fn a_leader_that_was_stopped_for_long_does_not_act_on_what_it_knew() {
    let (stage, node) = or_skip!(ground());
    let pv = bound(&stage, "data", &node);
    let mut first = leader(&stage, "first", &["--pvc-deletion-delay=10s"]);
    // The other one would wait for an hour.
    let mut second = cleanup(&stage, "second", &["--pvc-deletion-delay=1h"]);
    is_follower(&stage, &mut second);
    lose(&stage, &node);
    timer_starts(&stage, &pv);
    first.signal(Signal::SIGSTOP).unwrap();
    stage.within(Duration::from_secs(25), "the second one leads", || {
        (second.http_get("/ready").ok()?.1 == "leader\n").then_some(())
    });
    let mark = stage.requests().mark();
    first.signal(Signal::SIGCONT).unwrap();
    is_follower(&stage, &mut first);
    stage.eventually("it goes on following", || {
        let asked = stage.requests().since(mark);
        let leases = |verb| {
            let of_leases = |r: &&Arc<Request>| r.verb == verb && r.resource == "leases";
            asked.iter().filter(of_leases).count()
        };
        // The leader writes after each look.
        (leases(Verb::Get) > leases(Verb::Update) + 2).then_some(())
    });
    assert_eq!(stage.claim_phase("data"), "Bound");
    assert_eq!(writes(&stage, Verb::Delete, CLAIMS), 0);
    assert_eq!(
        first.http_get("/healthz").unwrap(),
        (200, "follower\n".into())
    );
}
