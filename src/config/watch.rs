//! The configuration, read again whenever it changes.
//!
//! A thread of its own waits for inotify and reads the directory every few seconds in any case, so that
//! a directory on a disk that hangs delays nothing else. Only changed contents are reported.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::AddWatchFlags;

use super::{Files, LoadError, Loaded, from_files, read_dir};
use crate::host::dir_watch::{DirWatch, names};

/// For how long the files must be unchanged before they are used. Neither editors nor the kubelet
/// change a directory in one step: a file is truncated before it is written again, and a link is there
/// a moment before or after its target.
const QUIET: Duration = Duration::from_millis(200);
/// The same for files that are not a valid configuration.
const QUIET_IF_INVALID: Duration = Duration::from_millis(1200);
/// How often the files are compared meanwhile.
const STEP: Duration = Duration::from_millis(50);
/// How long to wait for unchanged files at most: they may be written all the time.
const LONGEST: Duration = Duration::from_secs(10);

/// What the directory held when it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The texts; none if they could not be read.
    pub files: Option<Files>,
    /// The configuration, if there is no fault in it at all; else the faults, in words.
    pub verdict: Result<Loaded, Vec<String>>,
}

impl Reading {
    fn of(contents: &Contents) -> Self {
        Self {
            files: contents.as_ref().ok().cloned(),
            verdict: contents.as_ref().map_err(Clone::clone).and_then(|files| {
                let loaded = from_files(files).map_err(|error| in_words(&error))?;
                without_faults(loaded)
            }),
        }
    }
}

/// What was read of the directory, or why it cannot be read.
type Contents = Result<Files, Vec<String>>;

fn contents(dir: &Path) -> Contents {
    read_dir(dir).map_err(|error| in_words(&error))
}

fn in_words(error: &LoadError) -> Vec<String> {
    vec![crate::errors::chain(error)]
}

fn without_faults(loaded: Loaded) -> Result<Loaded, Vec<String>> {
    if loaded.faults.is_empty() {
        return Ok(loaded);
    }
    Err(loaded.faults.iter().map(ToString::to_string).collect())
}

/// Watches `dir`, which held `files` a moment ago, and calls `publish` with every reading that differs
/// from the one before. Reads every `period` at least. Ends with the process.
///
/// # Errors
/// When the thread cannot be started.
pub fn watch(
    dir: &Path,
    files: Files,
    period: Duration,
    mut publish: impl FnMut(Reading) + Send + 'static,
) -> io::Result<()> {
    // A relative path has no directories above it to wait in.
    let dir = std::path::absolute(dir)?;
    let mut changes = Changes::new(dir.clone(), period);
    let name = "configuration".to_owned();
    thread::Builder::new().name(name).spawn(move || {
        let mut last = Ok(files);
        loop {
            // Before the files are read, so that no change is missed in between.
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

/// What the directory holds once it is at rest, if that differs from what it held last.
fn changed(dir: &Path, last: &Contents) -> Option<Contents> {
    let end = Instant::now() + LONGEST;
    let mut now = contents(dir);
    let mut since = Instant::now();
    while now != *last {
        let quiet = match Reading::of(&now).verdict {
            Ok(_) => QUIET,
            Err(_) => QUIET_IF_INVALID,
        };
        if since.elapsed() >= quiet || Instant::now() >= end {
            return Some(now);
        }
        thread::sleep(STEP);
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
    /// The fault of the watch that was logged last.
    fault: String,
}

impl Changes {
    fn new(dir: PathBuf, period: Duration) -> Self {
        let contents = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE;
        let inotify = DirWatch::new(names() | contents | AddWatchFlags::IN_ATTRIB)
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

    /// Waits until something happens, but not longer than the period.
    fn wait(&self) {
        let Some(inotify) = &self.inotify else {
            thread::sleep(self.period);
            return;
        };
        let timeout = PollTimeout::try_from(self.period).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
        if let Err(error) = poll(&mut fds, timeout) {
            // Mostly interrupted. The pause keeps this from being a loop without one.
            tracing::debug!(%error, "waiting for a change of the configuration failed");
            thread::sleep(QUIET.min(self.period));
        }
    }
}

#[cfg(test)]
mod tests;
