//! The code that `clean` and the container of a cleaning Job share: it waits for the wipe.

use std::pin::pin;

use tokio::time::{Instant, interval_at, timeout};

use crate::cleanup::Failure;
use crate::cleanup::monitor::{PROGRESS_LOG_PERIOD, STOP_TIMEOUT};
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;

/// Waits for a wipe and logs its progress. SIGINT and SIGTERM cancel it. `None` if it was cancelled before it finished.
pub async fn watch<T>(
    progress: &Progress,
    stopped: impl Future<Output = &'static str>,
    wipe: impl Future<Output = Result<T, Failure>>,
) -> Option<Result<T, Failure>> {
    let begun = Instant::now();
    let mut ticks = interval_at(begun + PROGRESS_LOG_PERIOD, PROGRESS_LOG_PERIOD);
    let (mut wipe, mut stopped) = (pin!(wipe), pin!(stopped));
    let signal = loop {
        tokio::select! {
            result = &mut wipe => return Some(result),
            signal = &mut stopped => break signal,
            _ = ticks.tick() => tracing::info!("cleaning goes on: {}", progress.pace(begun.elapsed())),
        }
    };
    tracing::info!("{signal}: stopping");
    progress.cancel();
    match timeout(STOP_TIMEOUT, wipe).await.ok()? {
        // It ended before the cancellation took effect.
        Ok(done) => Some(Ok(done)),
        Err(failure) if failure == WipeError::Cancelled.into() => None,
        failed => Some(failed),
    }
}
