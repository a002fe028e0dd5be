//! The protections of volumes that this process lacks, because its pod does not give what they require.
//!
//! A pod template of another program runs this one without them, so each is reported.

use rustix::thread::{CapabilitySet, capabilities};

use super::kubelet::KubeletDir;
use super::mark::StateDir;
use crate::types::VolumeMode;

/// A protection that is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unprotected {
    /// Its name in the metric.
    pub feature: &'static str,
    /// What is off, its effect, and the remedy.
    pub text: String,
}

/// The names of all protections in the metric.
pub const FEATURES: [&str; 3] = ["marks", "marks_on_filesystems", "kubelet_mounts"];

/// Whether this process can write marks to filesystems, in attributes that require `CAP_SYS_ADMIN`.
pub fn may_set_attributes() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// The protections that are off.
pub fn unprotected(marks: &StateDir, kubelet: &KubeletDir) -> Vec<Unprotected> {
    let [all, on_filesystems, mounts] = FEATURES;
    let mut off = Vec::new();
    let mut is_off = |feature, text| off.push(Unprotected { feature, text });
    if !marks.is_open() {
        is_off(all, "marks are off: there is no STATE_DIRECTORY, so a disk from elsewhere is offered with its data; mount one (docs/upgrade.md)".into());
    } else if !may_set_attributes() {
        is_off(on_filesystems, "marks of filesystems stay on this node, and no filesystem is trimmed: CAP_SYS_ADMIN is missing; a disk from elsewhere is offered with its data (docs/marks.md)".into());
    }
    if !kubelet.sees(VolumeMode::Block) {
        let dir = kubelet.path.display();
        is_off(
            mounts,
            format!(
                "mounts by the kubelet are not visible: {dir} lacks its pods and plugins; mount both, or set --kubelet-dir (docs/upgrade.md)"
            ),
        );
    }
    off
}
