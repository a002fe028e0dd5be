//! Reports filesystems that several volumes share.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::footprint::{Footprint, FsKey};
use crate::quantity;

use super::discover::some_of;
use super::{About, Planner, reasons};

impl Planner<'_> {
    /// Reports each filesystem of which several directories are offered: without quotas, each PV has the size of the
    /// whole filesystem, and together they promise more than there is.
    pub(super) fn report_shared_filesystems(&mut self) {
        let mut sharing: BTreeMap<(&FsKey, u64), BTreeSet<String>> = BTreeMap::new();
        for (name, class) in &self.settings.config.classes {
            let Some(observation) = self.snapshot.observed.get(name) else {
                continue;
            };
            for (entry, candidate) in observation.volumes() {
                let footprint = &candidate.footprint;
                let fs = match footprint {
                    Footprint::Filesystem { fs, .. } if self.occupied.is_shared(fs) => fs,
                    _ => continue,
                };
                let path = class.host_dir.join(entry);
                if self.occupied.at(&path).is_some()
                    && self.occupied.conflict(footprint, &path).is_none()
                {
                    let size = quantity::round_down(candidate.capacity);
                    let paths = sharing.entry((fs, size)).or_default();
                    paths.insert(path.to_string());
                }
            }
        }
        sharing.retain(|_, paths| paths.len() > 1);
        for ((_, size), paths) in sharing {
            let named: Vec<_> = paths.iter().map(String::as_str).collect();
            let message = format!(
                "{} volumes share one filesystem of {}, and each is offered with that size: {}; a tenant can fill it for the others; give each volume a filesystem or a quota of its own",
                paths.len(),
                quantity::format(size),
                some_of(&named)
            );
            self.notice(About::Pod, reasons::CAPACITY_SHARED, message);
        }
    }
}
