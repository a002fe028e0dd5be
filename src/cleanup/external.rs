//! Cleans a device by an external program and verifies the result.

use std::path::Path;

use crate::crash::crash_point;
use crate::host::device::Device;
use crate::host::identity;
use crate::host::lock::VolumeLock;
use crate::host::sysfs::Sysfs;
use crate::plan::reasons;
use crate::wipe::command;
use crate::wipe::device::Disk;
use crate::wipe::progress::Progress;

use super::Failure;
use super::blocking::blocking;
use super::mark::Marker;
use super::volume::reopen;

/// Runs an external cleaner and checks the device afterwards.
///
/// Programs such as mkfs open the device exclusively, so our descriptor is closed first; the lock stays.
/// Afterwards number, size and identity of the device must be unchanged.
pub(crate) async fn external(
    marker: &Marker,
    device: Device,
    lock: &VolumeLock,
    words: &[String],
    progress: &Progress,
) -> Result<(), Failure> {
    let (number, size) = (device.number(), device.size());
    // The program resolves the path again. It must lead to this device now.
    device.recheck(marker.path.as_path())?;
    drop(device);
    let path = &marker.path;
    let log = |line: &str| tracing::info!("cleaner: {line}");
    let env = [("LOCAL_PV_BLKDEVICE", path.as_path().as_os_str())];
    let ourselves = Path::new("/proc/self/exe");
    command::run(ourselves, words, &env, lock.as_fd(), log, progress).await?;
    // Closing a device after a write makes udev, LVM and multipath open it.
    let device = reopen(path, progress).await.map_err(|obstacle| {
        let message = format!("after the cleaner ended: {obstacle}");
        Failure::new(message)
    })?;
    let (marker, words, progress) = (marker.clone(), words.join(" "), progress.clone());
    blocking(true, move || {
        let Marker { path, identity, .. } = marker;
        let after = identity::of_device(&device, path.as_path(), &Sysfs::default())?;
        if (device.number(), device.size()) != (number, size) || after.text != identity.text {
            return Err(Failure::with_reason(
                reasons::VOLUME_IDENTITY_MISMATCH,
                format!(
                    "while {words:?} ran, another device took the place of {:?} at {path}: {:?}; check both devices",
                    identity.text, after.text
                ),
            ));
        }
        crash_point("verify");
        Disk::new(device.file(), device.size(), &progress).check_reset()?;
        Ok(())
    })
    .await
}
