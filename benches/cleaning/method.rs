//! One way to get rid of data: a program, and what it is told.

use std::env;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The bytes of a longer error message that are shown.
const MAX_PROBLEM_BYTES: usize = 1024;

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct Method {
    /// What the tables call it.
    pub name: &'static str,
    /// What has to be so afterwards.
    pub leaves: Leaves,
    /// Whether it is a process of this benchmark, which tells more of itself than others.
    pub ours: bool,
    words: Vec<String>,
    /// After which time it is stopped.
    limit: Option<Duration>,
}

/// What a method promises to leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// An empty directory.
    Nothing,
    /// A device of zeros.
    Zeros,
    /// A device that shows no signature of a filesystem.
    NoSignature,
    /// Who knows.
    Anything,
}

impl Method {
    /// A tool by its command line, in which `{}` stands for what is to be cleaned.
    pub fn tool(name: &'static str, line: &[&str], leaves: Leaves) -> Self {
        Self {
            name,
            leaves,
            ours: false,
            words: line.iter().map(ToString::to_string).collect(),
            limit: None,
        }
    }

    /// One of our own cleaners, by the words that [`Ours`](super::ours::Ours) knows.
    pub fn ours(name: &'static str, line: &[&str], leaves: Leaves) -> Self {
        // The link leads to this program, also in a child that is about to become another.
        let line = [&["/proc/self/exe", "--bench"], line].concat();
        Self { ours: true, ..Self::tool(name, &line, leaves) }
    }

    /// The same with a time limit. It may also fail: that is a result.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether the machine has the program; if not, it is told.
    pub fn is_there(&self) -> bool {
        let program = &self.words[0];
        let path = env::var_os("PATH").unwrap_or_default();
        let found = self.ours || env::split_paths(&path).any(|dir| dir.join(program).is_file());
        if !found {
            let name = self.name;
            eprintln!("left out: {name}, for the machine has no {program}");
        }
        found
    }

    /// Cleans `target`, which has to succeed.
    pub fn run(&self, target: &Path) -> Result<Output> {
        self.attempt(target)?.map_err(|problem| anyhow!("{}: {problem}", self.name))
    }

    /// Cleans `target`. Without a time limit it has to succeed, else it may end with a problem.
    pub fn try_run(&self, target: &Path) -> Result<Result<Output, String>> {
        match self.limit {
            None => self.run(target).map(Ok),
            Some(_) => self.attempt(target),
        }
    }

    fn attempt(&self, target: &Path) -> Result<Result<Output, String>> {
        let target = target.to_string_lossy();
        let words = self.words.iter().map(|word| word.replace("{}", &target));
        let child = Command::new(&self.words[0])
            .args(words.skip(1))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("running {}", self.name))?;
        let pid = Pid::from_raw(child.id().try_into()?);
        let limit = self.limit.unwrap_or(Duration::MAX);
        let (running, end) = mpsc::channel::<()>();
        let (output, is_late) = thread::scope(|scope| {
            let watchdog = scope.spawn(move || {
                let is_late = end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
                if is_late {
                    // It may have ended just now.
                    let _ = kill(pid, Signal::SIGKILL);
                }
                is_late
            });
            let output = child.wait_with_output();
            drop(running);
            (output, watchdog.join().unwrap_or(false))
        });
        let output = output?;
        if output.status.success() {
            return Ok(Ok(output));
        }
        Ok(Err(if is_late {
            format!("more than {} s", limit.as_secs())
        } else {
            let words = String::from_utf8_lossy(&output.stderr);
            format!("{}, {}", output.status, end_of(&words))
        }))
    }
}

/// The end of an error message, which may begin with a path of many megabytes.
fn end_of(words: &str) -> &str {
    let words = words.trim();
    let start = words.len().saturating_sub(MAX_PROBLEM_BYTES);
    let start = words.ceil_char_boundary(start);
    let end = &words[start..];
    if start == 0 {
        return end;
    }
    end.rsplit_once(": ").map_or(end, |(_, cause)| cause)
}
