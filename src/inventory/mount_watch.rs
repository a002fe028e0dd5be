//! Notifies the classes that a change of the mount table concerns.
//!
//! A busy node mounts and unmounts many times a second. The table is read at the first change, and then up to four
//! times a second, or once a second while no change concerns a class.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::host::mounts::{DeviceNumber, Mount, MountTable};
use crate::host::watch::MountEvents;

const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The part of the mount table that a class depends on.
#[derive(Debug)]
pub(super) struct Concern {
    /// The paths of its directory.
    dirs: Vec<PathBuf>,
    /// Devices that are in use, and not offered for that reason.
    devices: BTreeSet<DeviceNumber>,
    /// That part, as of its last scan.
    seen: Vec<Mount>,
    /// Of its scanner. Without one, nothing concerns the class.
    changed: Weak<Notify>,
}

impl Concern {
    /// The concern after a scan that has read this table. `changed` is notified when that part changes.
    pub(super) fn new(
        table: &MountTable,
        dirs: Vec<PathBuf>,
        devices: BTreeSet<DeviceNumber>,
        changed: &Arc<Notify>,
    ) -> Self {
        let mut concern = Self {
            dirs,
            devices,
            seen: Vec::new(),
            changed: Arc::downgrade(changed),
        };
        concern.update(table);
        concern
    }

    /// Takes over the part of a newer table. Returns whether it differs.
    fn update(&mut self, table: &MountTable) -> bool {
        let Self { dirs, devices, .. } = &*self;
        // A mount above the directory hides it.
        let is_near = |mount: &Mount| {
            let mut dirs = dirs.iter();
            dirs.any(|dir| mount.point.starts_with(dir) || dir.starts_with(&mount.point))
        };
        let is_part = |mount: &&Mount| devices.contains(&mount.device) || is_near(mount);
        if table.iter().filter(is_part).eq(&self.seen) {
            return false;
        }
        self.seen = table.iter().filter(is_part).cloned().collect();
        true
    }
}

/// The concerns of all classes.
#[derive(Debug, Default)]
pub(super) struct MountWatch(Mutex<BTreeMap<String, Concern>>);

impl MountWatch {
    /// Replaces the concern of a class.
    pub(super) fn set(&self, class: &str, concern: Concern) {
        let mut concerns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        concerns.insert(class.to_owned(), concern);
    }

    /// Notifies the classes that the table concerns. Returns whether there are any.
    fn notify(&self, table: &MountTable) -> bool {
        let mut any = false;
        let mut concerns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        concerns.retain(|_, concern| {
            let Some(changed) = concern.changed.upgrade() else {
                return false;
            };
            if concern.update(table) {
                changed.notify_one();
                any = true;
            }
            true
        });
        any
    }

    /// Watches the mount table. Never returns without an error.
    ///
    /// # Errors
    /// When the table cannot be watched.
    pub(super) async fn run(&self, events: MountEvents) -> io::Result<()> {
        let mut pause = MIN_PAUSE;
        loop {
            events.changed().await?;
            pause = match tokio::task::spawn_blocking(MountTable::read).await? {
                Ok(table) if self.notify(&table) => MIN_PAUSE,
                Ok(_) => MAX_PAUSE.min(pause * 2),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the mount table; the next scan sees the change");
                    MAX_PAUSE
                }
            };
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const TABLE: &str = "\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:1 /disks /mnt/fast rw - ext4 /dev/sda1 rw
22 21 8:16 / /mnt/fast/a rw - ext4 /dev/sdb rw
23 20 8:32 / /elsewhere rw - ext4 /dev/sdc rw
";

    #[test]
    fn only_mounts_near_a_class_or_of_a_device_in_use_concern_it() {
        let table = |more: &str| MountTable::parse(format!("{TABLE}{more}").as_bytes());
        let less = |line: &str| MountTable::parse(TABLE.replace(line, "").as_bytes());
        let elsewhere = "23 20 8:32 / /elsewhere rw - ext4 /dev/sdc rw\n";
        for (what, devices, now, concerns) in [
            ("nothing", vec![], table(""), false),
            (
                "a pod's volume",
                vec![],
                table("30 20 0:50 / /var/lib/kubelet/pods/1 rw - tmpfs x rw\n"),
                false,
            ),
            (
                "a similar name",
                vec![],
                table("30 20 0:50 / /mnt/faster rw - tmpfs x rw\n"),
                false,
            ),
            (
                "a volume",
                vec![],
                table("30 21 0:50 / /mnt/fast/b rw - tmpfs x rw\n"),
                true,
            ),
            (
                "a mount above",
                vec![],
                table("30 20 0:50 / /mnt rw - tmpfs x rw\n"),
                true,
            ),
            (
                "an unmounted volume",
                vec![],
                less("22 21 8:16 / /mnt/fast/a rw - ext4 /dev/sdb rw\n"),
                true,
            ),
            ("another device", vec!["8:16"], less(elsewhere), false),
            ("a device in use", vec!["8:32"], less(elsewhere), true),
        ] {
            let changed = Arc::new(Notify::new());
            let devices = devices.iter().filter_map(|it| DeviceNumber::parse(it));
            let concern = Concern::new(
                &table(""),
                vec!["/mnt/fast".into()],
                devices.collect(),
                &changed,
            );
            let watch = MountWatch::default();
            watch.set("fast", concern);
            assert_eq!(watch.notify(&now), concerns, "{what}");
            let notified = changed.notified().now_or_never().is_some();
            assert_eq!(notified, concerns, "{what}");
            assert!(!watch.notify(&now), "{what}: once");
        }
    }
}
