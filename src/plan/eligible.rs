//! Which volumes without a PV can be offered.

use std::sync::Arc;

use crate::config::DiscoveryPolicy;
use crate::host::footprint::Overlap;
use crate::host::identity::Identity;
use crate::inventory::{Contents, Skip, Volume};
use crate::types::{HostPath, SkipReason};

use super::Planner;
use super::occupied::around;

impl Planner<'_> {
    /// Checks that a volume without a PV of ours can be offered.
    pub(super) fn unclaimed(&self, volume: &Arc<Volume>) -> Result<(), Skip> {
        let (class, path, candidate) = (&volume.class, &volume.path, &volume.candidate);
        let name = &class.name;
        let skip = |reason, detail: String| Err(Skip::new(reason, detail));
        if let Some(pv) = self.by_path.get(path).and_then(|pvs| pvs.first()) {
            let (pv, class) = (&pv.name, &pv.class);
            let detail = format!("PV {pv} of class {class:?} has the path {path} already");
            return skip(SkipReason::PathClaimedByOtherPV, detail);
        }
        if self.cleaning.contains(path) || self.with_job.contains(path) {
            let detail = format!("{path} is still being cleaned, or has a cleaning Job");
            return skip(SkipReason::CleanupRunning, detail);
        }
        if let Some(user) = &candidate.in_use {
            return skip(SkipReason::DeviceInUse, format!("{path} is in use: {user}"));
        }
        if self.occupied.at(path).is_some() {
            let detail = format!(
                "{path} is offered by another class already; give class {name:?} a namePattern that does not match it"
            );
            return skip(SkipReason::DuplicateDevice, detail);
        }
        let pv_around = around(&self.by_path, path).and_then(|pvs| pvs.first()?.path());
        let around = || self.occupied.around(path).map(|other| &other.path);
        if let Some(other) = pv_around.or_else(around) {
            return skip(SkipReason::NestedVolume, format!("{path} and {other} are nested"));
        }
        if let Some((other, overlap)) = self.occupied.conflict(&candidate.footprint, path) {
            let reason = match overlap {
                Overlap::Nested => SkipReason::NestedVolume,
                _ => SkipReason::DuplicateDevice,
            };
            let detail = format!("{path} shares its storage with {}: {overlap}", other.path);
            return skip(reason, detail);
        }
        if let Some(upper) = self.layers.upon(&candidate.footprint) {
            let detail = format!(
                "{path} is the device below {upper}, which takes precedence: a disk is offered as a whole or in parts; remove one of the two"
            );
            return skip(SkipReason::DuplicateDevice, detail);
        }
        // No volume at that PV's path matched above, so the volume was moved here.
        let identity = &candidate.identity;
        let path_of = |pv| self.by_name.get(pv).and_then(|pv| pv.path());
        let path_of = |pv| path_of(pv).map_or("", HostPath::as_str);
        if let Some(pv) = self.occupied.recorded_on(identity, "") {
            let other = path_of(pv);
            let detail = format!(
                "{path} is the volume of PV {pv}, which names {other}; mount it there again, or delete that PV"
            );
            return skip(SkipReason::IdentityOnOtherPV, detail);
        }
        if let Some(pv) = self.occupied.unseen_sharing(identity, "") {
            let other = path_of(pv);
            let detail = format!(
                "{path} may share its storage with {other} of PV {pv}, which is not visible at the moment; mount it there again and restore its class in the configuration, or delete that PV"
            );
            return skip(SkipReason::DuplicateDevice, detail);
        }
        Ok(())
    }

    /// Whether the policy of its class admits the contents of a volume. The mark comes first: it knows of a tenant.
    pub(super) fn is_empty_enough(&self, volume: &Arc<Volume>) -> Result<(), Skip> {
        let (class, path) = (&volume.class, &volume.path);
        if class.discovery_policy == DiscoveryPolicy::EmptyOnly
            && let Contents::Holds(what) = &volume.candidate.contents
            && self.claim_to_adopt(volume).is_none()
        {
            let (name, mount_path) = (&class.name, &volume.mount_path);
            let detail = format!(
                "{path} is not empty: it holds {what}; class {name:?} offers empty volumes only (discoveryPolicy: EmptyOnly); if its data is no longer needed: local-volume-provisioner clean {mount_path}"
            );
            return Err(Skip::new(SkipReason::NotEmpty, detail));
        }
        Ok(())
    }

    /// Whether the volume's contents are known, if its class requires that. They are not when its PV was deleted
    /// during the scan.
    pub(super) fn may_be_offered(&self, volume: &Arc<Volume>) -> bool {
        match volume.class.discovery_policy {
            DiscoveryPolicy::Any => true,
            DiscoveryPolicy::EmptyOnly => {
                volume.candidate.contents == Contents::Empty
                    || self.claim_to_adopt(volume).is_some()
            }
        }
    }

    /// Whether a PV that the cache may not show yet is being created for this path or this storage, also for
    /// an earlier configuration. Its result has to be awaited.
    pub(super) fn is_being_created(&self, path: &HostPath, identity: &Identity) -> bool {
        let creating = &self.snapshot.ledger.creating;
        let is_recorded = |recorded: &String| !identity.weak && identity.text == *recorded;
        creating.contains_key(path)
            || around(creating, path).is_some()
            || creating.values().any(is_recorded)
    }
}
