//! Progress and interruption of a wipe.

use std::io::{self, Write};
use std::pin::pin;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{interval, timeout};

use crate::cleanup::Failure;
use crate::cleanup::oversee::{STOPS_WITHIN, TELL_EVERY};
use crate::cmd::run::Told;
use crate::wipe::pace::Pace;
use crate::wipe::progress::Progress;

/// How often the bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Awaits a wipe and shows its progress on standard error. SIGINT and SIGTERM cancel it; `None` if
/// that left it unfinished.
pub async fn watch<T>(
    progress: &Progress,
    told: &mut Told,
    wipe: impl Future<Output = Result<T, Failure>>,
) -> Option<Result<T, Failure>> {
    let begun = Instant::now();
    // Hidden where standard error is no terminal that can draw it.
    let bar = ProgressBar::no_length();
    let mut ticks = interval(if bar.is_hidden() {
        TELL_EVERY
    } else {
        DRAW_EVERY
    });
    ticks.tick().await;
    let mut wipe = pin!(wipe);
    loop {
        tokio::select! {
            result = &mut wipe => {
                bar.finish_and_clear();
                return Some(result);
            }
            _ = told.stop_wanted() => break,
            _ = ticks.tick() => show(&bar, &progress.pace(begun.elapsed())),
        }
    }
    progress.cancel();
    let end = timeout(STOPS_WITHIN, wipe).await;
    bar.finish_and_clear();
    match end {
        // It ended before the cancellation reached it.
        Ok(result) if !matches!(&result, Err(failure) if failure.stopped) => Some(result),
        _ => None,
    }
}

fn show(bar: &ProgressBar, pace: &Pace) {
    if bar.is_hidden() {
        let _ = writeln!(io::stderr(), "cleaning goes on: {pace}");
        return;
    }
    // The end of a deletion is not known beforehand.
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
