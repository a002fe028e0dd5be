//! The code that `clean` and the container of a cleaning Job share. It repeats the inspection
//! of a volume in use, and waits for the wipe.

use std::pin::pin;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval_at, sleep, timeout};

use super::run::StopSignals;
use crate::cleanup::oversee::{PROGRESS_LOG_PERIOD, STOP_TIMEOUT};
use crate::cleanup::{Failure, Obstacle};
use crate::wipe::progress::Progress;

/// The pause between two inspections.
const INSPECTION_PAUSE: Duration = Duration::from_millis(200);

/// Repeats an inspection on a blocking thread while the volume is in use: udev briefly opens a device after each
/// change.
pub async fn inspect<T: Send + 'static>(
    limit: Duration,
    progress: &Progress,
    look: impl Fn() -> Result<T, Obstacle> + Clone + Send + 'static,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match spawn_blocking(look.clone()).await? {
            Err(Obstacle::InUse { .. } | Obstacle::Locked(_)) if Instant::now() < deadline => {}
            found => return found.map_err(|obstacle| anyhow::anyhow!("{obstacle}")),
        }
        sleep(INSPECTION_PAUSE).await;
        progress.check()?;
    }
}

/// Waits for a wipe and logs its progress. SIGINT and SIGTERM cancel it. `None` if it was cancelled before it finished.
pub async fn watch<T>(
    progress: &Progress,
    signals: &mut StopSignals,
    wipe: impl Future<Output = Result<T, Failure>>,
) -> Option<Result<T, Failure>> {
    let begun = Instant::now();
    let mut ticks = interval_at(begun + PROGRESS_LOG_PERIOD, PROGRESS_LOG_PERIOD);
    let mut wipe = pin!(wipe);
    let signal = loop {
        tokio::select! {
            result = &mut wipe => return Some(result),
            signal = signals.received() => break signal,
            _ = ticks.tick() => tracing::info!("cleaning goes on: {}", progress.pace(begun.elapsed())),
        }
    };
    tracing::info!("{signal}: stopping");
    progress.cancel();
    // The wipe may end before the cancellation takes effect.
    let result = timeout(STOP_TIMEOUT, wipe).await.ok()?;
    Some(result).filter(|result| !matches!(result, Err(failure) if failure.stopped))
}
