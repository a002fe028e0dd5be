//! The code that `clean` and the container of a cleaning Job share: it waits for the wipe.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, interval_at, timeout};

use crate::cleanup::Failure;
use crate::cleanup::monitor::{PROGRESS_LOG_PERIOD, STOP_TIMEOUT};
use crate::config::duration;
use crate::types::MountPath;
use crate::wipe::error::WipeError;
use crate::wipe::progress::Progress;

/// A signal interrupted a wipe: exit code 130.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Interrupted(String);

/// Waits for a wipe and logs its progress. SIGINT and SIGTERM cancel it. Returns the time that it took.
///
/// # Errors
/// [`Interrupted`], or another error with the cause. The volume is not clean.
pub async fn finish<T>(
    path: &MountPath,
    progress: &Progress,
    stopped: impl Future<Output = &'static str>,
    wipe: impl Future<Output = Result<T, Failure>>,
) -> Result<String> {
    let begun = Instant::now();
    let mut ticks = interval_at(begun + PROGRESS_LOG_PERIOD, PROGRESS_LOG_PERIOD);
    let (mut wipe, mut stopped) = (pin!(wipe), pin!(stopped));
    let end = loop {
        tokio::select! {
            end = &mut wipe => break end,
            signal = &mut stopped => {
                tracing::info!("{signal}: stopping");
                progress.cancel();
                let end = timeout(STOP_TIMEOUT, wipe).await;
                break end.unwrap_or_else(|_| Err(WipeError::Cancelled.into()));
            }
            _ = ticks.tick() => tracing::info!("cleaning in progress: {}", progress.pace(begun.elapsed())),
        }
    };
    let elapsed = begun.elapsed();
    let so_far = progress.pace(elapsed);
    match end {
        Ok(_) => Ok(duration::format(Duration::from_secs(elapsed.as_secs()))),
        Err(failure) if failure == WipeError::Cancelled.into() => bail!(Interrupted(format!(
            "interrupted ({so_far}); {path} is half cleaned, and the rest can still be read: run this again, it starts from the beginning"
        ))),
        Err(failure) => bail!(
            "cleaning {path} failed: {} ({so_far}); the volume is not clean: fix the cause and run this again",
            failure.message
        ),
    }
}
