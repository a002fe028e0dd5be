//! Cleans a device by an external program and verifies the result.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::crash::crash_point;
use crate::host::device::Device;
use crate::host::lock::VolumeLock;
use crate::host::sysfs::Sysfs;
use crate::inventory::{Machine, candidate_of_device};
use crate::plan::reasons;
use crate::types::MountPath;

use super::blocking::blocking;
use super::volume::{Access, open_device};
use super::{Failure, Stop};
use crate::wipe::progress::Progress;
use crate::wipe::{command, device};

/// How long to wait for udev, LVM and multipath, which open a device after its cleaner has closed it.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

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
    device
        .recheck(target.path.as_path())
        .map_err(|error| Failure::cleaning(&error))?;
    drop(device);
    let path = target.path.as_path().as_os_str();
    let log = |line: &str| tracing::info!(pv = target.pv, "cleaner: {line}");
    let env = [("LOCAL_PV_BLKDEVICE", path)];
    let ourselves = Path::new("/proc/self/exe");
    command::run(ourselves, words, &env, lock.as_fd(), log, progress).await?;
    let (target, words, progress) = (target.clone(), words.join(" "), progress.clone());
    blocking(true, move || {
        let device = open_again(&target.path)?;
        let machine = Machine::read().map_err(|error| Failure::cleaning(&error))?;
        let after = candidate_of_device(&device, &target.path, &machine)
            .map_err(|error| Failure::cleaning(&error))?;
        let Target { path, identity, .. } = target;
        if (device.number(), device.size()) != (number, size) || after.identity.text != identity {
            return Err(Failure::new(
                reasons::VOLUME_IDENTITY_MISMATCH,
                format!(
                    "while {words:?} ran, another device took the place of {identity:?} at {path}: {:?}; check both devices",
                    after.identity.text
                ),
            ));
        }
        crash_point("verify");
        device::check_reset(device.file(), device.size(), &progress)?;
        Ok(())
    })
    .await
}

/// Opens the device after a cleaner ended. Retries while udev, LVM or multipath has it open: closing a
/// device after a write triggers them.
fn open_again(path: &MountPath) -> Result<Device, Failure> {
    let deadline = Instant::now() + PROBE_TIMEOUT;
    loop {
        match open_device(path, Access::Write, &Sysfs::default()).map_err(Stop::from) {
            Ok(device) => return Ok(device),
            Err(Stop::Failed(failure)) => return Err(failure),
            Err(_) if Instant::now() < deadline => sleep(PROBE_TIMEOUT / 100),
            Err(other) => {
                let message = format!("after the cleaner ended: {other}");
                return Err(Failure::new(reasons::VOLUME_FAILED_DELETE, message));
            }
        }
    }
}
