//! Requests that are worth another try.

use std::io::Write;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::chain;

use super::ReleaseError;

/// The time until the next try.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// How long to try what nothing else has a limit for.
const WHILE: Duration = Duration::from_secs(10);

/// The usual deadline.
pub(super) fn a_while() -> Instant {
    Instant::now() + WHILE
}

/// Repeats a request until the deadline, as long as it fails for a reason that may pass.
pub(super) async fn patiently<T>(
    deadline: Instant,
    out: &mut (dyn Write + Send),
    request: impl AsyncFn() -> Result<T, ReleaseError>,
) -> Result<T, ReleaseError> {
    loop {
        match request().await {
            Err(error) if error.is_passing() && Instant::now() < deadline => {
                writeln!(out, "{}; trying again.", chain(&error))?;
                tokio::time::sleep(PAUSE).await;
            }
            result => return result,
        }
    }
}
