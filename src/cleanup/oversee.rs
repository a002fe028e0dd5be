//! What goes on beside a wipe: the log, the metrics, and the time limit.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use prometheus::Counter;
use tokio::time::{sleep, timeout};

use crate::config::duration;
use crate::plan::{CleanOrder, reasons};

use super::{CleanupContext, Failure};
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// How often a cleanup that takes long is spoken of.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(30);
/// How long one that does nothing keeps its permit. One call of the kernel may take as long: to sync a
/// filesystem, say, when others want the disk.
pub(super) const STANDS_STILL: Duration = Duration::from_mins(2);
/// How often wiped bytes are counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// How long a cleaner may take to stop, before its disk is taken to hang.
pub(crate) const STOPS_WITHIN: Duration = Duration::from_secs(3);

/// Awaits a wipe, for as long as the class has time for it, and tells how far it is meanwhile.
///
/// # Errors
/// As the wipe; and when it took longer than the class's `cleanupTimeout`, whatever came of it then.
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
        result = in_time(order.class.cleanup_timeout, progress, wipe) => result,
        never = tell(context, order, progress, begun) => match never {},
        never = meter.run() => match never {},
    };
    result.unwrap_or_else(|late| {
        let how_far = if is_silent(order) {
            "its program does not say how far it came".to_owned()
        } else {
            progress.pace(begun.elapsed()).to_string()
        };
        let message = format!(
            "cleaning took longer than {}, the cleanupTimeout of class {:?}: {how_far}; {}; \
             if the disk is only slow, set a longer cleanupTimeout",
            duration::format(late.limit),
            order.class.name,
            late.end
        );
        Err(Failure::new(reasons::VOLUME_FAILED_DELETE, message))
    })
}

/// A wipe took too long.
#[derive(Debug, PartialEq, Eq)]
struct Late {
    limit: Duration,
    /// What became of it then.
    end: String,
}

/// Stops a wipe that takes too long. Even if it comes to a good end just then, it is late: a limit
/// that counts only sometimes is none.
async fn in_time<T>(
    limit: Option<Duration>,
    progress: &Progress,
    mut wipe: impl Future<Output = Result<T, Failure>> + Unpin,
) -> Result<Result<T, Failure>, Late> {
    let Some(limit) = limit else {
        return Ok(wipe.await);
    };
    if let Ok(result) = timeout(limit, &mut wipe).await {
        return Ok(result);
    }
    progress.time_out();
    let end = match timeout(STOPS_WITHIN, wipe).await {
        // Only what comes after that took too long, and was left out.
        Ok(Ok(done)) if progress.is_data_gone() => return Ok(Ok(done)),
        Ok(Ok(_)) => "it came to its end just after that, which does not count".to_owned(),
        Ok(Err(failure)) => failure.message,
        // Wherever it hangs, it holds the volume's lock, so nothing else touches the volume meanwhile.
        Err(_) => format!(
            "it has not stopped within {STOPS_WITHIN:?}, so its disk seems to hang: look at the kernel log; \
             the volume stays locked until it has stopped"
        ),
    };
    Err(Late { limit, end })
}

/// Says in the log how far a long cleanup is. One that stands still loses its permit, not its turn:
/// should its disk come back, it goes on.
async fn tell(
    context: &CleanupContext,
    order: &CleanOrder,
    progress: &Progress,
    begun: Instant,
) -> Infallible {
    let (pv, path) = (&order.pv.name, &order.path);
    let mut before = 0;
    let mut still = Duration::ZERO;
    loop {
        sleep(TELL_EVERY).await;
        let now = progress.signs_of_life();
        if now != before {
            still = Duration::ZERO;
            let pace = progress.pace(begun.elapsed());
            tracing::info!(pv, %path, "cleaning goes on: {pace}");
        } else if is_silent(order) {
            tracing::info!(pv, %path, "the external cleaner is still at work");
        } else {
            still += TELL_EVERY;
            let others = if still >= STANDS_STILL {
                "; other volumes are cleaned meanwhile"
            } else {
                ""
            };
            tracing::warn!(pv, %path, "cleaning has made no progress for {still:?}; if this goes on, look at the disk and the kernel log{others}");
        }
        progress.set_stalled(still);
        if still == STANDS_STILL {
            context.wake.notify_one();
        }
        before = now;
    }
}

/// An external program does not say how far it is, so nothing can be concluded from that.
fn is_silent(order: &CleanOrder) -> bool {
    matches!(order.method, Method::Command(_))
}

/// Counts wiped bytes, also those of cleanups that fail or are still under way.
struct Meter<'a> {
    counter: &'a Counter,
    progress: &'a Progress,
    counted: u64,
}

impl Meter<'_> {
    async fn run(&mut self) -> Infallible {
        loop {
            sleep(COUNT_EVERY).await;
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
    async fn what_ends_in_time_or_has_no_limit_ends_as_it_does() {
        for limit in [None, Some(Duration::from_mins(1))] {
            let progress = Progress::default();
            assert_eq!(in_time(limit, &progress, ready(Ok(7))).await, Ok(Ok(7)));
            let failed = ready(Err::<(), _>(failure("no")));
            let result = in_time(limit, &progress, failed).await;
            assert_eq!(result, Ok(Err(failure("no"))));
            assert!(!progress.is_cancelled());
        }
        let progress = Progress::default();
        let long = async {
            sleep(3 * LIMIT).await;
            Ok(())
        };
        assert_eq!(in_time(None, &progress, pin!(long)).await, Ok(Ok(())));
    }

    #[tokio::test]
    async fn what_ends_too_late_has_failed_however_it_ends() {
        let hangs = "not stopped within 3s";
        for (outcome, told) in [
            (Some(Ok(())), "which does not count"),
            (
                Some(Err(failure("a part of it may still run"))),
                "a part of it may still run",
            ),
            (None, hangs),
        ] {
            let progress = Progress::default();
            let wipe = async {
                progress.cancelled().await;
                match outcome {
                    Some(outcome) => outcome,
                    None => pending().await,
                }
            };
            let late = in_time(Some(LIMIT), &progress, pin!(wipe))
                .await
                .unwrap_err();
            assert!(progress.is_timed_out());
            assert_eq!(late.limit, LIMIT);
            assert!(late.end.contains(told), "{}", late.end);
        }
    }

    #[tokio::test]
    async fn what_is_left_out_when_the_data_is_gone_is_not_late() {
        let progress = Progress::default();
        let wipe = async {
            progress.data_is_gone();
            progress.cancelled().await;
            Ok(7)
        };
        let result = in_time(Some(LIMIT), &progress, pin!(wipe)).await;
        assert_eq!(result, Ok(Ok(7)));
    }

    #[test]
    fn bytes_are_counted_once_and_to_the_end() {
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
