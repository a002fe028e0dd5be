//! Reads the configuration again after each change.
//!
//! A separate thread waits for inotify events, and also reads the directory periodically. A directory on a disk that
//! hangs therefore delays nothing else. Only changed contents are reported.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::AddWatchFlags;

use super::{Files, LoadError, Loaded, from_files, read_dir};
use crate::host::dir_watch::{DirWatch, name_events};

/// How long the files must be unchanged before they are used. Editors and the kubelet do not change a directory
/// atomically: a file is truncated before it is written, and a link exists before or after its target.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// The same for files that are not a valid configuration.
const INVALID_SETTLE: Duration = Duration::from_millis(1200);
/// The interval between comparisons of the files.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The maximum time to wait for unchanged files: a process may write them continuously.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The contents of the directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The texts; none if they could not be read.
    pub files: Option<Files>,
    /// The configuration if it has no fault, else the messages of the faults.
    pub verdict: Result<Loaded, Vec<String>>,
}

impl Reading {
    fn of(contents: &Contents) -> Self {
        Self {
            files: contents.as_ref().ok().cloned(),
            verdict: contents.as_ref().map_err(Clone::clone).and_then(|files| {
                let loaded = from_files(files).map_err(|error| messages(&error))?;
                if loaded.faults.is_empty() {
                    return Ok(loaded);
                }
                Err(loaded.faults.iter().map(ToString::to_string).collect())
            }),
        }
    }
}

/// The files of the directory, or why it cannot be read.
type Contents = Result<Files, Vec<String>>;

fn contents(dir: &Path) -> Contents {
    read_dir(dir).map_err(|error| messages(&error))
}

fn messages(error: &LoadError) -> Vec<String> {
    vec![crate::errors::chain(error)]
}

/// Watches `dir`, whose last known contents are `files`, and calls `publish` with each reading that differs from the
/// last. Reads at least once per `period`. Runs until the process ends.
///
/// # Errors
/// When the thread cannot be started.
pub fn watch(
    dir: &Path,
    files: Files,
    period: Duration,
    mut publish: impl FnMut(Reading) + Send + 'static,
) -> io::Result<()> {
    // The watch of a missing directory requires its ancestors.
    let dir = std::path::absolute(dir)?;
    let mut changes = Changes::new(dir.clone(), period);
    let name = "configuration".to_owned();
    thread::Builder::new().name(name).spawn(move || {
        let mut last = Ok(files);
        loop {
            // Before the files are read, so that no later change is missed.
            changes.arm();
            if let Some(contents) = changed(&dir, &last) {
                publish(Reading::of(&contents));
                last = contents;
            }
            changes.wait();
        }
    })?;
    Ok(())
}

/// The contents of the directory once they no longer change, if they differ from `last`.
fn changed(dir: &Path, last: &Contents) -> Option<Contents> {
    let end = Instant::now() + MAX_WAIT;
    let mut now = contents(dir);
    let mut since = Instant::now();
    while now != *last {
        let settle_time = match Reading::of(&now).verdict {
            Ok(_) => SETTLE_TIME,
            Err(_) => INVALID_SETTLE,
        };
        if since.elapsed() >= settle_time || Instant::now() >= end {
            return Some(now);
        }
        thread::sleep(POLL_INTERVAL);
        let again = contents(dir);
        if again != now {
            now = again;
            since = Instant::now();
        }
    }
    None
}

/// Waits for changes of the directory.
struct Changes {
    dir: PathBuf,
    period: Duration,
    inotify: Option<DirWatch>,
    /// The last logged error of the watch.
    fault: String,
}

impl Changes {
    fn new(dir: PathBuf, period: Duration) -> Self {
        let contents = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE;
        let inotify = DirWatch::new(name_events() | contents | AddWatchFlags::IN_ATTRIB)
            .inspect_err(|error| {
                tracing::warn!(%error, "the configuration is not watched and only read every {period:?}; raise the sysctl fs.inotify.max_user_instances");
            })
            .ok();
        Self {
            dir,
            period,
            inotify,
            fault: String::new(),
        }
    }

    fn arm(&mut self) {
        let Some(inotify) = &mut self.inotify else {
            return;
        };
        let fault = inotify.set_dir(&self.dir).err();
        let fault = fault.map(|error| error.to_string()).unwrap_or_default();
        if !fault.is_empty() && self.fault != fault {
            tracing::warn!(dir = %self.dir.display(), error = fault, "the configuration is not watched and only read every {:?}; if the error is about space, raise the sysctl fs.inotify.max_user_watches", self.period);
        }
        self.fault = fault;
    }

    /// Waits for an event, up to the period.
    fn wait(&self) {
        let Some(inotify) = &self.inotify else {
            thread::sleep(self.period);
            return;
        };
        let timeout = PollTimeout::try_from(self.period).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
        if let Err(error) = poll(&mut fds, timeout) {
            // Usually EINTR. The pause prevents a busy loop on any other error.
            tracing::debug!(%error, "waiting for a change of the configuration failed");
            thread::sleep(SETTLE_TIME.min(self.period));
        }
    }
}

#[cfg(test)]
mod tests;
