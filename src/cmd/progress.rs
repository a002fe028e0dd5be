//! What a command that waits shows, and how long it waits.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use crate::cluster::ApiError;
use crate::log::printable;

const POLL_PERIOD: Duration = Duration::from_secs(1);
/// The error of a command that can continue.
pub(super) const NOT_FINISHED: &str = "not finished in time; run the command again to continue";

/// The lines of a command, and its deadline.
pub(super) struct Progress<'a> {
    pub out: &'a mut (dyn Write + Send),
    deadline: Instant,
    /// The last line of each object.
    shown: BTreeMap<String, String>,
}

impl<'a> Progress<'a> {
    pub fn new(out: &'a mut (dyn Write + Send), timeout: Duration) -> Self {
        Self { out, deadline: Instant::now() + timeout, shown: BTreeMap::new() }
    }

    /// Shows a line at once.
    pub fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.out, "{}", printable(line))?;
        Ok(self.out.flush()?)
    }

    /// Shows what an object does or waits for, when it changes.
    pub fn show(&mut self, object: &str, what: &str) -> Result<()> {
        let former = self.shown.insert(object.to_owned(), what.to_owned());
        if former.as_deref() != Some(what) {
            self.line(&format!("{object}: {what}"))?;
        }
        Ok(())
    }

    /// Waits before the next pass.
    ///
    /// # Errors
    /// This one, after the deadline.
    pub async fn wait(&self, error: &str) -> Result<()> {
        ensure!(Instant::now() < self.deadline, "{error}");
        sleep(POLL_PERIOD).await;
        Ok(())
    }
}

/// Whether a step on a PV was taken. If an object has changed, the next pass decides by its new version.
pub(super) fn taken(pv: &str, step: Result<(), ApiError>) -> Result<bool> {
    match step {
        Err(error) if error.is_change() => Ok(false),
        step => step
            .map(|()| true)
            .with_context(|| format!("{pv}: the step failed; run the command again to continue")),
    }
}
