//! Runs what may block on threads, and abandons what hangs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::Span;

use crate::wipe::error::WipeError;
use crate::wipe::priority::IdleIo;
use crate::wipe::progress::Progress;

use super::{Failure, Obstacle};

/// How long to wait for udev, LVM and multipath, which open a device after it was closed.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a disk, or a directory of the host, may take for what takes milliseconds.
pub(crate) const DISK_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts to open a volume.
const OPEN_PAUSE: Duration = Duration::from_millis(100);

/// Runs a cleaner on a blocking thread, with idle I/O priority if `idle` is set. A panic is returned as
/// a failure.
pub(crate) async fn blocking<T: Send + 'static>(
    idle: bool,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let span = Span::current();
    let work = move || {
        let _span = span.entered();
        let _idle = idle.then(IdleIo::begin);
        work()
    };
    spawn_blocking(work).await?
}

/// Runs what may block on a thread. The thread goes on when the future is dropped.
///
/// # Errors
/// The result of `look`, or that it panicked.
pub(crate) async fn on_thread<T: Send + 'static>(
    look: impl FnOnce() -> Result<T, Obstacle> + Send + 'static,
) -> Result<T, Obstacle> {
    let span = Span::current();
    let look = move || span.in_scope(look);
    spawn_blocking(look).await.map_err(io::Error::from)?
}

/// The turns of those that look at paths on threads: one for each path. A dead disk blocks a thread for good, and each
/// further attempt would cost another one, until there is none left for the healthy disks.
#[derive(Debug, Default)]
pub(super) struct Turns(DashMap<PathBuf, Arc<Mutex<()>>>);

/// Held until a look at a path has ended.
pub(super) struct Turn(#[expect(dead_code, reason = "it is held")] OwnedMutexGuard<()>);

impl Turns {
    /// Waits until the last look at this path has ended.
    pub async fn wait(&self, path: impl AsRef<Path>) -> Turn {
        self.0.retain(|_, turn| Arc::strong_count(turn) > 1);
        let turn = Arc::clone(&self.0.entry(path.as_ref().to_owned()).or_default());
        Turn(turn.lock_owned().await)
    }
}

impl Turn {
    /// Runs what may block on a thread. It goes on when the future is dropped, and what it returns is dropped first then.
    ///
    /// # Errors
    /// The result of `look`, or that it panicked.
    pub async fn run<T: Send + 'static>(
        self,
        look: impl FnOnce() -> Result<T, Obstacle> + Send + 'static,
    ) -> Result<T, Obstacle> {
        let looked = on_thread(move || look().map(|it| (it, self))).await;
        looked.map(|(it, _)| it)
    }
}

/// Opens a volume on a blocking thread, again and again while it is in use, at most until `limit` is over.
///
/// # Errors
/// The last result.
pub(crate) async fn open_when_free<T: Send + 'static>(
    limit: Duration,
    progress: &Progress,
    open: impl Fn() -> Result<T, Obstacle> + Clone + Send + 'static,
) -> Result<T, Obstacle> {
    let deadline = Instant::now() + limit;
    loop {
        match on_thread(open.clone()).await {
            Err(Obstacle::InUse { .. }) if Instant::now() < deadline => sleep(OPEN_PAUSE).await,
            opened => return opened,
        }
        if progress.is_cancelled() {
            return Err(io::Error::other(WipeError::Cancelled).into());
        }
    }
}

/// Abandons an operation that hangs.
///
/// # Errors
/// [`Obstacle::Silent`] when it takes longer than `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    operation: impl Future<Output = Result<T, Obstacle>>,
) -> Result<T, Obstacle> {
    let silent = |_| Obstacle::Silent(format!("{what} did not answer for {limit:?}"));
    timeout(limit, operation).await.map_err(silent)?
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::wipe::priority::is_idle;

    #[tokio::test]
    async fn a_path_that_hangs_costs_one_thread() {
        const SHORT: Duration = Duration::from_millis(50);
        let (turns, (answer, silent)) = (Turns::default(), mpsc::channel::<()>());
        let hung = turns.wait("/disk").await.run(move || Ok(silent.recv().is_ok()));
        let text = within(SHORT, "the disk", hung).await.unwrap_err().to_string();
        assert_eq!(text, "the disk did not answer for 50ms");
        assert!(timeout(SHORT, turns.wait("/disk")).await.is_err(), "there would be a second one");
        let other = turns.wait("/other").await.run(|| Ok(7));
        assert_eq!(within(SHORT, "the disk", other).await.unwrap(), 7);
        answer.send(()).unwrap();
        assert_eq!(turns.wait("/disk").await.run(|| Ok(8)).await.unwrap(), 8);
        drop(turns.wait("/new").await);
        assert_eq!(turns.0.len(), 1, "what has ended is forgotten");
    }

    #[test]
    fn idle_io_priority_ends_with_the_cleaner() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            assert_eq!(blocking(true, || Ok(is_idle())).await, Ok(true));
            assert_eq!(blocking(false, || Ok(is_idle())).await, Ok(false));
        });
    }
}
