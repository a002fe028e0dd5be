//! Progress and interruption of a wipe.

use std::io::{self, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{interval, timeout};

use crate::cleanup::Failure;
use crate::cleanup::oversee::{PROGRESS_LOG_PERIOD, STOP_TIMEOUT};
use crate::cmd::run::StopSignals;
use crate::wipe::pace::Pace;
use crate::wipe::progress::Progress;

/// How often the progress bar is drawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for a wipe and shows its progress on standard error. SIGINT and SIGTERM cancel it. `None` if it was
/// cancelled before it finished.
pub async fn watch<T>(
    progress: &Progress,
    signals: &mut StopSignals,
    wipe: impl Future<Output = Result<T, Failure>>,
) -> Option<Result<T, Failure>> {
    let begun = Instant::now();
    // Hidden if standard error is not a terminal.
    let bar = ProgressBar::no_length();
    let mut ticks = interval(if bar.is_hidden() {
        PROGRESS_LOG_PERIOD
    } else {
        DRAW_INTERVAL
    });
    ticks.tick().await;
    let mut wipe = pin!(wipe);
    loop {
        tokio::select! {
            result = &mut wipe => {
                bar.finish_and_clear();
                return Some(result);
            }
            _ = signals.received() => break,
            _ = ticks.tick() => show(&bar, &progress.pace(begun.elapsed())),
        }
    }
    progress.cancel();
    let end = timeout(STOP_TIMEOUT, wipe).await;
    bar.finish_and_clear();
    match end {
        // The wipe ended before the cancellation took effect.
        Ok(result) if !matches!(&result, Err(failure) if failure.stopped) => Some(result),
        _ => None,
    }
}

fn show(bar: &ProgressBar, pace: &Pace) {
    if bar.is_hidden() {
        let _ = writeln!(io::stderr(), "cleaning goes on: {pace}");
        return;
    }
    // A deletion has no known total, so it has no bar.
    let template = match pace.bytes_total {
        0 => "{spinner} {wide_msg}",
        total => {
            bar.set_length(total);
            bar.set_position(pace.bytes_done);
            "[{bar:12}] {wide_msg}"
        }
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(pace.to_string());
    bar.tick();
}
