//! Cleaning by somebody else's program.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::crash::crash_point;
use crate::host::device::Device;
use crate::host::lock::VolumeLock;
use crate::inventory::{Machine, candidate_of_device};
use crate::plan::reasons;
use crate::types::MountPath;

use super::blocking::blocking;
use super::{Failure, Stop, exclusive};
use crate::wipe::progress::Progress;
use crate::wipe::{command, device};

/// How long others may look at a device whose cleaner has closed it.
pub(crate) const OTHERS_LOOK: Duration = Duration::from_secs(10);

/// A device, as its cleaner and we find it again.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The PV's name.
    pub(crate) pv: String,
    /// Where the device is.
    pub(crate) path: MountPath,
    /// What it is known by there.
    pub(crate) identity: String,
}

/// An external program opens the device itself, and programs such as mkfs want it for themselves: so
/// our exclusive descriptor is closed, the lock stays, and afterwards the device has to prove that
/// it is still the same one.
pub(crate) async fn external(
    target: &Target,
    device: Device,
    lock: &VolumeLock,
    words: &[String],
    progress: &Progress,
) -> Result<(), Failure> {
    let (number, size) = (device.number(), device.size());
    // The program looks the path up once more: at least it must lead to this device right now.
    device
        .recheck(target.path.as_path())
        .map_err(|error| Failure::cleaning(&error))?;
    drop(device);
    let path = target.path.as_path().as_os_str();
    let log = |line: &str| tracing::info!(pv = target.pv, "cleaner: {line}");
    let env = [("LOCAL_PV_BLKDEVICE", path)];
    command::run(words, &env, lock.as_fd(), log, progress).await?;
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
                    "while {words:?} ran, another device took the place of {identity:?} at {path}: {:?}; both need to be looked at",
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

/// Opens the device after a cleaner ended. What closes a device that was written to makes others look
/// at it (udev, LVM, multipath), which is no reason to begin anew.
fn open_again(path: &MountPath) -> Result<Device, Failure> {
    let deadline = Instant::now() + OTHERS_LOOK;
    loop {
        match exclusive::open(path) {
            Ok(device) => return Ok(device),
            Err(Stop::Failed(failure)) => return Err(failure),
            Err(_) if Instant::now() < deadline => sleep(OTHERS_LOOK / 100),
            Err(other) => {
                let message = format!("after the cleaner ended: {other}");
                return Err(Failure::new(reasons::VOLUME_FAILED_DELETE, message));
            }
        }
    }
}
