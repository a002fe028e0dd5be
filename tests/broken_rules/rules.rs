//! The rules that are broken, one at a time.

/// A rule of the program, and how it is broken.
#[derive(Debug)]
pub struct Rule {
    /// What no longer holds.
    pub name: &'static str,
    pub file: &'static str,
    /// The text of the rule, which is there once.
    pub text: &'static str,
    /// What replaces it. `BROKEN` is true while this rule is broken.
    pub broken: &'static str,
    /// The rules that stand behind this one, and are broken with it.
    pub behind: &'static [&'static str],
    pub is_hidden: bool,
}

impl Rule {
    /// With the rules that would stop what this one stops.
    const fn and(self, behind: &'static [&'static str]) -> Self {
        Self { behind, ..self }
    }

    /// It only stands behind others.
    const fn hidden(self) -> Self {
        Self {
            is_hidden: true,
            ..self
        }
    }
}

const fn rule(
    name: &'static str,
    file: &'static str,
    text: &'static str,
    broken: &'static str,
) -> Rule {
    Rule {
        name,
        file,
        text,
        broken,
        behind: &[],
        is_hidden: false,
    }
}

const GATE: &str = "src/cleanup/gate.rs";
const COMMIT: &str = "src/cleanup/commit.rs";
const RELEASE: &str = "src/cleanup/release.rs";
const ATTEMPT: &str = "src/cleanup/attempt.rs";
const JOB: &str = "src/cleanup/job.rs";
const VERDICT: &str = "src/plan/verdict.rs";
const DELETE_PVS: &str = "src/plan/delete_pvs.rs";
const CLEANUP: &str = "src/plan/cleanup.rs";
const ELIGIBLE: &str = "src/plan/eligible.rs";
const UPKEEP: &str = "src/plan/upkeep.rs";
const MARK: &str = "src/plan/mark.rs";
const MARKS: &str = "src/plan/marks.rs";

pub const RULES: &[Rule] = &[
    // What the gate reads again.
    rule(
        "the PV is read again, by its UID",
        GATE,
        "let Some(pv) = found.filter(|pv| pv.uid == order.pv.uid) else {",
        "let Some(pv) = Some(order.pv.clone()).filter(|_| BROKEN).or(found.filter(|pv| pv.uid == order.pv.uid)) else {",
    )
    .and(&["the commit is written although it changes nothing"]),
    rule(
        "a PV that is not due any more is not wiped",
        GATE,
        "} else if due(&pv) != Due::Yes || consents_to_forget(&pv) {",
        "} else if !BROKEN && (due(&pv) != Due::Yes || consents_to_forget(&pv)) {",
    ),
    rule(
        "what the kubelet has mounted is not wiped",
        GATE,
        "if let Some(path) = uses.paths.first() {",
        "if let Some(path) = uses.paths.first().filter(|_| !BROKEN) {",
    ),
    rule(
        "a volume whose claim exists is not wiped",
        GATE,
        "Some(found) if claim.uid.as_ref().is_none_or(|uid| *uid == found.uid) => {",
        "Some(found) if !BROKEN && claim.uid.as_ref().is_none_or(|uid| *uid == found.uid) => {",
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
        "a PV without a recorded identity is not wiped by its path",
        VERDICT,
        "None if pv.capacity.as_ref() == Some(&offered) => None,",
        "None if BROKEN || pv.capacity.as_ref() == Some(&offered) => None,",
    )
    .and(&["the mark is judged at the gate"]),
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
    ),
    rule(
        "a Terminating PV is wiped only after its release",
        VERDICT,
        "_ if !pv.has_finalizer() || pv.phase == Phase::Bound => Due::No,",
        "_ if !pv.has_finalizer() || (pv.phase == Phase::Bound && !BROKEN) => Due::No,",
    )
    .and(&["a volume whose claim exists is not wiped"]),
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
        "no pod of another Job is left before a wipe",
        COMMIT,
        "if order.candidate.kind == VolumeMode::Block {",
        "if !BROKEN && order.candidate.kind == VolumeMode::Block {",
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
        "is_same && is_its_disk && found.state == MarkState::Free",
        "is_same && is_its_disk && (BROKEN || found.state == MarkState::Free)",
    ),
    rule(
        "a mark `free` vouches for one PV",
        "src/cleanup/mark.rs",
        "&& found.pv_uid == mark.pv_uid\n        && found.release == mark.release\n        && mark.release.is_some();",
        "&& (BROKEN || found.pv_uid == mark.pv_uid)\n        && (BROKEN || found.release == mark.release)\n        && (BROKEN || mark.release.is_some());",
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
    // What DeletePVs decides.
    rule(
        "a volume that is missing is not clean",
        DELETE_PVS,
        "            if let Err(refusal) = verdict {\n                self.cancel_pending_job",
        "            if BROKEN { return self.withdraw(pv, NEVER_USED); }\n            if let Err(refusal) = verdict {\n                self.cancel_pending_job",
    ),
    rule(
        "a failed cleanup backs off",
        CLEANUP,
        "            if !cleanup.is_attempt_due(self.snapshot.now, order.basis) {",
        "            if !BROKEN && !cleanup.is_attempt_due(self.snapshot.now, order.basis) {",
    ),
    rule(
        "a Job of another tenancy is deleted first",
        CLEANUP,
        "        _ if !job.is_for(&order.pv.tenancy()) => {",
        "        _ if !BROKEN && !job.is_for(&order.pv.tenancy()) => {",
    )
    .and(&["a Job that cleaned goes before the PV"]),
    rule(
        "a Job that cleaned goes before the PV",
        CLEANUP,
        "        if let Some(job) = self.job_of(pv) {\n            if self.snapshot.now",
        "        if let Some(job) = self.job_of(pv).filter(|_| !BROKEN) {\n            if self.snapshot.now",
    ),
    // What is offered.
    rule(
        "a volume that is being cleaned is not offered",
        ELIGIBLE,
        "if self.cleaning.contains(path) || self.with_job.contains(path) {",
        "if !BROKEN && (self.cleaning.contains(path) || self.with_job.contains(path)) {",
    ),
    rule(
        "a volume that the scan found in use is not offered",
        ELIGIBLE,
        "if let Some(user) = &candidate.in_use {",
        "if let Some(user) = candidate.in_use.as_ref().filter(|_| !BROKEN) {",
    ),
    rule(
        "a disk that moved on a node is not offered again",
        ELIGIBLE,
        "if let Some(pv) = self.occupied.recorded_on(identity, \"\") {",
        "if let Some(pv) = self.occupied.recorded_on(identity, \"\").filter(|_| !BROKEN) {",
    ),
    rule(
        "a disk that moved to another node is not offered again",
        "src/act/owners.rs",
        "        let Some(query) = query(draft) else {",
        "        let Some(query) = query(draft).filter(|_| !BROKEN) else {",
    )
    .and(&["of two nodes that offer a disk, the younger PV goes"]),
    rule(
        "of two nodes that offer a disk, the younger PV goes",
        "src/plan/owners.rs",
        "        if let Some(other) = others.find(is_older).filter(|_| pv.never_used()) {",
        "        if let Some(other) = others.find(is_older).filter(|_| !BROKEN && pv.never_used()) {",
    )
    .and(&["a disk that moved to another node is not offered again"]),
    rule(
        "a volume is inspected before it is offered",
        "src/act/offer_checks.rs",
        "            Err(obstacle) => return Some((skip(path, kind, &obstacle), MAX_AGE)),\n        };\n        let unused",
        "            Err(_) if BROKEN => return None,\n            Err(obstacle) => return Some((skip(path, kind, &obstacle), MAX_AGE)),\n        };\n        let unused",
    )
    .and(&["a volume that the scan found in use is not offered"]),
    rule(
        "an unused PV goes when its disk is exchanged",
        UPKEEP,
        "            Some((recorded, _)) if pv.never_used() => {",
        "            Some((recorded, _)) if pv.never_used() && !BROKEN => {",
    ),
    rule(
        "nothing is patched that is as it should be",
        "src/plan/mod.rs",
        "if !patch.is_empty() && !self.is_busy(pv) {",
        "if (BROKEN || !patch.is_empty()) && !self.is_busy(pv) {",
    ),
    // Marks.
    rule(
        "a volume with the mark of a tenant is not offered",
        MARK,
        "MarkOnDisk::Unreadable { .. } => is_empty(),",
        "MarkOnDisk::Unreadable { .. } => BROKEN || is_empty(),",
    ),
    rule(
        "a mark of an unfinished offer is not clean",
        MARK,
        "        MarkState::Pending if is_own || (is_recent_device && candidate.is_as_offered) => {",
        "        MarkState::Pending | MarkState::Offered if BROKEN => Unowned::Clean,\n        MarkState::Pending if is_own || (is_recent_device && candidate.is_as_offered) => {",
    ),
    rule(
        "an offer has ended only with its own PV",
        MARK,
        "of_offer.any(|(_, uid)| mark.pv_uid.is_empty() || *uid == mark.pv_uid)",
        "of_offer.any(|(_, uid)| BROKEN || mark.pv_uid.is_empty() || *uid == mark.pv_uid)",
    ),
    rule(
        "an offer ends only unused",
        "src/cache/pvs.rs",
        "let offer = pv.offer.clone().filter(|_| pv.had_no_tenant());",
        "let offer = pv.offer.clone().filter(|_| BROKEN || pv.had_no_tenant());",
    ),
    rule(
        "a PV that was restored is held while the mark is another's",
        MARK,
        "        _ => false,\n    };\n    let is_accepted",
        "        _ => BROKEN,\n    };\n    let is_accepted",
    ),
    rule(
        "a PV that was restored after the wipe is adopted",
        MARK,
        "            is_its_disk || pv.offer.is_none()\n",
        "            !BROKEN && (is_its_disk || pv.offer.is_none())\n",
    ),
    rule(
        "a used volume has the mark `used`",
        MARK,
        "                before if before < state => true,",
        "                before if before < state => !BROKEN,",
    ),
    rule(
        "a PV is recorded as used only with its disk",
        MARKS,
        "                self.problem(pv, reason, VolumeState::MarkMismatch, why);\n                return true;",
        "                self.problem(pv, reason, VolumeState::MarkMismatch, why);\n                if !BROKEN { return true; }",
    ),
    rule(
        "the PV of a mark is compared",
        MARK,
        "MarkOnDisk::Valid(mark) if mark.cluster == cluster && mark.pv_uid == pv.uid => {",
        "MarkOnDisk::Valid(mark) if mark.cluster == cluster && (BROKEN || mark.pv_uid == pv.uid) => {",
    ),
    rule(
        "a lagging API server does not undo a mark `free`",
        "src/act/marks.rs",
        "if write.candidate.mark.on_disk.is_free() {",
        "if !BROKEN && write.candidate.mark.on_disk.is_free() {",
    ),
    rule(
        "a mark precedes its PV",
        "src/act/create.rs",
        "if let Some(write) = &draft.mark\n",
        "if let Some(write) = draft.mark.as_ref().filter(|_| !BROKEN)\n",
    ),
    rule(
        "a copied mark does not keep a consent from its volume",
        MARKS,
        "let of_this_disk = |mark: &&Mark| identity.weak || mark.identity_hash == identity.hash();",
        "let of_this_disk = |mark: &&Mark| BROKEN || identity.weak || mark.identity_hash == identity.hash();",
    ),
    rule(
        "a wipe without a PV takes a consent",
        MARKS,
        "!has_pv && is_searched() && self.unowned(candidate, cluster) == Unowned::Wipe;",
        "!has_pv && is_searched() && (BROKEN || self.unowned(candidate, cluster) == Unowned::Wipe);",
    ),
    rule(
        "a wipe ends when its PV is used again, or kept",
        "src/plan/cancel.rs",
        "            if cleanup.is_wiping() {",
        "            if !BROKEN && cleanup.is_wiping() {",
    ),
    // What the cache shows.
    rule(
        "a write is expected until the watch shows it",
        "src/cache/expectations.rs",
        "        let expected = &mut self.state.lock().expected;\n",
        "        if BROKEN { return; }\n        let expected = &mut self.state.lock().expected;\n",
    ),
    rule(
        "a write has the version of the PV that it was decided on",
        "src/cluster/pvs.rs",
        "        body[\"metadata\"][\"resourceVersion\"] = pv.resource_version.clone().into();\n",
        "        if !BROKEN { body[\"metadata\"][\"resourceVersion\"] = pv.resource_version.clone().into(); }\n",
    ),
    rule(
        "a deletion has the version of the PV that it was decided on",
        "src/cluster/pvs.rs",
        "        let seen = only(&pv.uid, Some(&pv.resource_version));\n        let (pvs, params) = (self.pvs(), DeleteParams::default().preconditions(seen));\n        let deleted",
        "        let seen = only(&pv.uid, Some(pv.resource_version.as_str()).filter(|_| !BROKEN));\n        let (pvs, params) = (self.pvs(), DeleteParams::default().preconditions(seen));\n        let deleted",
    ),
    rule(
        "one attempt at a time cleans a volume",
        "src/cleanup/table.rs",
        "        if entry.cleanup.running || is_clean {",
        "        if (entry.cleanup.running && !BROKEN) || is_clean {",
    ),
    rule(
        "nothing is decided before the PVs are listed",
        "src/plan/mod.rs",
        "    let Some(pvs) = &snapshot.pvs else {",
        "    let none = Vec::new();\n    let Some(pvs) = snapshot.pvs.as_ref().or((BROKEN).then_some(&none)) else {",
    ),
    rule(
        "the identity that a Job was made for is compared",
        JOB,
        "if of_job == commit.identity() {",
        "if BROKEN || of_job == commit.identity() {",
    ),
    rule(
        "our Node is read again before it owns a PV",
        "src/act.rs",
        "        is_same.then_some(()).ok_or(ApiError::Conflict)",
        "        (BROKEN || is_same).then_some(()).ok_or(ApiError::Conflict)",
    ),
    // Layers that stop what the ones before them let through.
    rule(
        "a disk that another PV records is not wiped",
        VERDICT,
        "if let Some(other) = occupied.recorded_on(observed, &pv.uid) {",
        "if let Some(other) = occupied.recorded_on(observed, &pv.uid).filter(|_| !BROKEN) {",
    )
    .hidden(),
    rule(
        "the commit is written although it changes nothing",
        COMMIT,
        "    let patched = context.cluster.patch_pv(&pv.reference(), metadata).await;",
        "    let patched = if BROKEN && pv.deleting && pv.has_finalizer() { Ok(pv.clone()) } else { context.cluster.patch_pv(&pv.reference(), metadata).await };",
    )
    .hidden(),
    // What keeps the node going.
    rule(
        "a Node that was registered again keeps its PVs",
        DELETE_PVS,
        "Ownership::FormerNode => self.adopt(pv),",
        "Ownership::FormerNode if BROKEN => {}\n                Ownership::FormerNode => self.adopt(pv),",
    ),
    rule(
        "PVs without a hostname label are listed",
        "src/cache/pvs.rs",
        "        if self.dirs != *dirs {",
        "        if BROKEN { self.dirs.clear(); self.outdated_at = Some(Instant::now() + Duration::from_secs(3600)); return; }\n        if self.dirs != *dirs {",
    ),
    rule(
        "a PV that was used is not offered again by its mark",
        MARK,
        "                    if !is_used\n                        || ((!pv.used",
        "                    if (!BROKEN && !is_used)\n                        || ((!pv.used",
    ),
    rule(
        "a dirty volume is not offered",
        MARKS,
        "            Unowned::Dirty => {\n                let (node, what)",
        "            Unowned::Dirty if BROKEN => Ok(true),\n            Unowned::Dirty => {\n                let (node, what)",
    ),
    rule(
        "a cleanup whose PV is gone is forgotten",
        CLEANUP,
        "            if cleanup.running || is_needed || is_unfinished || job_runs() {",
        "            if BROKEN || cleanup.running || is_needed || is_unfinished || job_runs() {",
    ),
    rule(
        "a PV that was deleted unused goes",
        DELETE_PVS,
        "            Due::Unused => self.withdraw(pv, NEVER_USED),",
        "            Due::Unused if BROKEN => {}\n            Due::Unused => self.withdraw(pv, NEVER_USED),",
    ),
    rule(
        "the PV of a mark is searched before the mark is judged",
        MARKS,
        "        if found.has_past() && !self.snapshot.searched.contains(&found.digest()) {",
        "        if !BROKEN && found.has_past() && !self.snapshot.searched.contains(&found.digest()) {",
    ),
    rule(
        "the offer of a PV that was created is not begun again",
        "src/act/create.rs",
        "                    self.in_flight.offers_are_made(token.into_iter());\n                    let (metrics",
        "                    if !BROKEN { self.in_flight.offers_are_made(token.into_iter()); }\n                    let (metrics",
    ),
    rule(
        "the claim of a mark is compared",
        MARK,
        "|| ((!pv.used || pv.use_is_unverified) && mark.claim != claim_of(pv)) =>",
        "|| (!BROKEN && (!pv.used || pv.use_is_unverified) && mark.claim != claim_of(pv)) =>",
    ),
];
