//! What the plan does about the marks on the disks, by the rules in `mark.rs`.

use std::sync::Arc;

use crate::host::identity::{Identity, Match, compare};
use crate::host::mark::{Mark, MarkOnDisk, MarkState, Place, is_distinctive};
use crate::inventory::{Candidate, Contents, Skip, Volume};
use crate::names::{ANNOTATION_CONSENT, ANNOTATION_OFFER, CONSENT_PREFIX, pv_names};
use crate::types::{HostPath, SkipReason};
use crate::view::{PvView, Tenancy};

use super::consent::{TO_DECIDE, consent, consents_to};
use super::mark::{Agreement, Unowned, agreement, describe, holds_leftovers, unowned};
use super::upkeep::record_use;
use super::{
    About, Action, Cleanup, CleanupState, MarkWrite, Patch, Planner, PvLocation, PvSearch,
    VolumeState, reasons,
};

/// Why a volume is not offered where [`holds_leftovers`].
const LEFTOVERS: &str = "its last cleanup was a quick reset, which leaves data, and its class promises that nothing is left";

/// Why a volume that is not empty is not offered although its mark is `free`.
const OUTDATED: &str = "its mark is free, but another state directory may have a newer one";

impl<'a> Planner<'a> {
    /// Brings the mark of a PV's volume up to date. Returns `false` if the PV is withdrawn.
    pub(super) fn mark(
        &mut self,
        pv: &'a PvView,
        volume: &'a Arc<Volume>,
        patch: &mut Patch,
    ) -> bool {
        let candidate = &volume.candidate;
        let Some(cluster) = self.settings.judges(candidate) else {
            record_use(pv, true, patch);
            return true;
        };
        // A scan from before our last write. Then the patch waits, too.
        if self.snapshot.ledger.creating.contains_key(&volume.path) {
            return true;
        }
        let compared = pv.identity.as_deref().map(|it| compare(it, &candidate.identity));
        // Another disk is at the path, which is reported.
        if compared == Some(Match::Different) && !pv.never_used() {
            return true;
        }
        let token = candidate.mark.on_disk.valid().map(|it| it.token.clone());
        if pv.never_used() && holds_leftovers(&volume.class, &candidate.mark.on_disk) {
            self.withdraw_as(reasons::VOLUME_MARK_MISMATCH, pv, LEFTOVERS);
            return false;
        }
        match agreement(pv, cluster, candidate, self.snapshot.date) {
            // The write of the mark succeeded, and that of the annotation failed.
            Agreement::Agrees if pv.offer.is_none() => {
                patch.annotations.insert(ANNOTATION_OFFER, token);
            }
            Agreement::Agrees => {}
            Agreement::Lags(mark) => {
                // The write of the mark makes it void.
                if consents_to("accept", pv, candidate) {
                    patch.annotations.insert(ANNOTATION_CONSENT, None);
                }
                let found = &candidate.mark.on_disk;
                let reason = reasons::VOLUME_MARK_MISMATCH;
                match found {
                    MarkOnDisk::Valid(other) if other.pv_uid != pv.uid && pv.offer.is_none() => {
                        let text = format!("{}; the PV is adopted", describe(found));
                        patch.events.push((reason, text));
                    }
                    MarkOnDisk::Valid(free)
                        if free.pv_uid == pv.uid && free.state == MarkState::Free =>
                    {
                        let text = "its volume was wiped after this state of the API server was saved, so it is empty";
                        patch.events.push((reason, text.to_owned()));
                    }
                    _ => {}
                }
                if pv.offer.as_ref() != Some(&mark.token) {
                    let offer = Some(mark.token.clone());
                    patch.annotations.insert(ANNOTATION_OFFER, offer);
                }
                let volume = Arc::clone(volume);
                patch.mark = Some(Box::new(MarkWrite { volume, mark: *mark, resets_root: false }));
            }
            // The first scan knows no PVs and reads no contents, which decide.
            Agreement::Mismatch(_) if pv.offer.is_none() && is_unread(candidate) => return true,
            Agreement::Mismatch(why) if pv.never_used() => {
                self.withdraw_as(reasons::VOLUME_MARK_MISMATCH, pv, &why);
                return false;
            }
            Agreement::Mismatch(why) => {
                let reason = reasons::VOLUME_MARK_MISMATCH;
                self.problem(pv, reason, VolumeState::MarkMismatch, why);
                return true;
            }
        }
        record_use(pv, true, patch);
        true
    }

    /// Records that the data of a PV that is released unwiped belongs to its tenant again, also where a wipe has begun:
    /// otherwise the wipe would go on. Returns whether that is to be awaited.
    pub(super) fn keep_data(&mut self, pv: &'a PvView, location: &PvLocation<'a>) -> bool {
        let PvLocation::Volume(volume) = location else {
            return false;
        };
        let judged = self.settings.judges(&volume.candidate);
        let mark = volume.candidate.mark.on_disk.valid();
        let Some(mark) = mark.filter(|_| judged.is_some()) else {
            return false;
        };
        if self.snapshot.ledger.creating.contains_key(&volume.path) {
            return true;
        }
        let is_wiping = mark.state == MarkState::Wiping && mark.pv_uid == pv.uid;
        if is_wiping {
            self.write_mark(volume, mark, MarkState::Used);
        }
        is_wiping
    }

    fn write_mark(&mut self, volume: &Arc<Volume>, mark: &Mark, state: MarkState) {
        let mark = Mark { state, written_at: self.snapshot.date, ..mark.clone() };
        if !self.snapshot.ledger.writing.contains(volume.path.as_str()) {
            let volume = Arc::clone(volume);
            let write = MarkWrite { volume, mark, resets_root: false };
            self.plan.actions.push(Action::WriteMark(Box::new(write)));
        }
    }

    fn unowned(&self, volume: &Volume, cluster: &str) -> Unowned {
        if self.adopts(volume, cluster).is_some() {
            return Unowned::Adopt;
        }
        let (consents, is_its_disk) = (&self.node.consents, self.is_marked(&volume.candidate));
        unowned(cluster, volume, consents, self.snapshot, is_its_disk)
    }

    /// Whether a volume is the one that its mark was written on. The mark of a device without a name lies elsewhere, and is
    /// found by the entry: after a reboot, another device can be there. Then the header decides. That of a blank disk
    /// distinguishes nothing, which is harmless only if all such devices of the node are unused.
    pub(super) fn is_marked(&self, candidate: &Candidate) -> bool {
        let MarkOnDisk::Valid(mark) = &candidate.mark.on_disk else {
            return !self.may_have_lost_mark(candidate);
        };
        let is_distinctive = || mark.header.as_deref().is_some_and(is_distinctive);
        candidate.mark.place == Some(Place::Attribute)
            || !candidate.identity.weak
            || mark.identity_hash == candidate.identity.hash()
            || (candidate.is_as_offered && (is_distinctive() || !self.has_nameless_tenant()))
    }

    /// Whether a volume may have a PV or the data of a tenant.
    fn has_past(&self, volume: &Volume) -> bool {
        let candidate = &volume.candidate;
        candidate.mark.has_past()
            || holds_leftovers(&volume.class, &candidate.mark.on_disk)
            || !self.is_marked(candidate)
    }

    /// Whether a device without a name was used.
    fn has_nameless_tenant(&self) -> bool {
        let is_nameless = |text: &str| {
            let (text, weak) = (text.to_owned(), true);
            Identity { text, weak }.is_of_boot()
        };
        let mut pvs = self.pvs.iter().filter(|pv| !pv.had_no_tenant());
        let mut volumes = self.volumes().filter(|volume| {
            let mark = volume.candidate.mark.on_disk.valid();
            mark.is_some_and(|it| matches!(it.state, MarkState::Used | MarkState::Wiping))
        });
        pvs.any(|pv| pv.identity.as_deref().is_some_and(is_nameless))
            || volumes.any(|volume| is_nameless(&volume.candidate.identity.text))
    }

    /// Judges the mark of a volume that could be offered otherwise. `false`: a step that settles it comes first.
    ///
    /// # Errors
    /// Why it is not offered.
    pub(super) fn is_mark_settled(&mut self, volume: &Arc<Volume>) -> Result<bool, Skip> {
        let (path, candidate) = (&volume.path, &volume.candidate);
        let Some(cluster) = self.settings.judges(candidate) else {
            return Ok(true);
        };
        if self.is_being_created(path, &candidate.identity) {
            return Ok(true);
        }
        let found = &candidate.mark.on_disk;
        // The PV may be one that the watch does not show, such as one of an old hostname.
        if self.has_past(volume) && !self.snapshot.ledger.searched.contains(&searched(candidate)) {
            self.search_pv(volume, searched(candidate));
            return Ok(false);
        }
        let unowned = self.unowned(volume, cluster);
        if !matches!(unowned, Unowned::Clean | Unowned::Ended)
            && let Some(pv) = self.by_uid.get(uid_of_mark(candidate))
        {
            let (pv, other) = (&pv.name, pv.path().map_or("", HostPath::as_str));
            let detail = format!(
                "{path} is by its mark the volume of PV {pv}, which names {other}; mount it there again, or delete that PV"
            );
            return Err(Skip::new(SkipReason::IdentityOnOtherPV, detail));
        }
        match unowned {
            Unowned::Clean | Unowned::Adopt => Ok(true),
            Unowned::Ended => {
                if let MarkOnDisk::Valid(mark) = found {
                    self.write_mark(volume, mark, MarkState::Free);
                }
                Ok(false)
            }
            Unowned::Wipe => {
                let detail = format!("{path} is cleaned before it is offered: {}", describe(found));
                Err(Skip::new(SkipReason::CleanupRunning, detail))
            }
            Unowned::Dirty => {
                self.is_of_no_other_node(volume)?;
                let what = match found.valid() {
                    None if self.may_have_lost_mark(candidate) => {
                        "the state directory was lost, which may have had its mark; once all volumes of the node are settled, remove the file doubt from it".into()
                    }
                    _ if !self.is_marked(candidate) => {
                        "since a reboot, nothing proves that it is the device of its mark".into()
                    }
                    Some(mark) if mark.cluster == *cluster && found.is_free() => {
                        let has_leftovers = holds_leftovers(&volume.class, found);
                        if has_leftovers { LEFTOVERS } else { OUTDATED }.into()
                    }
                    _ => describe(found),
                };
                let of_adoption = |it: &&Mark| it.cluster != *cluster || it.is_adoption();
                let of_adoption = found.valid().filter(of_adoption);
                let adoptable = of_adoption.map(|_| self.adoptable(volume).err());
                let why = match adoptable.flatten() {
                    Some(why) => format!("; it cannot be adopted: {why}"),
                    None => String::new(),
                };
                let to_decide = self.to_decide(candidate, adoptable == Some(None));
                let detail =
                    format!("{path} may hold the data of a tenant: {what}{why}{to_decide}");
                Err(Skip::new(SkipReason::Dirty, detail))
            }
        }
    }

    /// The annotations of the Node that decide about a volume without a PV.
    pub(super) fn to_decide(&self, candidate: &Candidate, is_adoptable: bool) -> String {
        let (node, hash) = (&self.node.name, candidate.identity.hash());
        let [wipe, accept, adopt] =
            ["wipe", "accept", "adopt"].map(|verb| consent(verb, None, candidate));
        let adopt = format!(", or ={adopt} (offers it to the claim of its mark only)");
        let adopt = if is_adoptable { &*adopt } else { "" };
        format!(
            "{TO_DECIDE}kubectl annotate --overwrite node {node} {CONSENT_PREFIX}{hash}={wipe} (deletes the data, then offers the volume), or ={accept} (offers it as it is){adopt}"
        )
    }

    /// Reads the PV that a mark may name, once for each mark.
    fn search_pv(&mut self, volume: &Arc<Volume>, mark: String) {
        let (path, class) = (&volume.path, &volume.class.name);
        if !self.snapshot.ledger.writing.contains(path.as_str()) {
            let found = volume.candidate.mark.on_disk.valid();
            let token = found.map(|it| it.token.as_str());
            let search = PvSearch {
                path: path.clone(),
                names: pv_names(&volume.entry, &self.node.name, class, token),
                mark,
            };
            self.plan.actions.push(Action::FindPv(search));
        }
    }

    /// The key in the ProcTable of the cleanup of a volume without a PV, if it has to be cleaned.
    fn orphan(&self, volume: &Arc<Volume>) -> Option<Tenancy> {
        let candidate = &volume.candidate;
        let cluster = self.settings.judges(candidate).filter(|_| self.has_past(volume))?;
        let pv_uid = match uid_of_mark(candidate) {
            "" => candidate.identity.hash(),
            uid => uid.to_owned(),
        };
        // Its PV may name another path, from which the disk was moved.
        let recorded = self.occupied.recorded_on(&candidate.identity, "");
        let has_pv = self.by_path.contains_key(&volume.path)
            || self.by_uid.contains_key(pv_uid.as_str())
            || recorded.is_some();
        let is_searched = || self.snapshot.ledger.searched.contains(&searched(candidate));
        let is_orphan = !has_pv && is_searched() && self.unowned(volume, cluster) == Unowned::Wipe;
        is_orphan.then_some(Tenancy { pv_uid, claim_uid: None })
    }

    /// The volumes without a PV that have to be cleaned, each with the key of its cleanup.
    pub(super) fn orphans(&self) -> Vec<(Tenancy, &'a Arc<Volume>)> {
        let orphans = self.volumes().filter_map(|volume| Some((self.orphan(volume)?, volume)));
        orphans.collect()
    }

    /// Cleans the volumes without a PV for which an operator consents.
    pub(super) fn clean_orphans(&mut self) {
        if self.plan.paused {
            return;
        }
        for (tenancy, volume) in self.orphans() {
            let (path, identity) = (&volume.path, &volume.candidate.identity);
            let (uid, class) = (&tenancy.pv_uid, &volume.class.name);
            let Some(mut pv) = PvView::deleted(uid, class, path, &identity.text) else {
                continue;
            };
            let mark = volume.candidate.mark.on_disk.valid();
            pv.offer = mark.map(|it| it.token.clone());
            let mut order = self.clean_order(pv, volume);
            let is_blocked = self.cleaning.contains(&path)
                || self.with_job.contains(path)
                || self.occupied.contradictions.fault(class).is_some()
                || self.is_being_created(path, identity);
            let found = self.snapshot.ledger.cleanups.get(&tenancy);
            let now = self.snapshot.now;
            if let Some(Cleanup { state, .. }) = found
                && let CleanupState::Blocked { reason, notify_at, .. } = state
                && notify_at.is_some_and(|at| now >= at)
            {
                let about = About::Node(self.node.name.clone());
                self.notice(about, reasons::VOLUME_IN_USE, format!("{path}: {reason}"));
            }
            if is_blocked || !found.is_none_or(|it| it.is_attempt_due(now, order.basis)) {
                continue;
            }
            order.orphan_on = Some(self.node.name.clone());
            self.due.push(order);
        }
    }
}

/// What is recorded when the PV of a mark was searched. Absent marks are alike.
fn searched(candidate: &Candidate) -> String {
    match &candidate.mark.on_disk {
        MarkOnDisk::Absent => candidate.identity.hash(),
        mark => mark.digest(),
    }
}

fn is_unread(candidate: &Candidate) -> bool {
    candidate.contents == Contents::NotLookedAt && candidate.in_use.is_none()
}

/// The UID of the PV that a mark names, or "". A mark that was copied with the files of another disk names that disk's PV,
/// not this volume's.
fn uid_of_mark(candidate: &Candidate) -> &str {
    let identity = &candidate.identity;
    let of_this_disk = |mark: &&Mark| identity.weak || mark.identity_hash == identity.hash();
    let mark = candidate.mark.on_disk.valid().filter(of_this_disk);
    mark.map_or("", |mark| &mark.pv_uid)
}
