//! Cleans a device by an external program and verifies the result.

use std::path::Path;

use crate::crash::crash_point;
use crate::host::Machine;
use crate::host::device::Device;
use crate::host::identity;
use crate::host::lock::VolumeLock;
use crate::host::mark::StateDir;
use crate::host::sysfs::Sysfs;
use crate::plan::reasons;
use crate::types::MountPath;
use crate::wipe::command;
use crate::wipe::device::Disk;
use crate::wipe::progress::Progress;

use super::Failure;
use super::blocking::{PROBE_TIMEOUT, blocking, open_when_free};
use super::volume::{Access, open_device};

/// The device of an external cleaner.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The PV's name.
    pub(crate) pv: String,
    /// The path of the device.
    pub(crate) path: MountPath,
    /// The identity of the device before the cleaner runs.
    pub(crate) identity: String,
}

/// Runs an external cleaner and checks the device afterwards.
///
/// Programs such as mkfs open the device exclusively, so our descriptor is closed first; the lock stays.
/// Afterwards number, size and identity of the device must be unchanged.
pub(crate) async fn external(
    target: &Target,
    device: Device,
    lock: &VolumeLock,
    words: &[String],
    progress: &Progress,
) -> Result<(), Failure> {
    let (number, size) = (device.number(), device.size());
    // The program resolves the path again. It must lead to this device now.
    device.recheck(target.path.as_path())?;
    drop(device);
    let path = &target.path;
    let log = |line: &str| tracing::info!(pv = target.pv, "cleaner: {line}");
    let env = [("LOCAL_PV_BLKDEVICE", path.as_path().as_os_str())];
    let ourselves = Path::new("/proc/self/exe");
    command::run(ourselves, words, &env, lock.as_fd(), log, progress).await?;
    let open = {
        let path = path.clone();
        move || open_device(&path, Access::Clean, &Machine::read(&StateDir::default())?)
    };
    // Closing a device after a write makes udev, LVM and multipath open it.
    let device = open_when_free(PROBE_TIMEOUT, progress, open).await;
    let device = device.map_err(|obstacle| {
        let message = format!("after the cleaner ended: {obstacle}");
        Failure::new(reasons::VOLUME_FAILED_DELETE, message)
    })?;
    let (target, words, progress) = (target.clone(), words.join(" "), progress.clone());
    blocking(true, move || {
        let after = identity::of_device(&device, target.path.as_path(), &Sysfs::default())?;
        let Target { path, identity, .. } = target;
        if (device.number(), device.size()) != (number, size) || after.text != identity {
            return Err(Failure::new(
                reasons::VOLUME_IDENTITY_MISMATCH,
                format!(
                    "while {words:?} ran, another device took the place of {identity:?} at {path}: {:?}; check both devices",
                    after.text
                ),
            ));
        }
        crash_point("verify");
        Disk::new(device.file(), device.size(), &progress).check_reset()?;
        Ok(())
    })
    .await
}
