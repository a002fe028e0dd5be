//! The threads that cleaners run on.

use crate::plan::reasons;

use super::Failure;
use crate::wipe::priority::IdleIo;

/// Runs a cleaner where it can block; last in the queue for the disk, if `idle`. Its own panic is a
/// failure like any other.
pub(crate) async fn blocking<T: Send + 'static>(
    idle: bool,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let work = move || {
        let _idle = idle.then(IdleIo::begin);
        work()
    };
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            let message = format!("the cleaner ended in a panic ({error}); this is a bug");
            Err(Failure::new(reasons::VOLUME_FAILED_DELETE, message))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wipe::priority::is_idle;

    #[test]
    fn cleaners_come_last_at_the_disk_and_what_their_thread_does_next_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            assert_eq!(blocking(true, || Ok(is_idle())).await, Ok(true));
            assert_eq!(blocking(false, || Ok(is_idle())).await, Ok(false));
        });
    }
}
