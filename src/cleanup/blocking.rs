//! Runs cleaners on threads that may block.

use crate::plan::reasons;

use super::Failure;
use crate::wipe::priority::IdleIo;

/// Runs a cleaner on a blocking thread, with idle I/O priority if `idle` is set. A panic is returned as
/// a failure.
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
            let message = format!("the cleaner panicked ({error}); this is a bug");
            Err(Failure::new(reasons::VOLUME_FAILED_DELETE, message))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wipe::priority::is_idle;

    #[test]
    fn idle_io_priority_ends_with_the_cleaner() {
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
