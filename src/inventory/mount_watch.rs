//! Notifies the classes that a change of the mount table concerns.
//!
//! A busy node mounts and unmounts many times a second. The table is read at the first change, and then up to four
//! times a second, or once a second while no change concerns a class.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::host::kubelet::is_of_local_volume;
use crate::host::mounts::{self, DeviceNumber, Mount};
use crate::host::watch::MountEvents;

const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The mounts that a class depends on.
#[derive(Debug)]
pub(super) struct Concern {
    /// The path of its directory, as configured and without links.
    pub(super) dirs: [PathBuf; 2],
    /// Devices that are in use, and not offered for that reason.
    pub(super) devices: BTreeSet<DeviceNumber>,
    /// Notified when one of these mounts changes. Without its scanner, nothing concerns the class.
    pub(super) changed: Weak<Notify>,
}

impl Concern {
    fn includes(&self, mount: &Mount) -> bool {
        let mut dirs = self.dirs.iter();
        // A mount above the directory hides it.
        dirs.any(|dir| mount.point.starts_with(dir) || dir.starts_with(&mount.point))
            || self.devices.contains(&mount.device)
            // After the release, the kubelet no longer shows what it has mounted.
            || is_of_local_volume(&mount.point)
    }
}

/// The concerns of all classes.
#[derive(Debug, Default)]
pub(super) struct MountWatch(Mutex<Vec<Concern>>);

impl MountWatch {
    /// Replaces the concern of a scanner. A change that its scan has seen may notify it once more.
    pub(super) fn set(&self, concern: Concern) {
        let mut concerns = self.0.lock();
        concerns.retain(|it| it.changed.strong_count() > 0 && !it.changed.ptr_eq(&concern.changed));
        concerns.push(concern);
    }

    /// The path of a directory without links, if it was scanned.
    pub(super) fn real_dir(&self, dir: &Path) -> PathBuf {
        let concerns = self.0.lock();
        let scanned = concerns.iter().find(|it| it.dirs[0] == dir);
        scanned.map_or(dir, |it| &it.dirs[1]).to_owned()
    }

    /// Notifies the classes that changed mounts concern. Returns whether there are any.
    fn notify(&self, mounts: &[Mount]) -> bool {
        let mut any = false;
        for concern in self.0.lock().iter() {
            if let Some(changed) = concern.changed.upgrade()
                && mounts.iter().any(|mount| concern.includes(mount))
            {
                changed.notify_one();
                any = true;
            }
        }
        any
    }

    /// Watches the mount table, of which an earlier reading is known. Never returns without an error.
    ///
    /// # Errors
    /// When the table cannot be watched.
    pub(super) async fn run(&self, mut before: Vec<u8>) -> io::Result<Infallible> {
        let mut pause = MIN_PAUSE / 2;
        loop {
            // First, so that no change after the reading is missed.
            let events = MountEvents::new()?;
            let read_at = Instant::now();
            pause = match spawn_blocking(mounts::read).await? {
                Ok(now) => {
                    let changes = mounts::changes(&before, &now);
                    before = now;
                    if self.notify(&changes) { MIN_PAUSE } else { MAX_PAUSE.min(pause * 2) }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read the mount table; the next scan sees the change");
                    MAX_PAUSE
                }
            };
            events.changed().await?;
            // Each further change would wake this thread.
            drop(events);
            sleep_until(read_at + pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        let table = |more: &str| format!("{TABLE}{more}");
        let less = |line: &str| TABLE.replace(line, "");
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
                "a pod's local volume",
                vec![],
                table(
                    "30 20 0:50 / /var/lib/kubelet/pods/1/volumes/kubernetes.io~local-volume/pv rw - tmpfs x rw\n",
                ),
                true,
            ),
            ("a similar name", vec![], table("30 20 0:50 / /mnt/faster rw - tmpfs x rw\n"), false),
            ("a volume", vec![], table("30 21 0:50 / /mnt/fast/b rw - tmpfs x rw\n"), true),
            ("a mount above", vec![], table("30 20 0:50 / /mnt rw - tmpfs x rw\n"), true),
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
            let concern = Concern {
                dirs: ["/mnt/fast", "/mnt/real"].map(PathBuf::from),
                devices: devices.collect(),
                changed: Arc::downgrade(&changed),
            };
            let watch = MountWatch::default();
            watch.set(concern);
            let mounts = mounts::changes(TABLE.as_bytes(), now.as_bytes());
            assert_eq!(watch.notify(&mounts), concerns, "{what}");
            let notified = changed.notified().now_or_never().is_some();
            assert_eq!(notified, concerns, "{what}");
            let mounts = mounts::changes(now.as_bytes(), now.as_bytes());
            assert!(!watch.notify(&mounts), "{what}: once");
        }
    }
}
