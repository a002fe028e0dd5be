//! Which volumes without a PV can be offered.

use crate::config::{Class, DiscoveryPolicy};
use crate::host::footprint::Overlap;
use crate::host::identity::Identity;
use crate::inventory::{Candidate, Contents, Skip};
use crate::types::{HostPath, SkipReason};
use crate::view::PvView;

use super::Planner;
use super::occupied::around;

impl<'a> Planner<'a> {
    /// Checks that a volume without a PV of ours can be offered.
    pub(super) fn unclaimed(
        &self,
        class: &Class,
        path: &HostPath,
        candidate: &Candidate,
    ) -> Result<(), Skip> {
        let skip = |reason, detail: String| Err(Skip::new(reason, detail));
        if let Some(pv) = self.by_path.get(path).and_then(|pvs| pvs.first()) {
            let detail = format!(
                "PV {} of class {:?} has the path {path} already",
                pv.name, pv.class
            );
            return skip(SkipReason::PathClaimedByOtherPV, detail);
        }
        if self.cleaning.contains(path) {
            return skip(
                SkipReason::CleanupRunning,
                format!("{path} is still being cleaned"),
            );
        }
        if self.with_job.contains(path) {
            return skip(
                SkipReason::CleanupRunning,
                format!("{path} still has a cleaning Job"),
            );
        }
        if let Some(user) = &candidate.in_use {
            return skip(SkipReason::DeviceInUse, format!("{path} is in use: {user}"));
        }
        if self.occupied.at(path).is_some() {
            let detail = format!(
                "{path} is offered by another class already; give class {:?} a namePattern that does not match it",
                class.name
            );
            return skip(SkipReason::DuplicateDevice, detail);
        }
        if let Some(pv) = self.pv_around(path) {
            let other = pv.path().map_or("", HostPath::as_str);
            let detail = format!("{path} and {other} of PV {} are nested", pv.name);
            return skip(SkipReason::NestedVolume, detail);
        }
        if let Some(other) = self.occupied.around(path) {
            let detail = format!("{path} and {} are nested", other.path);
            return skip(SkipReason::NestedVolume, detail);
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
        if !identity.weak
            && let Some(name) = self.occupied.recorded_on(&identity.text)
        {
            let pv = self.by_name.get(name);
            let other = pv.and_then(|pv| pv.path()).map_or("", HostPath::as_str);
            let detail = format!(
                "{path} is the volume of PV {name}, which names {other}; mount it there again, or delete that PV"
            );
            return skip(SkipReason::IdentityOnOtherPV, detail);
        }
        if let Some(name) = self.occupied.unseen_sharing(identity, "") {
            let pv = self.by_name.get(name);
            let other = pv.and_then(|pv| pv.path()).map_or("", HostPath::as_str);
            let detail = format!(
                "{path} may share its storage with {other} of PV {name}, which is not visible at the moment; mount it there again and restore its class in the configuration, or delete that PV"
            );
            return skip(SkipReason::DuplicateDevice, detail);
        }
        if let Contents::Holds(what) = &candidate.contents {
            let mount_path = class
                .mount_dir
                .join(path.child_of(&class.host_dir).unwrap_or_default());
            let detail = format!(
                "{path} is not empty: it holds {what}; class {:?} offers empty volumes only (discoveryPolicy: EmptyOnly); if its data is no longer needed: local-volume-provisioner clean {mount_path}",
                class.name
            );
            return skip(SkipReason::NotEmpty, detail);
        }
        Ok(())
    }

    /// Whether a PV that the cache may not show yet is being created for this path or this storage, also for
    /// an earlier configuration. Its result has to be awaited.
    pub(super) fn is_being_made(&self, path: &HostPath, identity: &Identity) -> bool {
        let making = &self.snapshot.making;
        let is_recorded = |recorded: &String| !identity.weak && identity.text == *recorded;
        making.contains_key(path)
            || around(making, path).is_some()
            || making.values().any(is_recorded)
    }

    /// A PV whose path is inside or around `path`.
    pub(super) fn pv_around(&self, path: &HostPath) -> Option<&'a PvView> {
        around(&self.by_path, path).and_then(|pvs| pvs.first().copied())
    }
}

/// Whether the volume's contents are known, if its class requires that. They are not when its PV was deleted
/// during the scan.
pub(super) fn may_be_offered(class: &Class, candidate: &Candidate) -> bool {
    match class.discovery_policy {
        DiscoveryPolicy::Any => true,
        DiscoveryPolicy::EmptyOnly => candidate.contents == Contents::Empty,
    }
}
