//! Runs what may block on threads, and abandons what hangs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::Mutex;
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

/// The threads that look at paths: one for each. A dead disk blocks a thread for good, and each further attempt would cost
/// another one, until there is none left for the healthy disks.
#[derive(Debug, Default)]
pub(super) struct Threads(DashMap<PathBuf, Arc<Mutex<()>>>);

impl Threads {
    /// Runs what may block on a thread, once the last look at this path has ended. The thread goes on when the future is
    /// dropped.
    ///
    /// # Errors
    /// The result of `look`, or that it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        path: impl AsRef<Path>,
        look: impl FnOnce() -> Result<T, Obstacle> + Send + 'static,
    ) -> Result<T, Obstacle> {
        self.0.retain(|_, turn| Arc::strong_count(turn) > 1);
        let turn = Arc::clone(&self.0.entry(path.as_ref().to_owned()).or_default());
        let guard = turn.lock_owned().await;
        let look = move || {
            let _guard = guard;
            look()
        };
        on_thread(look).await
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
/// [`Obstacle::Unknown`] when it takes longer than `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    operation: impl Future<Output = Result<T, Obstacle>>,
) -> Result<T, Obstacle> {
    let silent = |_| Obstacle::Unknown(format!("{what} did not answer for {limit:?}"));
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
        let (threads, (answer, silent)) = (Threads::default(), mpsc::channel::<()>());
        let hung = threads.run("/disk", move || Ok(silent.recv().is_ok()));
        let text = within(SHORT, "the disk", hung).await.unwrap_err().to_string();
        assert_eq!(text, "the disk did not answer for 50ms");
        let (begun, begins) = mpsc::channel();
        let next = threads.run("/disk", move || Ok(begun.send(()).is_ok()));
        assert!(within(SHORT, "the disk", next).await.is_err());
        assert!(begins.try_recv().is_err(), "a second thread waits for the disk");
        let other = threads.run("/other", || Ok(7));
        assert_eq!(within(SHORT, "the disk", other).await.unwrap(), 7);
        answer.send(()).unwrap();
        assert_eq!(threads.run("/disk", || Ok(8)).await.unwrap(), 8);
        assert_eq!(threads.run("/new", || Ok(9)).await.unwrap(), 9);
        assert_eq!(threads.0.len(), 1, "what has ended is forgotten");
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
