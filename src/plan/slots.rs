//! The slots for cleanups: how many run at the same time.

use std::collections::BTreeSet;

use crate::host::mounts::DeviceNumber;

use super::{CleanupState, Settings, Snapshot};

/// The free slots: `maxConcurrentCleanups` in all, and one for each rotational disk.
#[derive(Debug, Default)]
pub(super) struct Slots {
    limit: usize,
    held: usize,
    /// Running wipes, including stalled ones, which hold no slot.
    wipes: usize,
    disks: BTreeSet<DeviceNumber>,
}

impl Slots {
    pub(super) fn of(settings: &Settings, snapshot: &Snapshot) -> Self {
        let mut slots =
            Self { limit: settings.config.max_concurrent_cleanups.get().into(), ..Self::default() };
        for cleanup in snapshot.ledger.cleanups.values().filter(|it| it.running) {
            if !matches!(cleanup.state, CleanupState::Wiped { .. }) {
                slots.wipes += 1;
                slots.held += usize::from(!cleanup.stalled && !cleanup.suspended);
                slots.disks.extend(&cleanup.disks);
            }
        }
        slots
    }

    /// Acquires a slot, if one is free.
    pub(super) fn take(&mut self, disks: &BTreeSet<DeviceNumber>) -> bool {
        let is_free =
            self.held < self.limit && self.wipes < 2 * self.limit && self.disks.is_disjoint(disks);
        if is_free {
            self.hold(disks);
        }
        is_free
    }

    pub(super) fn hold(&mut self, disks: &BTreeSet<DeviceNumber>) {
        self.held += 1;
        self.wipes += 1;
        self.disks.extend(disks);
    }
}
