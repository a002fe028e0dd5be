//! Runs beside a wipe: progress log, metrics and the time limit.

use std::convert::Infallible;
use std::time::Duration;

use prometheus::Counter;
use tokio::time::{Instant, sleep, timeout};

use crate::config::duration;
use crate::plan::{CleanOrder, reasons};

use super::{CleanupContext, Failure};
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// How often the progress of a cleanup is logged.
pub(crate) const PROGRESS_LOG_PERIOD: Duration = Duration::from_secs(30);
/// How long a cleanup without progress keeps its slot. A single system call, such as a sync on a busy
/// disk, may take nearly as long.
pub(super) const STALL_LIMIT: Duration = Duration::from_mins(2);
/// How often wiped bytes are counted.
const COUNT_PERIOD: Duration = Duration::from_secs(1);
/// How long a cancelled cleaner may take to stop. After that, its disk is reported as hanging.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Awaits a wipe within the class's `cleanupTimeout` and logs its progress.
///
/// # Errors
/// Those of the wipe. A wipe that exceeds the limit fails even if it succeeds afterwards.
pub(super) async fn oversee<T>(
    context: &CleanupContext,
    order: &CleanOrder,
    progress: &Progress,
    wipe: impl Future<Output = Result<T, Failure>> + Unpin,
) -> Result<T, Failure> {
    let begun = Instant::now();
    let mut meter = Meter {
        counter: &context.metrics.cleanup_bytes_total,
        progress,
        counted: 0,
    };
    let result = tokio::select! {
        biased;
        result = limited(order.class.cleanup_timeout, progress, wipe) => result,
        never = log_progress(context, order, progress, begun) => match never {},
        never = meter.run() => match never {},
    };
    result.unwrap_or_else(|exceeded| {
        let progress = if is_silent(order) {
            "its program does not say how far it came".to_owned()
        } else {
            progress.pace(begun.elapsed()).to_string()
        };
        let message = format!(
            "cleaning took longer than {}, the cleanupTimeout of class {:?}: {progress}; {}; \
             if the disk is only slow, set a longer cleanupTimeout",
            duration::format(exceeded.limit),
            order.class.name,
            exceeded.end
        );
        Err(Failure::new(reasons::VOLUME_FAILED_DELETE, message))
    })
}

/// A wipe exceeded its time limit.
#[derive(Debug, PartialEq, Eq)]
struct LimitExceeded {
    limit: Duration,
    /// How the wipe ended after it was cancelled.
    end: String,
}

/// Cancels a wipe that exceeds its limit. It fails even if it succeeds while it is cancelled, so that the
/// limit does not depend on timing.
async fn limited<T>(
    limit: Option<Duration>,
    progress: &Progress,
    mut wipe: impl Future<Output = Result<T, Failure>> + Unpin,
) -> Result<Result<T, Failure>, LimitExceeded> {
    let Some(limit) = limit else {
        return Ok(wipe.await);
    };
    if let Ok(result) = timeout(limit, &mut wipe).await {
        return Ok(result);
    }
    progress.time_out();
    let end = match timeout(STOP_TIMEOUT, wipe).await {
        // The data is gone; only optional work (trim) exceeded the limit.
        Ok(Ok(done)) if progress.is_data_gone() => return Ok(Ok(done)),
        Ok(Ok(_)) => "it succeeded after the limit, which does not count".to_owned(),
        Ok(Err(failure)) => failure.message,
        // The hanging wipe holds the volume's lock, so no other cleaner touches the volume.
        Err(_) => format!(
            "it has not stopped within {STOP_TIMEOUT:?}, so its disk seems to hang: see the kernel log; \
             the volume stays locked until the wipe has stopped"
        ),
    };
    Err(LimitExceeded { limit, end })
}

/// Logs the progress of a cleanup. A stalled cleanup loses its slot, but continues when its disk responds.
async fn log_progress(
    context: &CleanupContext,
    order: &CleanOrder,
    progress: &Progress,
    begun: Instant,
) -> Infallible {
    let (pv, path) = (&order.pv.name, &order.path);
    let mut before = 0;
    let mut stalled = Duration::ZERO;
    loop {
        sleep(PROGRESS_LOG_PERIOD).await;
        let now = progress.activity();
        if now != before {
            stalled = Duration::ZERO;
            let pace = progress.pace(begun.elapsed());
            tracing::info!(pv, %path, "cleaning goes on: {pace}");
        } else if is_silent(order) {
            tracing::info!(pv, %path, "the external cleaner is still running");
        } else {
            stalled += PROGRESS_LOG_PERIOD;
            let others = if stalled >= STALL_LIMIT {
                "; other volumes are cleaned meanwhile"
            } else {
                ""
            };
            tracing::warn!(pv, %path, "cleaning has made no progress for {stalled:?}; if this continues, check the disk and the kernel log{others}");
        }
        progress.set_stalled(stalled);
        if stalled == STALL_LIMIT {
            context.wake.notify_one();
        }
        before = now;
    }
}

/// An external program reports no progress, so it never counts as stalled.
fn is_silent(order: &CleanOrder) -> bool {
    matches!(order.method, Method::Command(_))
}

/// Counts wiped bytes in the metric, including those of running and failed cleanups.
struct Meter<'a> {
    counter: &'a Counter,
    progress: &'a Progress,
    counted: u64,
}

impl Meter<'_> {
    async fn run(&mut self) -> Infallible {
        loop {
            sleep(COUNT_PERIOD).await;
            self.count();
        }
    }

    fn count(&mut self) {
        let done = self.progress.bytes_done();
        #[allow(clippy::cast_precision_loss, reason = "bytes in a metric")]
        self.counter.inc_by((done - self.counted) as f64);
        self.counted = done;
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.count();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    fn failure(message: &str) -> Failure {
        Failure::new(reasons::VOLUME_FAILED_DELETE, message)
    }

    #[tokio::test]
    async fn wipe_within_its_limit_keeps_its_result() {
        for limit in [None, Some(Duration::from_mins(1))] {
            let progress = Progress::default();
            assert_eq!(limited(limit, &progress, ready(Ok(7))).await, Ok(Ok(7)));
            let failed = ready(Err::<(), _>(failure("no")));
            let result = limited(limit, &progress, failed).await;
            assert_eq!(result, Ok(Err(failure("no"))));
            assert!(!progress.is_cancelled());
        }
        let progress = Progress::default();
        let long = async {
            sleep(3 * LIMIT).await;
            Ok(())
        };
        assert_eq!(limited(None, &progress, pin!(long)).await, Ok(Ok(())));
    }

    #[tokio::test]
    async fn wipe_that_exceeds_its_limit_fails_however_it_ends() {
        let hanging = "not stopped within 3s";
        for (outcome, expected) in [
            (Some(Ok(())), "which does not count"),
            (
                Some(Err(failure("a part of it may still run"))),
                "a part of it may still run",
            ),
            (None, hanging),
        ] {
            let progress = Progress::default();
            let wipe = async {
                progress.cancelled().await;
                match outcome {
                    Some(outcome) => outcome,
                    None => pending().await,
                }
            };
            let exceeded = limited(Some(LIMIT), &progress, pin!(wipe))
                .await
                .unwrap_err();
            assert!(progress.is_timed_out());
            assert_eq!(exceeded.limit, LIMIT);
            assert!(exceeded.end.contains(expected), "{}", exceeded.end);
        }
    }

    #[tokio::test]
    async fn wipe_whose_data_is_gone_succeeds_after_the_limit() {
        let progress = Progress::default();
        let wipe = async {
            progress.mark_data_gone();
            progress.cancelled().await;
            Ok(7)
        };
        let result = limited(Some(LIMIT), &progress, pin!(wipe)).await;
        assert_eq!(result, Ok(Ok(7)));
    }

    #[test]
    fn all_bytes_are_counted_once() {
        let counter = Counter::new("bytes", "bytes").unwrap();
        let progress = Progress::default();
        let mut meter = Meter {
            counter: &counter,
            progress: &progress,
            counted: 0,
        };
        for (more, total) in [(0, 0.0), (5, 5.0), (0, 5.0), (7, 12.0)] {
            progress.add_bytes(more);
            meter.count();
            assert!((counter.get() - total).abs() < 0.5, "{}", counter.get());
        }
        progress.add_bytes(8);
        drop(meter);
        assert!((counter.get() - 20.0).abs() < 0.5, "{}", counter.get());
    }
}
