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

impl Reading {
    fn of(contents: &Result<Files, String>) -> Self {
        let loaded = contents.as_ref().map_err(Clone::clone).and_then(from_files);
        let verdict = loaded.map_err(|error| vec![error]).and_then(|loaded| {
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
    let thread = thread::Builder::new().name("configuration".to_owned());
    thread.spawn(move || {
        let mut last = Ok(files);
        loop {
            thread::sleep(period);
            let contents = read_dir(&dir);
            if contents == last {
                continue;
            }
            thread::sleep(SETTLE_TIME);
            if read_dir(&dir) == contents {
                publish(Reading::of(&contents));
                last = contents;
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
