//! Reports filesystems that several volumes share.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::footprint::Footprint;
use crate::host::mounts::DeviceNumber;
use crate::quantity;

use super::discover::some_of;
use super::{About, Planner, reasons};

impl Planner<'_> {
    /// Reports each filesystem of which several directories are offered: without quotas, each PV has the size of the
    /// whole filesystem, and together they promise more than there is.
    pub(super) fn report_shared_filesystems(&mut self) {
        let mut sharing: BTreeMap<(DeviceNumber, u64), BTreeSet<String>> = BTreeMap::new();
        for volume in self.volumes() {
            let (path, candidate) = (&volume.path, &volume.candidate);
            let footprint = &candidate.footprint;
            if let Footprint::Filesystem { fs, .. } = footprint
                && self.occupied.is_shared(*fs)
                && self.occupied.at(path).is_some()
                && self.occupied.conflict(footprint, path).is_none()
            {
                let size = quantity::round_down(candidate.capacity);
                let paths = sharing.entry((*fs, size)).or_default();
                paths.insert(path.to_string());
            }
        }
        sharing.retain(|_, paths| paths.len() > 1);
        for ((_, size), paths) in sharing {
            let named: Vec<_> = paths.iter().map(String::as_str).collect();
            let (count, size, named) = (named.len(), quantity::format(size), some_of(&named));
            let message = format!(
                "{count} volumes share one filesystem of {size}, and each is offered with that size: {named}; a tenant can fill it for the others; give each volume a filesystem or a quota of its own"
            );
            self.notice(About::Pod, reasons::CAPACITY_SHARED, message);
        }
    }
}
