//! Rules of offers, marks and caches that are broken.

use crate::rules::{Rule, rule};

const ELIGIBLE: &str = "src/plan/eligible.rs";
const MARK: &str = "src/plan/mark.rs";
const MARKS: &str = "src/plan/marks.rs";

pub const RULES: &[Rule] = &[
    rule(
        "an administrator consents to a wipe",
        MARK,
        "    if permits(\"wipe\") {",
        "    if permits(\"wipe\") && !BROKEN {",
    ),
    rule(
        "an event names each volume that is held",
        "src/report/recorder.rs",
        "        for failures in 0.. {",
        "        if BROKEN { return; }\n        for failures in 0.. {",
    ),
    // What is offered.
    rule(
        "a volume that the scan found in use is not offered",
        ELIGIBLE,
        "if let Some(user) = &candidate.in_use {",
        "if let Some(user) = candidate.in_use.as_ref().filter(|_| !BROKEN) {",
    )
    .hidden(),
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
        "src/act/offer.rs",
        "        let found = found.map_err(refused(retry::INSPECTION))?;",
        "        if BROKEN && found.is_err() {\n            return Ok(());\n        }\n        let found = found.map_err(refused(retry::INSPECTION))?;",
    )
    .and(&["a volume that the scan found in use is not offered"]),
    rule(
        "nothing is patched that is as it should be",
        "src/plan/mod.rs",
        "if !patch.is_empty() && !self.is_busy(pv) {",
        "if (BROKEN || !patch.is_empty()) && !self.is_busy(pv) {",
    )
    .and(&["an empty patch is not sent"]),
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
        "src/cache/expectations.rs",
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
        "a used volume has the mark `used`",
        MARK,
        "                before if before < state => true,",
        "                before if before < state => !BROKEN,",
    ),
    rule(
        "the PV of a mark is compared",
        MARK,
        "MarkOnDisk::Valid(mark) if mark.cluster == cluster && mark.pv_uid == pv.uid => {",
        "MarkOnDisk::Valid(mark) if mark.cluster == cluster && (BROKEN || mark.pv_uid == pv.uid) => {",
    ),
    rule(
        "a mark precedes its PV",
        "src/act/create.rs",
        "if let Some(write) = &draft.mark\n",
        "if let Some(write) = draft.mark.as_ref().filter(|_| !BROKEN)\n",
    ),
    rule(
        "a wipe without a PV takes a consent",
        MARKS,
        "!has_pv && is_searched() && self.unowned(volume, cluster) == Unowned::Wipe;",
        "!has_pv && is_searched() && (BROKEN || self.unowned(volume, cluster) == Unowned::Wipe);",
    ),
    // What the cache shows.
    rule(
        "a write is expected until the watch shows it",
        "src/cache/expectations.rs",
        "        let state = &mut *self.state.lock();\n",
        "        if BROKEN { return; }\n        let state = &mut *self.state.lock();\n",
    ),
    rule(
        "a deletion has the version of the PV that it was decided on",
        "src/cluster/pvs.rs",
        "        let seen = only(&pv.uid, Some(&pv.resource_version));\n        let (pvs, params) = (self.pvs(), DeleteParams::default().preconditions(seen));\n        let deleted",
        "        let seen = only(&pv.uid, Some(pv.resource_version.as_str()).filter(|_| !BROKEN));\n        let (pvs, params) = (self.pvs(), DeleteParams::default().preconditions(seen));\n        let deleted",
    ),
    // What keeps the node going.
    rule(
        "a dirty volume is not offered",
        MARKS,
        "            Unowned::Dirty => {\n                self.is_of_no_other_node(volume)?;",
        "            Unowned::Dirty if BROKEN => Ok(true),\n            Unowned::Dirty => {\n                self.is_of_no_other_node(volume)?;",
    ),
    rule(
        "the PV of a mark is searched before the mark is judged",
        MARKS,
        "        if self.has_past(volume) && !self.snapshot.ledger.searched.contains(&searched(candidate)) {",
        "        if !BROKEN && self.has_past(volume) && !self.snapshot.ledger.searched.contains(&searched(candidate)) {",
    ),
    rule(
        "the offer of a PV that was created is not begun again",
        MARK,
        "let is_own = ledger.unborn.contains(&mark.token);",
        "let is_own = BROKEN || ledger.unborn.contains(&mark.token);",
    ),
    rule(
        "the claim of a mark is compared",
        MARK,
        "|| ((!pv.used || pv.use_is_unverified) && mark.claim != claim_of(pv)) =>",
        "|| (!BROKEN && (!pv.used || pv.use_is_unverified) && mark.claim != claim_of(pv)) =>",
    ),
];
