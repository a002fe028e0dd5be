//! Runs beside a wipe: progress log, metrics and the time limit.

use std::convert::Infallible;
use std::time::Duration;

use prometheus::Counter;
use tokio::time::{Instant, sleep, timeout};

use crate::config::duration;
use crate::plan::CleanOrder;
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

use super::{CleanupContext, Failure};

/// How often the progress of a cleanup is logged.
pub(crate) const PROGRESS_LOG_PERIOD: Duration = Duration::from_secs(30);
/// How long a cleanup without progress keeps its slot. A single system call, such as a sync on a busy
/// disk, may take nearly as long.
pub(super) const STALL_LIMIT: Duration = Duration::from_mins(2);
/// How often wiped bytes are counted.
const COUNT_PERIOD: Duration = Duration::from_secs(1);
/// How long a cancelled cleaner may take to stop. After that, its disk is reported as hanging.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Awaits a wipe within the class's `cleanupTimeout`, logs its progress and counts its bytes.
///
/// # Errors
/// Those of the wipe. A wipe that exceeds the limit fails even if it succeeds afterwards.
pub(super) async fn monitor<T>(
    context: &CleanupContext,
    order: &CleanOrder,
    progress: &Progress,
    wipe: impl Future<Output = Result<T, Failure>> + Unpin,
) -> Result<T, Failure> {
    let mut seen = 0;
    let result = tokio::select! {
        biased;
        result = limited(order.volume.class.cleanup_timeout, progress, wipe) => result,
        never = follow(context, order, progress, &mut seen) => match never {},
    };
    count(&context.metrics.cleanup_bytes_total, progress, &mut seen);
    result
}

/// Counts the bytes that were wiped since the last time, when there were `seen`.
#[allow(clippy::cast_precision_loss, reason = "bytes in a metric")]
fn count(counter: &Counter, progress: &Progress, seen: &mut u64) {
    let done = progress.bytes_done();
    counter.inc_by((done - *seen) as f64);
    *seen = done;
}

/// Cancels a wipe that exceeds its limit. It fails even if it succeeds while it is cancelled, so that the
/// limit does not depend on timing.
async fn limited<T>(
    limit: Option<Duration>,
    progress: &Progress,
    mut wipe: impl Future<Output = Result<T, Failure>> + Unpin,
) -> Result<T, Failure> {
    let Some(limit) = limit else {
        return wipe.await;
    };
    let begun = Instant::now();
    tokio::select! {
        biased;
        result = &mut wipe => return result,
        () = expiry(limit, progress) => {}
    }
    progress.time_out();
    let end = match timeout(STOP_TIMEOUT, wipe).await {
        Ok(Ok(_)) => "it succeeded after the limit, which does not count".to_owned(),
        Ok(Err(failure)) => failure.message,
        // The hanging wipe holds the volume's lock, so no other cleaner touches the volume.
        Err(_) => format!(
            "it has not stopped within {STOP_TIMEOUT:?}, so its disk seems to hang: see the kernel log; \
             the volume stays locked until the wipe has stopped"
        ),
    };
    let message = format!(
        "cleaning took longer than {}, the cleanupTimeout of its class ({}); {end}; if the disk is only slow, set a longer cleanupTimeout",
        duration::format(limit),
        progress.pace(begun.elapsed())
    );
    Err(Failure::new(message))
}

/// Waits for the limit, without the time in which the cleaner is suspended.
async fn expiry(limit: Duration, progress: &Progress) {
    let mut left = limit;
    while !left.is_zero() {
        progress.resumed().await;
        let begun = Instant::now();
        let _ = timeout(left, progress.suspended()).await;
        left = left.saturating_sub(begun.elapsed());
    }
}

/// Counts the wiped bytes of a cleanup and logs its progress. A stalled cleanup loses its slot, but continues when its
/// disk responds.
async fn follow(
    context: &CleanupContext,
    order: &CleanOrder,
    progress: &Progress,
    seen: &mut u64,
) -> Infallible {
    let begun = Instant::now();
    let (mut before, mut stalled, mut logged_at) = (0, Duration::ZERO, begun);
    loop {
        sleep(COUNT_PERIOD).await;
        count(&context.metrics.cleanup_bytes_total, progress, seen);
        if logged_at.elapsed() < PROGRESS_LOG_PERIOD {
            continue;
        }
        logged_at += PROGRESS_LOG_PERIOD;
        let now = progress.activity();
        if progress.is_suspended() {
            stalled = Duration::ZERO;
        } else if now != before {
            stalled = Duration::ZERO;
            let pace = progress.pace(begun.elapsed());
            tracing::info!("cleaning in progress: {pace}");
        } else if matches!(order.method, Method::Command(_)) {
            // It reports no progress, so it never counts as stalled.
            tracing::info!("the external cleaner is still running");
        } else {
            stalled += PROGRESS_LOG_PERIOD;
            tracing::warn!(
                "cleaning has made no progress for {stalled:?}; if this continues, check the disk and the kernel log; after {STALL_LIMIT:?}, other volumes are cleaned meanwhile"
            );
        }
        progress.set_stalled(stalled);
        if stalled == STALL_LIMIT {
            context.wake.notify_one();
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    fn failure(message: &str) -> Failure {
        Failure::new(message)
    }

    #[tokio::test]
    async fn wipe_within_its_limit_keeps_its_result() {
        for limit in [None, Some(Duration::from_mins(1))] {
            let progress = Progress::default();
            assert_eq!(limited(limit, &progress, ready(Ok(7))).await, Ok(7));
            let failed = ready(Err::<(), _>(failure("no")));
            let result = limited(limit, &progress, failed).await;
            assert_eq!(result, Err(failure("no")));
            assert!(!progress.is_cancelled());
        }
        let progress = Progress::default();
        let long = async {
            sleep(3 * LIMIT).await;
            Ok(())
        };
        assert_eq!(limited(None, &progress, pin!(long)).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_a_wipe_is_suspended_does_not_count() {
        for (suspended, is_in_time) in [(10 * LIMIT, true), (Duration::ZERO, false)] {
            let progress = Progress::default();
            let wipe = async {
                sleep(LIMIT / 2).await;
                progress.suspend(true);
                sleep(suspended).await;
                progress.suspend(false);
                sleep(if is_in_time { LIMIT / 3 } else { LIMIT }).await;
                Ok(())
            };
            let result = limited(Some(LIMIT), &progress, pin!(wipe)).await;
            assert_eq!(result.is_ok(), is_in_time, "{result:?}");
        }
    }

    #[tokio::test]
    async fn wipe_that_exceeds_its_limit_fails_however_it_ends() {
        let hanging = "not stopped within 3s";
        for (outcome, expected) in [
            (Some(Ok(())), "which does not count"),
            (Some(Err(failure("a part of it may still run"))), "a part of it may still run"),
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
            let exceeded = limited(Some(LIMIT), &progress, pin!(wipe)).await;
            let message = exceeded.unwrap_err().message;
            assert!(progress.is_timed_out());
            assert!(message.contains("longer than 0.02s"), "{message}");
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn all_bytes_are_counted_once() {
        let counter = Counter::new("bytes", "bytes").unwrap();
        let (progress, mut seen) = (Progress::default(), 0);
        for (more, total) in [(0, 0.0), (5, 5.0), (0, 5.0), (7, 12.0)] {
            progress.add_bytes(more);
            count(&counter, &progress, &mut seen);
            assert!((counter.get() - total).abs() < 0.5, "{}", counter.get());
        }
    }
}
