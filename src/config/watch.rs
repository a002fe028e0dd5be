//! The configuration, read again whenever it changes.
//!
//! A thread of its own waits for inotify and looks every few seconds in any case, so that a
//! directory on a disk that hangs holds up nobody. A look is a few `stat` calls; files are read only
//! when one of these shows a difference, and told of only when their contents differ.

mod stamp;

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::AddWatchFlags;

use super::load::{Files, from_files, read_dir};
use super::{LoadError, Loaded};
use crate::host::dir_watch::{DirWatch, names};

use stamp::Stamp;

/// For how long nothing must have changed before the files are read. Neither editors nor the kubelet
/// change a directory in one step: a file is cut off before it is written anew, a link is there a
/// moment before or after what it leads to.
const QUIET: Duration = Duration::from_millis(200);
/// How often that is looked at meanwhile.
const STEP: Duration = Duration::from_millis(50);
/// For how long more nothing must have changed before what was read is called invalid.
const DOUBT: Duration = Duration::from_secs(1);
/// How long to wait for that altogether. Somebody who never stops writing is no reason never to read.
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
    fn of(dir: &Path) -> Self {
        let in_words = |error: LoadError| vec![crate::cluster::chain(&error)];
        match read_dir(dir) {
            Err(error) => Self {
                files: None,
                verdict: Err(in_words(error)),
            },
            Ok(files) => Self {
                verdict: match from_files(&files) {
                    Ok(loaded) if loaded.faults.is_empty() => Ok(loaded),
                    Ok(loaded) => Err(loaded.faults.iter().map(ToString::to_string).collect()),
                    Err(error) => Err(in_words(error)),
                },
                files: Some(files),
            },
        }
    }
}

/// Watches `dir`, which held `files` a moment ago, and tells of every reading that differs from the
/// one before. Looks every `period` at least. Ends with the process.
///
/// # Errors
/// When there is no thread to be had.
pub fn watch(
    dir: &Path,
    files: Files,
    period: Duration,
    tell: impl FnMut(Reading) + Send + 'static,
) -> io::Result<()> {
    // A relative path has no directories above it to wait in.
    let dir = std::path::absolute(dir)?;
    let watcher = Watcher::new(dir, files, period);
    let name = "configuration".to_owned();
    thread::Builder::new()
        .name(name)
        .spawn(move || watcher.run(tell))?;
    Ok(())
}

/// The thread's own.
struct Watcher {
    dir: PathBuf,
    period: Duration,
    inotify: Option<DirWatch>,
    /// The fault of the watch that was told.
    fault: String,
    /// How the directory looked when it was last read.
    read_at: Option<Stamp>,
    last: Last,
}

/// What was told last.
enum Last {
    /// What was there at the start, faults and all.
    Known(Files),
    Told(Reading),
}

impl Last {
    fn is(&self, reading: &Reading) -> bool {
        match self {
            Self::Known(files) => reading.files.as_ref() == Some(files),
            Self::Told(told) => told == reading,
        }
    }
}

impl Watcher {
    fn new(dir: PathBuf, files: Files, period: Duration) -> Self {
        let contents = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE;
        let inotify = DirWatch::new(names() | contents | AddWatchFlags::IN_ATTRIB)
            .inspect_err(|error| {
                tracing::warn!(%error, "a changed configuration is found by looking every {period:?} only; raise the sysctl fs.inotify.max_user_instances");
            })
            .ok();
        Self {
            dir,
            period,
            inotify,
            fault: String::new(),
            read_at: None,
            last: Last::Known(files),
        }
    }

    fn run(mut self, mut tell: impl FnMut(Reading)) {
        loop {
            if let Some(reading) = self.look() {
                tell(reading);
            }
            self.wait(self.period);
        }
    }

    /// What the directory holds, if that is news.
    fn look(&mut self) -> Option<Reading> {
        // Before the look, so that no change falls in between.
        self.arm();
        if self.read_at.as_ref() == Some(&Stamp::of(&self.dir)) {
            return None;
        }
        let (reading, stamp) = self.read();
        self.read_at = Some(stamp);
        if self.last.is(&reading) {
            return None;
        }
        self.last = Last::Told(reading.clone());
        Some(reading)
    }

    /// Reads it when it has come to rest, and what seems invalid once more after that.
    fn read(&self) -> (Reading, Stamp) {
        let end = Instant::now() + LONGEST;
        loop {
            let stamp = self.at_rest(end);
            let reading = Reading::of(&self.dir);
            let believed = reading.verdict.is_ok()
                || (self.stays(&stamp, DOUBT, end) && Reading::of(&self.dir) == reading);
            let late = Instant::now() >= end;
            if late || (believed && Stamp::of(&self.dir) == stamp) {
                return (reading, stamp);
            }
        }
    }

    /// Waits until the directory has looked the same for a while.
    fn at_rest(&self, end: Instant) -> Stamp {
        loop {
            let stamp = Stamp::of(&self.dir);
            if self.stays(&stamp, QUIET, end) {
                return stamp;
            }
        }
    }

    /// Whether the directory looks the same for so long, or until `end`.
    fn stays(&self, stamp: &Stamp, quiet: Duration, end: Instant) -> bool {
        let end = end.min(Instant::now() + quiet);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            // Not by inotify: a directory that is busy would keep us so, too.
            thread::sleep(left.min(STEP));
            if Stamp::of(&self.dir) != *stamp {
                return false;
            }
        }
    }

    fn arm(&mut self) {
        let Some(inotify) = &mut self.inotify else {
            return;
        };
        let set = inotify.set_dirs(std::slice::from_ref(&self.dir));
        let fault = set.faults.first().map(|(_, error)| error.to_string());
        let fault = fault.unwrap_or_default();
        if !fault.is_empty() && self.fault != fault {
            tracing::warn!(dir = %self.dir.display(), error = fault, "changes of the configuration are found by looking every {:?} only; if it says no space, raise the sysctl fs.inotify.max_user_watches", self.period);
        }
        self.fault = fault;
    }

    /// Waits until something happens, but not longer than that.
    fn wait(&self, longest: Duration) {
        let Some(inotify) = &self.inotify else {
            thread::sleep(longest);
            return;
        };
        let timeout = PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
        if let Err(error) = poll(&mut fds, timeout) {
            // Interrupted, as a rule; a pause in any case, or this would be a loop without one.
            tracing::debug!(%error, "waiting for a change of the configuration was interrupted");
            thread::sleep(QUIET.min(longest));
        }
    }
}

#[cfg(test)]
mod tests;
