//! Reads the configuration after each change.
//!
//! A thread of its own reads the directory, so a directory on a disk that hangs delays nothing else. Only changed contents
//! are reported.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::host::watch::DirEvents;

use super::{Files, Loaded, from_files, read_dir};

/// How long the files must be unchanged before they are used. Editors and the kubelet do not change a directory
/// atomically: a file is truncated before it is written, and a link exists before or after its target.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// The longest time between two reads. The kernel does not report a change of a file to which an entry is a link.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The contents of the directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The texts; none if they could not be read.
    pub files: Option<Files>,
    /// The configuration if it has no fault, else the messages of the faults.
    pub verdict: Result<Loaded, Vec<String>>,
}

impl Reading {
    fn of(contents: &Result<Files, String>) -> Self {
        let loaded = contents.as_ref().map_err(Clone::clone).and_then(from_files);
        let verdict = match loaded {
            Ok(loaded) if loaded.faults.is_empty() => Ok(loaded),
            Ok(loaded) => Err(loaded.faults.iter().map(ToString::to_string).collect()),
            Err(error) => Err(vec![error]),
        };
        let files = contents.as_ref().ok().cloned();
        Self { files, verdict }
    }
}

/// Reads `dir`, whose last known contents are `files`, after each change, and calls `publish` with each reading that
/// differs from the last. Reads it once per `period` while its changes are not reported. Never ends.
pub async fn watch(
    dir: PathBuf,
    files: Files,
    period: Duration,
    mut publish: impl FnMut(Reading) + Send,
) {
    let (mut last, mut events) = (Ok(files), None);
    loop {
        let contents = read(&dir, &mut events).await;
        if contents == last {
            let is_watched = events.as_ref().is_some_and(DirEvents::is_watching);
            let pause = if is_watched { LONGEST_PAUSE } else { period };
            let _ = timeout(pause, DirEvents::next_change(&mut events)).await;
            continue;
        }
        sleep(SETTLE_TIME).await;
        if read(&dir, &mut events).await == contents {
            publish(Reading::of(&contents));
            last = contents;
        }
    }
}

/// Watches and reads the directory.
async fn read(dir: &Path, events: &mut Option<DirEvents>) -> Result<Files, String> {
    let (dir, before) = (dir.to_owned(), events.take());
    let thread = spawn_blocking(move || {
        let events = before.map_or_else(DirEvents::new, Ok);
        // First, so that no change after the reading is missed.
        let events = events.and_then(|mut events| events.set_dir(&dir).map(|()| events));
        (events.ok(), read_dir(&dir))
    });
    let contents;
    (*events, contents) = thread.await.unwrap_or_else(|panic| (None, Err(panic.to_string())));
    contents
}

#[cfg(test)]
mod tests;
