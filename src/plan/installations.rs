//! PVs of other installations.
//!
//! They are left alone while the DaemonSet of their installation may exist, so that two installations never manage the
//! same PV. Once it is gone, the installation that has their class and directory takes them over.

use crate::names::ANNOTATION_INSTALLATION;
use crate::view::{NodeView, Ownership, PvView};

use super::{Patch, Planner, PvLocation, Settings, VolumeState, reasons};

/// The other installation that manages a PV of this node, if the PV is in a class and directory of ours.
pub fn other_installation<'a>(
    settings: &Settings,
    node: &NodeView,
    pv: &'a PvView,
) -> Option<&'a str> {
    // Cheap, and false for most PVs of each pass.
    let other =
        pv.installation.as_deref().filter(|it| Some(*it) != settings.installation.as_deref())?;
    let class = settings.config.classes.get(&pv.class)?;
    pv.path()?.child_of(&class.host_dir)?;
    (settings.ownership(node, pv) == Ownership::OtherInstallation).then_some(other)
}

impl Settings {
    /// The owner of a PV, for a provisioner of this node with these settings.
    pub fn ownership(&self, node: &NodeView, pv: &PvView) -> Ownership {
        let name_only = self.config.use_node_name_only;
        pv.ownership(node, name_only, self.installation.as_deref())
    }
}

impl<'a> Planner<'a> {
    /// The owner of a PV. A PV of another installation is foreign until it can be taken over.
    pub(super) fn ownership(&self, pv: &PvView) -> Ownership {
        match self.settings.ownership(self.node, pv) {
            Ownership::OtherInstallation if !self.is_abandoned(pv) => Ownership::Foreign,
            owner => owner,
        }
    }

    fn is_abandoned(&self, pv: &PvView) -> bool {
        let snapshot = self.snapshot;
        let other = other_installation(self.settings, self.node, pv);
        let absent_for = other.and_then(|other| snapshot.absent_for.get(other));
        absent_for.is_some_and(|it| *it >= snapshot.absence_limit)
    }

    /// Takes over a PV whose installation is gone.
    pub(super) fn take_over(&mut self, pv: &'a PvView) {
        let state = (VolumeState::Foreign, Some("being taken over".into()));
        self.states.insert(&pv.name, state);
        let mut patch = Patch::of(pv);
        let ours = self.settings.installation.clone();
        let text = format!(
            "the DaemonSet of its installation {} is gone; the PV is now managed by {}",
            pv.installation.as_deref().unwrap_or_default(),
            ours.as_deref().unwrap_or("this provisioner"),
        );
        patch.events.push((reasons::VOLUME_ADOPTED, text));
        patch.annotations.insert(ANNOTATION_INSTALLATION, ours);
        self.patch(pv, patch);
    }

    /// Records our installation on a PV of ours that names none, as earlier versions made it. Another installation may
    /// have its class.
    pub(super) fn installation(&self, pv: &PvView, location: &PvLocation<'a>, patch: &mut Patch) {
        use PvLocation::{ClassGone, ClassInvalid, Outside};
        let is_elsewhere = matches!(location, ClassGone | ClassInvalid | Outside(_));
        if let (None, Some(ours), false) =
            (&pv.installation, &self.settings.installation, is_elsewhere)
        {
            let ours = Some(ours.clone());
            patch.annotations.insert(ANNOTATION_INSTALLATION, ours);
        }
    }
}
