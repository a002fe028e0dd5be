//! One owner per disk in the whole cluster.
//!
//! Each PV has a hash of its identity as a label. Before a PV is created, and once it exists, the PVs of other nodes with
//! the same hash are listed. Of two nodes that create a PV at once, at least one sees the other: the older PV stays, and
//! the younger one is deleted if it was never used.
//!
//! An operator can forge a label. It can delay an offer, and is reported. Only a PV of this node that was never used is
//! ever deleted for it.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::host::identity::GlobalIdentity;
use crate::inventory::{Candidate, Skip};
use crate::quantity;
use crate::types::{HostPath, SkipReason};
use crate::view::{NodeView, PvView};

use super::discover::some_of;
use super::upkeep::is_labelled;
use super::{About, Action, Planner, reasons};

/// The name of the list among the names of [`super::Ledger::writing`]: no object can have it.
pub const OWNER_LIST: &str = "the PVs with our identities";

/// A volume of ours whose other owners are to be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerQuery {
    /// The key of the result: the UID of its PV, or the hash of an identity that is not unique, which is listed once.
    pub key: String,
    /// Its identity.
    pub identity: GlobalIdentity,
    /// Its size in bytes.
    pub capacity: u64,
}

impl OwnerQuery {
    /// The query of a volume with a PV of this UID.
    pub fn new(uid: &str, identity: &GlobalIdentity, capacity: u64) -> Self {
        let key = if identity.is_unique { uid } else { &identity.hash };
        Self { key: key.to_owned(), identity: identity.clone(), capacity }
    }
}

/// The PVs of other nodes with the identity of a volume of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherPvs {
    /// The hash of the identity.
    pub hash: String,
    /// How many there are.
    pub count: usize,
    /// Those of them that are of the same storage.
    pub owners: Vec<PvView>,
    /// Those of this node that are bound to their disks. The answer to the takeover of one may be lost, and its name does
    /// not prevent that another one is created.
    pub here: Vec<PvView>,
    /// When they are listed again, by [`super::Ledger::record_others`]. `None`: never, since the identity is not unique.
    pub list_at: Option<Duration>,
}

impl OtherPvs {
    /// Those of these PVs that are of other nodes and have the identity of a query.
    pub fn of(query: &OwnerQuery, pvs: &[PvView], node: &NodeView) -> Self {
        let hash = &query.identity.hash;
        let of_disk = |pv: &&PvView| pv.identity_hash.as_ref() == Some(hash);
        let of_disk = pvs.iter().filter(of_disk);
        let is_here = |pv: &&PvView| match &pv.link {
            Some(_) => pv.is_on(node),
            None => pv.hostname_label.as_ref() == Some(&node.hostname),
        };
        let (here, others): (Vec<_>, Vec<_>) = of_disk.partition(is_here);
        let here = here.into_iter().filter(|pv| pv.link.is_some());
        let nodes: BTreeSet<_> = others.iter().map(|pv| &pv.hostname_label).collect();
        let is_same = query.identity.is_same_storage(nodes.len());
        // No PV is larger than its disk.
        let fits = |pv: &PvView| {
            let size = pv.capacity.as_deref().and_then(quantity::parse);
            size.is_none_or(|size| size <= query.capacity)
        };
        let owners = others.iter().copied().filter(|pv| {
            let is_elsewhere = pv.link.is_some() || !pv.is_local_to(node);
            is_same && is_elsewhere && fits(pv)
        });
        Self {
            hash: hash.clone(),
            count: others.len(),
            owners: owners.cloned().collect(),
            here: here.cloned().collect(),
            list_at: None,
        }
    }

    /// Whether there is no PV of the volume, neither of another node nor here.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.here.is_empty()
    }

    /// Why the volume at a path is not offered, if there is a PV of it.
    pub fn skip(&self, path: &HostPath) -> Option<Skip> {
        let here = self.here.first().map(|pv| {
            let (pv, other) = (&pv.name, pv.path().map_or("no path", HostPath::as_str));
            format!(
                "{path} is the volume of PV {pv}, which names {other}; mount it there again, or delete that PV"
            )
        });
        let elsewhere = self.owners.first().map(|pv| {
            let (pv, node) = (&pv.name, nodes(pv));
            format!(
                "{path} is the disk of PV {pv} of node {node}; detach it from one of the two nodes, or delete that PV"
            )
        });
        let detail = here.or(elsewhere)?;
        Some(Skip::new(SkipReason::IdentityOnOtherPV, detail))
    }
}

fn nodes(pv: &PvView) -> String {
    let hosts: BTreeSet<_> =
        pv.hostnames.iter().chain(&pv.hostname_label).map(String::as_str).collect();
    Vec::from_iter(hosts).join(", ")
}

/// PVs are in order by age, from the oldest.
fn age(pv: &PvView) -> (Option<Timestamp>, &str) {
    (pv.created, &pv.uid)
}

impl<'a> Planner<'a> {
    /// Compares a PV with those of other nodes for the same disk. Returns `false` if the PV is withdrawn.
    pub(super) fn check_owners(&mut self, pv: &'a PvView, candidate: &Candidate) -> bool {
        // Other nodes find the PV by its label, so it has the label before they are listed.
        let identity = candidate.global.as_ref();
        let Some(identity) = identity.filter(|_| is_labelled(pv, candidate)) else {
            return true;
        };
        let query = OwnerQuery::new(&pv.uid, identity, candidate.capacity);
        let found =
            self.snapshot.ledger.others.get(&query.key).filter(|found| found.hash == identity.hash);
        let is_due = |at| at <= self.snapshot.now;
        if found.is_none_or(|found| found.list_at.is_some_and(is_due)) {
            self.owner_queries.push(query);
        }
        let Some(found) = found else { return true };
        if found.owners.is_empty() && found.count > 0 {
            self.alike.push(&pv.name);
        }
        let is_older = |other: &&PvView| age(other) < age(pv);
        let mut others = found.owners.iter();
        if let Some(other) = others.find(is_older).filter(|_| pv.never_used()) {
            let (name, node) = (&other.name, nodes(other));
            let because = format!(
                "it was never used, and its disk is that of PV {name} of node {node}, which is older"
            );
            self.withdraw_as(reasons::VOLUME_DUPLICATE, pv, &because);
            return false;
        }
        // Its own provisioner deletes an unused one that is younger.
        let stays = |other: &&PvView| is_older(other) || !other.never_used();
        if let Some(other) = found.owners.iter().find(stays) {
            let (name, node) = (&other.name, nodes(other));
            let message = format!(
                "its disk is also that of PV {name} of node {node}; two tenants may use it; detach it from one node, and delete the PV of that node"
            );
            self.notice(pv, reasons::VOLUME_DUPLICATE, message);
        }
        true
    }

    /// Lists the PVs of other nodes, and reports those with the same identity that are of other storage.
    pub(super) fn find_owners(&mut self) {
        let queries = std::mem::take(&mut self.owner_queries);
        if !queries.is_empty() && !self.snapshot.ledger.writing.contains(OWNER_LIST) {
            self.plan.actions.push(Action::FindOwners(queries));
        }
        if !self.alike.is_empty() {
            let named = some_of(&self.alike);
            let message = format!(
                "PVs of other nodes have the same identity as {named}; it is not unique, so all are offered; verify that no disk is attached to two nodes"
            );
            self.notice(About::Pod, reasons::VOLUME_DUPLICATE, message);
        }
    }
}
