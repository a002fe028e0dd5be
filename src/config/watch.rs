//! Reads the configuration periodically.
//!
//! A separate thread reads the directory, so a directory on a disk that hangs delays nothing else. Only changed contents
//! are reported.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::{Files, Loaded, from_files, read_dir};

/// How long the files must be unchanged before they are used. Editors and the kubelet do not change a directory
/// atomically: a file is truncated before it is written, and a link exists before or after its target.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// The contents of the directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The texts; none if they could not be read.
    pub files: Option<Files>,
    /// The configuration if it has no fault, else the messages of the faults.
    pub verdict: Result<Loaded, Vec<String>>,
}

/// The files of the directory, or why it cannot be read.
type Contents = Result<Files, Vec<String>>;

impl Reading {
    fn of(contents: &Contents) -> Self {
        let verdict = contents.as_ref().map_err(Clone::clone).and_then(|files| {
            let loaded = from_files(files).map_err(|error| vec![crate::errors::chain(&error)])?;
            if loaded.faults.is_empty() {
                return Ok(loaded);
            }
            Err(loaded.faults.iter().map(ToString::to_string).collect())
        });
        let files = contents.as_ref().ok().cloned();
        Self { files, verdict }
    }
}

/// Reads `dir`, whose last known contents are `files`, once per `period`, and calls `publish` with each reading that
/// differs from the last. Runs until the process ends.
///
/// # Errors
/// When the thread cannot be started.
pub fn watch(
    dir: PathBuf,
    files: Files,
    period: Duration,
    mut publish: impl FnMut(Reading) + Send + 'static,
) -> io::Result<()> {
    let read = move || read_dir(&dir).map_err(|error| vec![crate::errors::chain(&error)]);
    let thread = thread::Builder::new().name("configuration".to_owned());
    thread.spawn(move || {
        let mut last: Contents = Ok(files);
        loop {
            thread::sleep(period);
            let contents = read();
            if contents == last {
                continue;
            }
            thread::sleep(SETTLE_TIME);
            if read() == contents {
                publish(Reading::of(&contents));
                last = contents;
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
