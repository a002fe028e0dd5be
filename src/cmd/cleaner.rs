//! What `clean` and the container of a cleaning Job share: they inspect a volume and wipe a device as
//! a cleanup does.

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
const PAUSE: Duration = Duration::from_millis(200);

/// A failure before anything was touched.
pub fn refused(why: impl std::fmt::Display) -> Failure {
    let message = format!("{why}; nothing was touched");
    Failure::new(reasons::VOLUME_FAILED_DELETE, message)
}

/// Repeats an inspection, on a thread that may block, while the volume is in use: after each change,
/// udev opens a device for a moment.
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
            Err(_) => sleep(PAUSE).await,
        }
        progress.check().map_err(refused)?;
    }
}

/// Wipes a device and verifies it. An external cleaner reports nothing.
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
        // The lock is held as long as this thread works.
        let _lock = lock;
        reset(&device, &method, &progress)
    })
    .await
}
