//! What a person sees and can do while a volume is being cleaned.

use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use crate::clean::Failure;
use crate::clean::oversee::{STOPS_WITHIN, TELL_EVERY};
use crate::clean::pace::Pace;
use crate::clean::progress::Progress;

use super::ourselves;

/// How often the bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// How it ended.
pub enum End<T> {
    /// By itself.
    Done(Result<T, Failure>),
    /// It was told to stop.
    Stopped {
        /// Whether it did not.
        hangs: bool,
    },
}

/// The ways to stop the program, which from now on only stop the cleaner.
pub struct Signals(Vec<Signal>);

impl Signals {
    /// Catches Ctrl-C, Ctrl-\, `kill` and the end of the terminal. Against that `nohup` helps as always.
    pub fn catch() -> io::Result<Self> {
        let mut kinds = vec![
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::terminate(),
        ];
        if !ourselves::ignores_hangup() {
            kinds.push(SignalKind::hangup());
        }
        kinds
            .into_iter()
            .map(signal)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Waits for one of them.
    pub async fn any(&mut self) {
        poll_fn(|context| {
            let mut signals = self.0.iter_mut();
            if signals.any(|signal| signal.poll_recv(context).is_ready()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Awaits the end of a wipe, shows how far it is, and stops it when `stop` comes first.
pub async fn watch<T>(
    display: Display,
    progress: &Progress,
    stop: impl Future<Output = ()>,
    wipe: impl Future<Output = Result<T, Failure>>,
) -> End<T> {
    let begun = Instant::now();
    let (mut wipe, mut stop) = (pin!(wipe), pin!(stop));
    let every = display.every();
    let mut ticks = interval_at(tokio::time::Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            result = &mut wipe => {
                display.clear();
                return End::Done(result);
            }
            () = &mut stop => break,
            _ = ticks.tick() => display.show(&progress.pace(begun.elapsed())),
        }
    }
    progress.cancel();
    let end = timeout(STOPS_WITHIN, wipe).await;
    display.clear();
    match end {
        Ok(Err(failure)) if failure.stopped => End::Stopped { hangs: false },
        // It came to its end before it heard of it.
        Ok(result) => End::Done(result),
        Err(_) => End::Stopped { hangs: true },
    }
}

/// Where it is shown, on standard error.
pub enum Display {
    /// On a terminal.
    Bar(ProgressBar),
    /// In a file or a pipe, or on a terminal that knows no more.
    Lines,
}

impl Display {
    /// A bar where one can be drawn, which takes more than a terminal: not every one can go back.
    pub fn new() -> Self {
        let bar = ProgressBar::no_length();
        if bar.is_hidden() {
            return Self::Lines;
        }
        bar.set_style(style("{spinner} {wide_msg}"));
        Self::Bar(bar)
    }

    fn every(&self) -> Duration {
        match self {
            Self::Bar(_) => DRAW_EVERY,
            Self::Lines => TELL_EVERY,
        }
    }

    fn show(&self, pace: &Pace) {
        match self {
            Self::Bar(bar) => {
                // Deletions have no end that is known beforehand.
                if bar.length().is_none() && pace.bytes_total > 0 {
                    bar.set_style(style("[{bar:12}] {wide_msg}"));
                }
                if pace.bytes_total > 0 {
                    bar.set_length(pace.bytes_total);
                    bar.set_position(pace.bytes_done);
                }
                bar.set_message(pace.to_string());
                bar.tick();
            }
            // Whoever has closed it does not want to know.
            Self::Lines => drop(writeln!(io::stderr(), "cleaning goes on: {pace}")),
        }
    }

    fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::clean::progress::Cancelled;
    use crate::clean::tree::TreeError;
    use crate::plan::reasons;

    fn failure() -> Failure {
        Failure::new(reasons::VOLUME_FAILED_DELETE, "no")
    }

    fn stopped() -> Failure {
        TreeError::from(Cancelled).into()
    }

    #[tokio::test]
    async fn what_ends_by_itself_ends_as_it_does() {
        for result in [Ok(7), Err(failure())] {
            let progress = Progress::default();
            let wipe = ready(result.clone());
            match watch(Display::Lines, &progress, pending(), wipe).await {
                End::Done(done) => assert_eq!(done, result),
                End::Stopped { .. } => panic!("nobody stopped it"),
            }
            assert!(!progress.is_cancelled());
        }
    }

    #[tokio::test]
    async fn what_is_told_to_stop_is_clean_only_if_it_came_to_its_end() {
        for (outcome, expected) in [
            (Some(Ok(())), "done"),
            (Some(Err(stopped())), "stopped"),
            // Not since it was told to: this is what has to be mended.
            (Some(Err(failure())), "failed"),
            (None, "hangs"),
        ] {
            let progress = Progress::default();
            let wipe = async {
                progress.cancelled().await;
                match outcome {
                    Some(outcome) => outcome,
                    None => pending().await,
                }
            };
            let end = match watch(Display::Lines, &progress, ready(()), wipe).await {
                End::Done(Ok(())) => "done",
                End::Done(Err(_)) => "failed",
                End::Stopped { hangs: false } => "stopped",
                End::Stopped { hangs: true } => "hangs",
            };
            assert_eq!(end, expected);
        }
    }
}
