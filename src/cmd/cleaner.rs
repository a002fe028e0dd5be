//! The code that `clean` and the container of a cleaning Job share. It inspects a volume and wipes a device with the
//! code of a cleanup.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::cleanup::blocking::blocking;
use crate::cleanup::external::{Target, external};
use crate::cleanup::wipe::reset;
use crate::cleanup::{Failure, Stop};
use crate::host::device::Device;
use crate::host::lock::VolumeLock;
use crate::plan::reasons;
use crate::wipe::device::DeviceReport;
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// The pause between two inspections.
const INSPECTION_PAUSE: Duration = Duration::from_millis(200);

/// A failure before anything was touched.
pub fn refused(why: impl std::fmt::Display) -> Failure {
    let message = format!("{why}; nothing was touched");
    Failure::new(reasons::VOLUME_FAILED_DELETE, message)
}

/// Repeats an inspection on a blocking thread while the volume is in use: udev briefly opens a device after each
/// change.
pub async fn inspect<T: Send + 'static>(
    limit: Duration,
    progress: &Progress,
    look: impl Fn() -> Result<T, Stop> + Clone + Send + 'static,
) -> Result<T, Failure> {
    let deadline = Instant::now() + limit;
    loop {
        match spawn_blocking(look.clone()).await.map_err(refused)? {
            Ok(found) => return Ok(found),
            Err(Stop::Failed(failure)) => return Err(failure),
            Err(stop) if Instant::now() >= deadline => return Err(refused(stop)),
            Err(_) => sleep(INSPECTION_PAUSE).await,
        }
        progress.check().map_err(refused)?;
    }
}

/// Wipes and verifies a device. `None` for an external cleaner, which has no report.
pub async fn wipe(
    device: Device,
    lock: VolumeLock,
    target: Target,
    method: Method,
    progress: &Progress,
) -> Result<Option<DeviceReport>, Failure> {
    if let Method::Command(words) = &method {
        return external(&target, device, &lock, words, progress)
            .await
            .map(|()| None);
    }
    let progress = progress.clone();
    blocking(true, move || {
        // Holds the lock until this thread ends.
        let _lock = lock;
        reset(&device, &method, &progress)
    })
    .await
}
