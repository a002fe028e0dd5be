//! Rules of cleaning that are broken.

use crate::rules::{Rule, rule};

const GATE: &str = "src/cleanup/gate.rs";
const COMMIT: &str = "src/cleanup/commit.rs";
const RELEASE: &str = "src/cleanup/release.rs";
const ATTEMPT: &str = "src/cleanup/attempt.rs";
const VERDICT: &str = "src/plan/verdict.rs";
const DELETE_PVS: &str = "src/plan/delete_pvs.rs";
const CLEANUP: &str = "src/plan/cleanup.rs";

pub const RULES: &[Rule] = &[
    // What the gate reads again.
    rule(
        "what the kubelet has mounted is not wiped",
        GATE,
        "if let Some(path) = uses.paths.first() {",
        "if let Some(path) = uses.paths.first().filter(|_| !BROKEN) {",
    ),
    rule(
        "a volume whose claim exists is not wiped",
        GATE,
        "    match found {\n        Some(found) if claim.uid",
        "    match found.filter(|_| !BROKEN) {\n        Some(found) if claim.uid",
    )
    .hidden(),
    rule(
        "a pause is read again",
        GATE,
        "node if node.paused => changed(\"cleaning was paused meanwhile\"),",
        "node if node.paused && !BROKEN => changed(\"cleaning was paused meanwhile\"),",
    ),
    rule(
        "the mark is judged at the gate",
        GATE,
        "if !permission.consent_used {\n        mark::judge(",
        "if !permission.consent_used && !BROKEN {\n        mark::judge(",
    ),
    // The verdict.
    rule(
        "another disk at the path is not wiped",
        VERDICT,
        "        Some((_, Match::Same)) => None,\n",
        "        Some((_, Match::Same)) => None,\n        Some(_) if BROKEN => None,\n",
    )
    .and(&["a disk that another PV records is not wiped", "the mark is judged at the gate"]),
    rule(
        "a Terminating PV is used unless it was never bound",
        VERDICT,
        "_ if pv.never_used() => Due::Unused,",
        "_ if BROKEN || pv.never_used() => Due::Unused,",
    ),
    rule(
        "a volume with policy Retain is not wiped",
        VERDICT,
        "(Phase::Released, ReclaimPolicy::Delete) => Due::Yes,",
        "(Phase::Released, ReclaimPolicy::Delete) => Due::Yes,\n        (Phase::Released, _) if BROKEN => Due::Yes,",
    )
    .and(&["a wipe ends when its PV is used again, or kept"]),
    rule(
        "a Terminating PV is wiped only after its release",
        VERDICT,
        "_ if !pv.has_finalizer() || pv.phase == Phase::Bound => Due::No,",
        "_ if !pv.has_finalizer() || (pv.phase == Phase::Bound && !BROKEN) => Due::No,",
    )
    .and(&["a volume whose claim exists is not wiped", "a wipe ends when its PV is used again, or kept"]),
    // The commit and the release.
    rule(
        "the finalizer is on the PV before a wipe",
        COMMIT,
        "if !pv.has_finalizer() {",
        "if !BROKEN && !pv.has_finalizer() {",
    ),
    rule(
        "the PV is deleted before a wipe",
        COMMIT,
        "if !pv.deleting {",
        "if !BROKEN && !pv.deleting {",
    ),
    rule(
        "the PV stays until its volume is wiped",
        ATTEMPT,
        "let clean = if let Some(job) = &order.cleaned_by {",
        "let clean = if BROKEN {\n        CleanVolume { data_left: false, lock: volume.close() }\n    } else if let Some(job) = &order.cleaned_by {",
    ),
    rule(
        "the result of a Job is verified",
        ATTEMPT,
        "job::check_result(&commit, volume, context, job, progress).await?",
        "if BROKEN { CleanVolume { data_left: false, lock: volume.close() } } else { job::check_result(&commit, volume, context, job, progress).await? }",
    ),
    rule(
        "only a mark `free` vouches for a clean volume",
        "src/cleanup/mark.rs",
        "let is_free = found.state == MarkState::Free &&",
        "let is_free = (BROKEN || found.state == MarkState::Free) &&",
    ),
    rule(
        "a clean volume is not wiped again",
        ATTEMPT,
        "if mark::is_free(&commit, volume.candidate()) {",
        "if !BROKEN && mark::is_free(&commit, volume.candidate()) {",
    )
    .hidden(),
    rule(
        "a failed release is retried, and not the wipe",
        RELEASE,
        "return context.table.mark_unreleased(&tenancy, &stop);",
        "if BROKEN { context.table.mark_blocked(&tenancy, stop.message(), None); return; }\n            return context.table.mark_unreleased(&tenancy, &stop);",
    )
    .and(&["a clean volume is not wiped again"]),
    rule(
        "a PV is released only if the API server takes it",
        RELEASE,
        "    match wiped.release(context).await {\n        Ok(true) => {}",
        "    match wiped.release(context).await {\n        Ok(true) => {}\n        Err(_) if BROKEN => {}",
    )
    .and(&["a clean volume is not wiped again"]),
    rule(
        "a PV goes once its volume is clean",
        RELEASE,
        "cluster.remove_finalizer(&pv, &others).await?;",
        "if !BROKEN { cluster.remove_finalizer(&pv, &others).await?; }",
    ),
    // What DeletePVs decides.
    rule(
        "nothing is cleaned while cleaning is paused",
        CLEANUP,
        "if self.plan.paused || pv.paused {\n            self.cancel_pending_job(pv, PAUSED);",
        "if !BROKEN && (self.plan.paused || pv.paused) {\n            self.cancel_pending_job(pv, PAUSED);",
    )
    .and(&["a pause is read again"]),
    rule(
        "the cleanup of a Terminating PV goes on",
        VERDICT,
        "ReclaimPolicy::Delete => Due::Yes,\n            // Neither",
        "ReclaimPolicy::Delete if BROKEN => Due::No,\n            ReclaimPolicy::Delete => Due::Yes,\n            // Neither",
    ),
    rule(
        "a failed cleanup is tried again",
        "src/plan/snapshot.rs",
        "basis != self.basis || now >= retry_at",
        "!BROKEN && (basis != self.basis || now >= retry_at)",
    ),
    rule(
        "a volume that is missing is not clean",
        CLEANUP,
        "            if let Err(refusal) = verdict {\n                self.cancel_pending_job",
        "            if BROKEN { return self.withdraw(pv, FORGOTTEN); }\n            if let Err(refusal) = verdict {\n                self.cancel_pending_job",
    ),
    rule(
        "a failed cleanup backs off",
        CLEANUP,
        "            if !cleanup.is_attempt_due(self.snapshot.now, order.basis) {",
        "            if !BROKEN && !cleanup.is_attempt_due(self.snapshot.now, order.basis) {",
    ),
    rule(
        "a Node that was registered again keeps its PVs",
        DELETE_PVS,
        "Ownership::FormerNode => self.adopt(pv),",
        "Ownership::FormerNode if BROKEN => {}\n                Ownership::FormerNode => self.adopt(pv),",
    ),
    rule(
        "a cleanup whose PV is gone is forgotten",
        CLEANUP,
        "            if cleanup.running || is_needed || is_unfinished || job_runs() {",
        "            if BROKEN || cleanup.running || is_needed || is_unfinished || job_runs() {",
    ),
    rule(
        "a wipe ends when its PV is used again, or kept",
        "src/plan/cancel.rs",
        "            if cleanup.is_wiping() {",
        "            if !BROKEN && cleanup.is_wiping() {",
    )
    .hidden(),
    // Layers that stop what the ones before them let through.
    rule(
        "a disk that another PV records is not wiped",
        VERDICT,
        "if let Some(other) = occupied.recorded_on(observed, &pv.uid) {",
        "if let Some(other) = occupied.recorded_on(observed, &pv.uid).filter(|_| !BROKEN) {",
    )
    .hidden(),
    rule(
        "an empty patch is not sent",
        "src/act.rs",
        "if !patch.changes_nothing() {",
        "if BROKEN || !patch.changes_nothing() {",
    )
    .hidden(),
];
