//! Links and labels of the PVs that are bound to their disks: which volumes the kubelet may mount, and on which Node.
//!
//! The path of such a PV is a link, which exists only while all that [`Planner::may_link`] checks holds. The kubelet mounts
//! nothing while it is missing. A mounted volume does not need it: a pod that runs is not concerned.
//!
//! A link that the API server has not confirmed since the last doubt about the connection ([`Snapshot::epoch`]) is removed,
//! and made again after a read of the PV. Its removal never waits for anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::Binding;
use crate::host::identity::{Match, compare};
use crate::host::mark::Mark;
use crate::host::sha256;
use crate::inventory::{Candidate, Skip, Volume};
use crate::names::{DISK_LABEL_PREFIX, LINK_DIR};
use crate::types::{HostPath, SkipReason};
use crate::view::{NodeView, Ownership, Phase, PvView};

use super::mark::{Agreement, agreement};
use super::verdict::absence;
use super::{
    About, Action, LinkOrder, NodeLabels, Planner, PvLocation, Settings, Snapshot, VolumeState,
    reasons,
};

/// How many disks of a Node can have labels: each is in the memory of every component that watches Nodes.
pub(super) const MAX_DISKS: usize = 32;
/// The hexadecimal digits of a label.
const LABEL_LENGTH: usize = 32;

/// Why the kubelet may not mount the volume of a PV.
enum Unlinked {
    /// A step of the provisioner comes first.
    Pending,
    /// The cause, for an operator.
    Held(String),
}

use Unlinked::{Held, Pending};

/// The links to volumes of the classes. Those of another installation on the node lead elsewhere.
pub(super) fn of_classes<'a>(
    settings: &Settings,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = &'a String> {
    let classes = settings.config.classes.values();
    let dirs: Vec<_> = classes.map(|class| class.host_dir.clone()).collect();
    let links = snapshot.links.iter().filter(move |(_, target)| {
        let target = HostPath::from_api(target);
        target.is_ok_and(|target| dirs.iter().any(|dir| target.is_within(dir)))
    });
    links.map(|(token, _)| token)
}

/// The label of the Node that has a disk. Another disk with the same identity can be a copy on another Node.
pub(super) fn label_of(node: &NodeView, candidate: &Candidate) -> String {
    let mut digest = sha256(format!("{}\n{}", node.uid, candidate.identity.text).as_bytes());
    digest.truncate(LABEL_LENGTH);
    format!("{DISK_LABEL_PREFIX}{digest}")
}

impl<'a> Planner<'a> {
    /// Removes the links of volumes that are not verified, then orders those that are missing.
    pub(super) fn bind_to_disks(&mut self) {
        let (snapshot, pvs) = (self.snapshot, self.pvs.iter());
        let bound: Vec<_> = pvs.filter(|pv| self.is_bound_to_disk(pv)).collect();
        let copies = self.copies(!bound.is_empty());
        let tokens = self.pvs.iter().filter_map(|pv| pv.link.as_ref()).map(|link| &link.token);
        let tokens = tokens.filter(|token| snapshot.links.contains_key(*token));
        let of_classes = of_classes(self.settings, snapshot);
        let mut wrong: BTreeSet<_> = tokens.chain(of_classes).collect();
        for pv in bound.into_iter().filter(|pv| pv.phase == Phase::Bound) {
            let Some(link) = &pv.link else { continue };
            match self.may_link(pv, &copies) {
                Ok(volume) if self.is_confirmed(&link.token, volume) => {
                    wrong.remove(&link.token);
                }
                Ok(volume) => self.link(pv, volume),
                Err(why) => self.report_unlinked(pv, why),
            }
        }
        // First of all: a wipe that is ordered now must find no link.
        let unlink = wrong.into_iter().cloned().map(Action::Unlink);
        drop(self.plan.actions.splice(..0, unlink));
    }

    /// Whether a link leads to its verified volume, since the connection to the API server was interrupted last.
    fn is_confirmed(&self, token: &str, volume: &Volume) -> bool {
        let target = self.snapshot.links.get(token);
        target.is_some_and(|it| it == volume.path.as_str())
            && self.snapshot.ledger.linked.get(token) == Some(&Ok(self.snapshot.epoch))
    }

    fn is_bound_to_disk(&self, pv: &PvView) -> bool {
        pv.link.is_some() && self.ownership(pv) == Ownership::Ours
    }

    fn link(&mut self, pv: &'a PvView, volume: &'a Arc<Volume>) {
        let Some(link) = &pv.link else { return };
        let known = &self.snapshot.ledger;
        match (&self.snapshot.links_fault, known.linked.get(&link.token)) {
            (Some(why), _) | (None, Some(Err(why))) => {
                self.report_unlinked(pv, Held(why.clone()));
            }
            _ => self.report_unlinked(pv, Pending),
        }
        if self.snapshot.links_fault.is_none() && !known.writing.contains(&link.token) {
            self.plan.actions.push(Action::Link(Box::new(LinkOrder {
                pv: pv.clone(),
                volume: Arc::clone(volume),
                epoch: self.snapshot.epoch,
            })));
        }
    }

    /// The volume of a bound PV, if the kubelet may mount it.
    fn may_link(
        &self,
        pv: &'a PvView,
        copies: &BTreeMap<&str, usize>,
    ) -> Result<&'a Arc<Volume>, Unlinked> {
        let held = |why: String| Err(Held(why));
        let location = self.locate(pv);
        let volume = match &location {
            PvLocation::Volume(volume) => *volume,
            PvLocation::Unknown => {
                return held("its directory cannot be read at the moment".into());
            }
            _ => return held(absence(pv, &location).message),
        };
        let (path, candidate) = (&volume.path, &volume.candidate);
        if self.snapshot.ledger.creating.contains_key(path) {
            return Err(Pending);
        }
        let Some(cluster) = self.settings.judges(candidate) else {
            return held(format!("{path} can have no mark, or marks are off"));
        };
        let (recorded, found) = (pv.identity.as_deref().unwrap_or("none"), &candidate.identity);
        let is_its_disk = !found.weak && compare(recorded, found) == Match::Same;
        match agreement(pv, cluster, candidate, self.snapshot.date) {
            Agreement::Mismatch(why) => return held(why),
            Agreement::Lags(_) if pv.deleting => {
                return held("its mark is not updated, because the PV is Terminating".into());
            }
            Agreement::Lags(_) => return Err(Pending),
            Agreement::Agrees => {}
        }
        let mark = candidate.mark.on_disk.valid();
        let names_claim =
            |it: &Mark| it.claim_uid.is_some() && pv.offer.as_ref() == Some(&it.token);
        let Some(mark) = mark.filter(|mark| is_its_disk && names_claim(mark)) else {
            return held(format!(
                "nothing proves that the disk at {path} is its own: recorded {recorded:?}, found {:?}; put its disk back",
                found.text
            ));
        };
        if let Some(what) = self.shares(pv, volume) {
            return held(what);
        }
        if copies.get(mark.token.as_str()).is_some_and(|count| *count > 1) {
            return held(format!(
                "another volume of this node has a copy of the mark of {path}; detach the copy"
            ));
        }
        Ok(volume)
    }

    /// Why the storage of a PV may be that of another one.
    fn shares(&self, pv: &PvView, volume: &Volume) -> Option<String> {
        let (path, candidate, occupied) = (&volume.path, &volume.candidate, &self.occupied);
        let contradictions = &occupied.contradictions;
        if let Some((other, how)) = occupied.conflict(&candidate.footprint, path) {
            return Some(format!("{path} shares its storage with {}: {how}", other.path));
        }
        let has_link = |it: &&PvView| it.uid != pv.uid && it.link == pv.link;
        let other = self.pvs.iter().find(has_link).map(|it| &it.name);
        let link = pv.link.as_ref().map(|link| format!("{LINK_DIR}/{}", link.token));
        let mut owners = occupied.owners.iter();
        let foreign = owners.find(|it| it.uid != pv.uid && Some(&it.path) == link.as_ref());
        if let Some(other) = other.or(foreign.map(|it| &it.pv)) {
            return Some(format!("PV {other} has the same link; delete the wrong one"));
        }
        let recorded = occupied.recorded_on(&candidate.identity, &pv.uid);
        if let Some(other) = recorded.or(occupied.duplicate(path, &pv.uid).map(|it| it.0)) {
            return Some(format!("the disk at {path} is also that of PV {other}"));
        }
        let what = contradictions.of(&pv.uid);
        what.or(contradictions.fault(&volume.class.name)).map(str::to_owned)
    }

    /// How many volumes have the mark of each offer.
    fn copies(&self, is_needed: bool) -> BTreeMap<&'a str, usize> {
        let mut copies = BTreeMap::new();
        for volume in self.volumes().filter(|_| is_needed) {
            let candidate = &volume.candidate;
            let mark = candidate.mark.on_disk.valid();
            let of_disk = |it: &&Mark| it.identity_hash == candidate.identity.hash();
            if let Some(mark) = mark.filter(of_disk) {
                *copies.entry(mark.token.as_str()).or_default() += 1;
            }
        }
        copies
    }

    /// Reports a claim whose pods cannot start.
    fn report_unlinked(&mut self, pv: &'a PvView, why: Unlinked) {
        let is_first =
            self.states.get(pv.name.as_str()).is_none_or(|it| it.0 == VolumeState::Bound);
        let Held(why) = why else {
            let detail = "its link is about to be made; pods start then".to_owned();
            if is_first {
                self.states.insert(&pv.name, (VolumeState::Unlinked, Some(detail)));
            }
            return;
        };
        let path = pv.path().map_or("its path", |path| path.as_str());
        let message = format!("{path} is not mounted for any new pod: {why}");
        if let Some(claim) = pv.claim.clone() {
            let of_claim = format!("PV {}: {message}", pv.name);
            self.notice(About::Claim(claim), reasons::VOLUME_UNVERIFIED, of_claim);
            let on_node = "claims have no link to their volumes, so no new pod of them starts; their events have the causes";
            let node = About::Node(self.node.name.clone());
            self.notice(node, reasons::VOLUME_UNVERIFIED, on_node.to_owned());
        }
        let about = About::from(pv);
        if is_first {
            self.problem(pv, reasons::VOLUME_UNVERIFIED, VolumeState::Unlinked, message);
        } else if self.plan.notices.iter().all(|it| it.about != about) {
            self.notice(about, reasons::VOLUME_UNVERIFIED, message);
        }
    }

    /// Checks that the volume of a class with `binding: disk` can be bound to its disk.
    pub(super) fn can_bind(&self, volume: &Volume) -> Result<(), Skip> {
        let (class, path, candidate) = (&volume.class, &volume.path, &volume.candidate);
        if class.binding == Binding::Path {
            return Ok(());
        }
        let skip = |why: String| {
            let name = &class.name;
            let detail = format!("{path}: class {name:?} has binding: disk, but {why}");
            Err(Skip::new(SkipReason::NotBindable, detail))
        };
        if let Some(fault) = &self.snapshot.links_fault {
            return skip(fault.clone());
        }
        if candidate.identity.weak {
            return skip(
                "nothing distinguishes the volume from another one (a weak identity)".into(),
            );
        }
        if self.settings.judges(candidate).is_none() {
            return skip("the volume can have no mark; set STATE_DIRECTORY".to_owned());
        }
        let labels = self.labels_in_use();
        if labels.len() >= MAX_DISKS && !labels.contains(&label_of(self.node, candidate)) {
            return skip(format!("the Node has {MAX_DISKS} labels of disks, which is the limit"));
        }
        Ok(())
    }

    fn labels_of_pvs(&self) -> BTreeSet<&'a str> {
        let pvs = self.pvs.iter().filter(|pv| self.is_bound_to_disk(pv));
        pvs.filter_map(|pv| pv.link.as_ref()?.label.as_deref()).collect()
    }

    /// The labels of the Node that name its disks, with those of all PVs, also of those that are being created.
    fn labels_in_use(&self) -> BTreeSet<String> {
        let creating = &self.snapshot.ledger.creating;
        let begun = self.volumes().filter(|it| creating.contains_key(&it.path));
        let drafts = self.plan.actions.iter().filter_map(|action| match action {
            Action::Create(draft) => Some(&draft.volume),
            _ => None,
        });
        let new = begun.chain(drafts).filter(|it| it.class.binding == Binding::Disk);
        let new = new.map(|it| label_of(self.node, &it.candidate));
        let known = self.labels_of_pvs().into_iter().chain(self.labels_of_node());
        known.map(str::to_owned).chain(new).collect()
    }

    fn labels_of_node(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let labels = self.node.labels.keys().map(String::as_str);
        labels.filter(|it| it.starts_with(DISK_LABEL_PREFIX))
    }

    /// Gives the Node the labels of the disks of all PVs, also of those that are missing or not verified. A label is removed
    /// with the last PV, of any installation, of a disk that is gone: the next PV of a disk requires it again.
    pub(super) fn label_node(&mut self) {
        let wanted = self.labels_of_pvs();
        let found: BTreeSet<_> = self.labels_of_node().collect();
        let missing = wanted.difference(&found).map(|it| (*it, Some(String::new())));
        let mut labels: BTreeMap<_, _> = missing.collect();
        let of_any = self.pvs.iter().filter_map(|pv| pv.link.as_ref()?.label.as_deref());
        let needless: Vec<_> = found.difference(&of_any.collect()).copied().collect();
        let observed = |class| self.snapshot.observed.get(class);
        let mut classes = self.settings.config.classes.keys();
        let is_seen = classes.all(|it| observed(it).is_some_and(|it| it.complete));
        // Only such a class has the permission to patch the Node.
        let has_disks = self.settings.config.binds_to_disks();
        if is_seen && has_disks && !needless.is_empty() {
            let disks = self.volumes().filter(|it| it.class.binding == Binding::Disk);
            let disks: Vec<_> = disks.map(|it| label_of(self.node, &it.candidate)).collect();
            let is_gone = |label: &&str| !disks.iter().any(|it| it == *label);
            labels.extend(needless.into_iter().filter(is_gone).map(|it| (it, None)));
        }
        let labels: BTreeMap<_, _> =
            labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let ledger = &self.snapshot.ledger;
        let is_written = ledger.writing.contains(&self.node.uid)
            || ledger.labelled.as_ref().is_some_and(|(written, known_until)| {
                *written == labels && self.snapshot.now < *known_until
            });
        if !is_written && !labels.is_empty() {
            let node = self.node.clone();
            self.plan.actions.push(Action::LabelNode(NodeLabels { node, labels }));
        }
    }
}
