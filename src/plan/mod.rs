//! Decides what to do: a pure, total function without clock, client or filesystem.
//!
//! [`plan`] maps a [`Snapshot`] to the PVs to create, patch, clean and withdraw, the notices to report, and the
//! state of each volume. The same rules check a volume again on fresh facts right before it is cleaned: see
//! [`verdict`].

mod action;
mod adopt;
mod cancel;
mod cleanup;
mod consent;
mod delete_pvs;
mod discover;
mod eligible;
mod installations;
mod intake;
pub mod job_object;
mod jobs;
mod ledger;
mod link;
mod location;
mod lost_marks;
mod mark;
mod marks;
mod missing;
mod occupied;
mod owners;
mod pending;
mod pod_mounts;
mod report;
mod shared;
mod snapshot;
pub mod takeover;
#[cfg(test)]
mod tests;
mod upkeep;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::inventory::{Observation, Volume};
use crate::types::HostPath;
use crate::view::{ClaimRef, NodeView, Ownership, Phase, PvView};

pub use action::{
    Action, CleanOrder, JobTerms, JobWrite, LinkOrder, MarkWrite, NodeLabels, Patch, PvDraft,
    PvSearch, Track, Withdrawal,
};
pub use cancel::{Cancellation, wipe_ended};
use cleanup::Slots;
pub use cleanup::{FOR_A_SLOT, NO_JOB_IMAGE};
pub use consent::{
    TO_DECIDE, TO_DECIDE_FIRST, consents_in, consents_to_forget, consents_to_wipe, forget,
};
pub use discover::some_of;
pub use installations::other_installation;
pub use intake::{DiskOrder, DiskReport, Intake};
pub use ledger::{Ledger, Refusal};
pub use location::PvLocation;
pub use mark::{Agreement, NO_MARKS, agreement, holds_leftovers, mark_of};
use occupied::Layers;
pub use occupied::{Occupant, Occupied};
pub use owners::{OWNER_LIST, OtherPvs, OwnerQuery};
pub use pod_mounts::Contradictions;
pub use report::{About, ClassReport, MarkReport, Notice, VolumeReport, VolumeState, reasons};
pub use snapshot::{Cleanup, CleanupState, Settings, Snapshot};

/// The decisions of one pass.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Plan {
    /// The actions; deletions first.
    pub actions: Vec<Action>,
    /// The problems to report. A notice that the last plan had too is not reported again.
    pub notices: BTreeSet<Notice>,
    /// The state of each class and volume.
    pub classes: Vec<ClassReport>,
    /// Why the node is not ready; empty when it is.
    pub not_ready: Vec<String>,
    /// Whether the node is not ready only because PVs are being created, as after each cleanup.
    pub is_creating: bool,
    /// Whether Node and PVs were known; otherwise the plan is empty.
    pub made: bool,
    /// Whether a PV of this node has had its mark in another state directory.
    pub marks_differ: bool,
    /// Whether cleaning is paused on the whole node.
    pub paused: bool,
    /// Since when volumes are missing, by PV UID; only of PVs that `missingVolumePolicy: Delete` concerns.
    pub missing_since: BTreeMap<String, Duration>,
    /// The storage that PVs occupy; the gate checks a volume against it.
    pub occupied: Arc<Occupied>,
    /// The earliest time at which the same facts give another plan, on the clock of [`Snapshot::now`].
    pub wake_at: Option<Duration>,
}

/// Makes the plan.
pub fn plan(settings: &Settings, snapshot: &Snapshot) -> Plan {
    let Some(node) = &snapshot.node else {
        let why = "the Node object does not exist; nothing is done until it does";
        return Plan::not_ready(why, link::of_classes(settings, snapshot));
    };
    let Some(pvs) = &snapshot.pvs else {
        let why = "the PersistentVolumes and the cleaning Jobs have not all been listed yet";
        return Plan::not_ready(why, link::of_classes(settings, snapshot));
    };
    let active = snapshot.ledger.cleanups.values().filter(|it| it.is_active());
    let mut planner = Planner {
        settings,
        snapshot,
        node,
        pvs,
        by_path: BTreeMap::new(),
        by_name: pvs.iter().map(|pv| (pv.name.as_str(), pv)).collect(),
        by_uid: pvs.iter().map(|pv| (pv.uid.as_str(), pv)).collect(),
        cleaning: active.map(|cleanup| &cleanup.path).collect(),
        with_job: jobs::paths(settings, snapshot),
        occupied: Occupied::default(),
        layers: Layers::default(),
        states: BTreeMap::new(),
        slots: Slots::of(settings, snapshot),
        due: Vec::new(),
        owner_queries: Vec::new(),
        alike: Vec::new(),
        is_faulty: false,
        plan: Plan { wake_at: snapshot.ledger.first_retry(snapshot.now), ..Plan::default() },
    };
    planner.plan.marks_differ = planner.do_marks_differ();
    planner.occupy_by_pvs();
    planner.compare_pod_mounts();
    planner.plan.paused = settings.config.pause_cleaning || node.paused;
    planner.oversee_wipes();
    planner.delete_orphaned_jobs();
    planner.delete_pvs();
    planner.clean_orphans();
    planner.start_cleanups();
    planner.bind_to_disks();
    planner.label_node();
    planner.discover_local_volumes();
    planner.report_shared_filesystems();
    planner.find_owners();
    planner.plan.is_creating = !planner.is_faulty && !planner.plan.not_ready.is_empty();
    planner.plan.made = true;
    planner.plan.occupied = Arc::new(planner.occupied);
    planner.plan
}

impl Plan {
    /// Without a PV, no volume is verified.
    fn not_ready<'a>(why: &str, links: impl Iterator<Item = &'a String>) -> Self {
        Self {
            actions: links.cloned().map(Action::Unlink).collect(),
            not_ready: vec![why.into()],
            ..Self::default()
        }
    }
}

/// The snapshot with its indices, and the plan so far.
struct Planner<'a> {
    settings: &'a Settings,
    snapshot: &'a Snapshot,
    node: &'a NodeView,
    pvs: &'a [PvView],
    /// PVs with a local path on this node.
    by_path: BTreeMap<&'a HostPath, Vec<&'a PvView>>,
    by_name: BTreeMap<&'a str, &'a PvView>,
    by_uid: BTreeMap<&'a str, &'a PvView>,
    /// Paths that active cleanups hold.
    cleaning: BTreeSet<&'a HostPath>,
    /// Paths of devices that have a cleaning Job, ours or the Go provisioner's.
    with_job: BTreeSet<HostPath>,
    occupied: Occupied,
    layers: Layers,
    /// The state and detail of each PV that is reported, by name.
    states: BTreeMap<&'a str, (VolumeState, Option<String>)>,
    slots: Slots,
    /// The attempts that are due, before slots are assigned.
    due: Vec<CleanOrder>,
    /// Our PVs whose other owners have to be listed.
    owner_queries: Vec<OwnerQuery>,
    /// Our PVs whose identity other nodes have too, although it is other storage.
    alike: Vec<&'a str>,
    /// Whether a class has a fault or an unreadable volume.
    is_faulty: bool,
    plan: Plan,
}

impl<'a> Planner<'a> {
    /// Indexes the PVs, the layers of all devices, and each volume that is being cleaned or has a PV of any
    /// provisioner, before candidates are checked.
    fn occupy_by_pvs(&mut self) {
        for pv in self.pvs.iter().filter(|pv| pv.may_be_on(self.node)) {
            if let Some(path) = pv.path() {
                self.by_path.entry(path).or_default().push(pv);
                self.occupied.name(path, pv);
            }
            let is_ours = self.settings.ownership(self.node, pv) == Ownership::Ours;
            if let Some(claim) = pv.claim.clone()
                && is_ours
                && pv.phase == Phase::Bound
            {
                let claim = ClaimRef { uid: None, ..claim };
                self.occupied.claims.insert(claim);
            }
            if let Some(identity) = pv.identity.as_deref() {
                self.occupied.record(identity, pv);
            }
        }
        for volume in self.volumes() {
            let (path, footprint) = (&volume.path, &volume.candidate.footprint);
            self.layers.insert(path, footprint);
            let pv = self.by_path.get(path).and_then(|pvs| pvs.first());
            let taken = pv.is_some() || self.cleaning.contains(path);
            if taken && self.occupied.at(path).is_none() {
                self.occupied.insert(Occupant {
                    path: path.clone(),
                    footprint: footprint.clone(),
                    pv: pv.map(|pv| pv.name.clone()),
                });
            }
        }
        let is_seen = |path: &HostPath| self.occupied.at(path).is_some();
        let others = self.pvs.iter().filter(|pv| pv.may_be_on(self.node));
        let others =
            others.filter(|pv| !pv.path().is_some_and(is_seen)).filter_map(PvView::path_owner);
        let owners = others.chain(self.snapshot.owners.iter().cloned()).collect();
        self.occupied.owners = owners;
        // A volume whose class is gone, or that cannot be read, occupies its storage too.
        for (path, pvs) in &self.by_path {
            if self.occupied.at(path).is_none() {
                for pv in pvs {
                    if let Some(identity) = &pv.identity {
                        self.occupied.unseen(identity, pv);
                    }
                }
            }
        }
    }

    /// The volumes of all classes.
    fn volumes(&self) -> impl Iterator<Item = &'a Arc<Volume>> + use<'a> {
        let observed = &self.snapshot.observed;
        let classes = self.settings.config.classes.keys();
        let observations = classes.filter_map(move |class| observed.get(class));
        observations.flat_map(Observation::volumes)
    }

    /// Where a PV's volume is, according to the scan.
    fn locate(&self, pv: &'a PvView) -> PvLocation<'a> {
        if let Some(refusal) = verdict::elsewhere(pv, self.node) {
            return PvLocation::Outside(refusal);
        }
        PvLocation::of(pv, self.settings, &self.snapshot.observed)
    }

    /// Whether a write or a cleanup is in flight for the PV, which a new decision would conflict with.
    fn is_busy(&self, pv: &PvView) -> bool {
        // By path: a cleanup of an earlier tenancy may still run.
        self.snapshot.ledger.writing.contains(&pv.name)
            || pv.path().is_some_and(|path| self.cleaning.contains(path))
    }

    fn notice(&mut self, about: impl Into<About>, reason: &'static str, mut message: String) {
        let about = about.into();
        // Every event about a cleanup that fails names the path.
        if let About::Pv(name, _) = &about
            && reason == reasons::VOLUME_FAILED_DELETE
            && let Some(path) = self.by_name.get(name.as_str()).and_then(|pv| pv.path())
            && !message.contains(path.as_str())
        {
            message = format!("{path}: {message}");
        }
        self.plan.notices.insert(Notice { about, reason, message });
    }

    /// Reports a problem of a PV, in an event and as its state.
    fn problem(
        &mut self,
        pv: &'a PvView,
        reason: &'static str,
        state: VolumeState,
        message: String,
    ) {
        self.notice(pv, reason, message.clone());
        self.states.insert(&pv.name, (state, Some(message)));
    }

    fn patch(&mut self, pv: &PvView, patch: Patch) {
        if !patch.is_empty() && !self.is_busy(pv) {
            self.plan.actions.push(Action::Patch(patch));
        }
    }
}
