//! The watch for changes, kept out of the way of dead disks.
//!
//! To watch a directory the kernel looks it up, which on a dead disk may never end. So that is done
//! on a thread that can be left behind; then a new watch is begun without the directories that are
//! known to be silent by then.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::watch::{Change, HostWatch, WatchError};

/// How long looking the directories up may take. It takes microseconds.
const PATIENCE: Duration = Duration::from_millis(100);

type Lookup = JoinHandle<(HostWatch, Vec<WatchError>)>;

/// A [`HostWatch`] that nothing can hang.
#[derive(Debug)]
pub struct PatientWatch {
    host: Option<HostWatch>,
    /// A thread that has not come back (yet), and the watch with it.
    stuck: Option<Lookup>,
}

impl PatientWatch {
    /// See [`HostWatch::new`].
    ///
    /// # Errors
    /// [`WatchError`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn new() -> Result<Self, WatchError> {
        Ok(Self {
            host: Some(HostWatch::new()?),
            stuck: None,
        })
    }

    /// See [`HostWatch::set_dirs`]. While a lookup is stuck, the `silent` ones of the directories
    /// are left out.
    pub async fn set_dirs(
        &mut self,
        mut dirs: Vec<PathBuf>,
        silent: &BTreeSet<PathBuf>,
    ) -> Vec<WatchError> {
        if self.stuck.as_ref().is_some_and(JoinHandle::is_finished) {
            self.stuck = None;
        }
        if self.stuck.is_some() {
            dirs.retain(|dir| !silent.contains(dir));
        }
        let Some(mut host) = self.take_host(silent) else {
            return Vec::new();
        };
        let mut lookup = tokio::task::spawn_blocking(move || {
            let faults = host.set_dirs(&dirs);
            (host, faults)
        });
        match tokio::time::timeout(PATIENCE, &mut lookup).await {
            Ok(Ok((host, faults))) => {
                self.host = Some(host);
                return faults;
            }
            Ok(Err(panic)) => {
                tracing::error!(%panic, "watching for changes ended in a panic; this is a bug");
            }
            // A second stuck thread would not be the last: whoever has the first one waits for it.
            Err(_) => self.stuck = Some(self.stuck.take().unwrap_or(lookup)),
        }
        Vec::new()
    }

    /// The watch, or a new one for one that is stuck, once it is known what to keep away from.
    fn take_host(&mut self, silent: &BTreeSet<PathBuf>) -> Option<HostWatch> {
        let may_begin = self.stuck.is_none() || !silent.is_empty();
        self.host
            .take()
            .or_else(|| may_begin.then(HostWatch::new)?.ok())
    }

    /// See [`HostWatch::changed`]. Without a watch it waits for ever.
    ///
    /// # Errors
    /// When the kernel breaks off, which it has no reason to.
    pub async fn changed(&mut self) -> io::Result<Change> {
        match &mut self.host {
            Some(host) => host.changed().await,
            None => std::future::pending().await,
        }
    }
}
