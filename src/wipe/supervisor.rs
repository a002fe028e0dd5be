//! Runs an external cleaner so that none of its processes outlives the provisioner.
//!
//! A cleaner that survives the provisioner could wipe a device together with the next provisioner's cleaner,
//! or after a new tenant got the volume. So it runs under a small process, the supervisor:
//!
//! ```text
//! provisioner ──(standard input: a pipe that only the provisioner holds open)──► supervisor ──► cleaner ──► …
//! ```
//!
//! The pipe closes when the provisioner dies or closes it. Then the supervisor kills all its descendants and
//! exits after the last one. (The parent death signal of Linux is not sufficient: it is sent when the
//! *thread* ends that started the process.) The supervisor is the subreaper of its descendants, so a cleaner
//! cannot escape by a double fork or a new session.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use procfs::process::{Process, all_processes};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use super::priority::IdleIo;

/// The hidden subcommand that runs the supervisor: `supervise -- PROGRAM [ARGUMENT]...`.
pub const SUBCOMMAND: &str = "supervise";

/// The result of the supervisor: one line of JSON on its standard error, to which the cleaner has no access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// The cleaner exited with this code.
    Exit(i32),
    /// A signal that the supervisor did not send ended the cleaner.
    Signal(i32),
    /// The cleaner could not be started, with this `errno`.
    NotStarted(i32),
    /// The supervisor was stopped, and no process of the cleaner is left.
    Stopped,
}

/// Runs the supervisor. The process must do nothing else: it treats each of its children as the cleaner's.
///
/// Standard input is the pipe to the provisioner, standard output that of the cleaner. The verdict is written
/// to standard error.
#[must_use]
pub fn supervise(command: &[OsString]) -> ExitCode {
    let verdict = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(run(command)));
    let report = verdict.and_then(|verdict| Ok(serde_json::to_string(&verdict)?));
    let (text, code) = match report {
        Ok(report) => (report, ExitCode::SUCCESS),
        Err(error) => (format!("the supervisor failed: {error}"), ExitCode::FAILURE),
    };
    // The provisioner may be dead.
    let _ = writeln!(io::stderr(), "{text}");
    code
}

async fn run(command: &[OsString]) -> io::Result<Verdict> {
    prctl::set_child_subreaper(true)?;
    // All that can fail runs before the cleaner starts. The cleaner does not inherit signal handlers (it
    // would inherit ignored signals).
    let mut child_ended = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut lifeline = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;

    // The cleaner and its descendants inherit the priority.
    let _idle = IdleIo::begin();
    let cleaner = match start(command) {
        Ok(cleaner) => cleaner,
        Err(error) => return Ok(Verdict::NotStarted(error.raw_os_error().unwrap_or(0))),
    };
    let mut unread = [0];
    let verdict = loop {
        tokio::select! {
            _ = child_ended.recv() => {
                if let Some(verdict) = reap(cleaner) {
                    break verdict;
                }
            }
            // The provisioner never writes to it, so a result means that it is closed.
            _ = lifeline.read(&mut unread) => break Verdict::Stopped,
            _ = terminate.recv() => break Verdict::Stopped,
        }
    };
    // Also after a normal exit: background processes of the cleaner may still write.
    kill_descendants().await;
    Ok(verdict)
}

#[expect(unsafe_code, reason = "std can do this only in the forked child")]
fn start(command: &[OsString]) -> io::Result<Pid> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Errno::EINVAL.into());
    };
    let mut cleaner = Command::new(program);
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    cleaner
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(output.try_clone()?)
        .stdout(output);
    cleaner.process_group(0);
    // If the supervisor is killed, the cleaner is killed too. The parent death signal is sufficient here:
    // the supervisor has one thread.
    // SAFETY: prctl is one system call and safe between fork and exec.
    unsafe { cleaner.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)) };
    let id = cleaner.spawn()?.id();
    Ok(Pid::from_raw(i32::try_from(id).map_err(io::Error::other)?))
}

/// Reaps dead children. Returns the verdict if the cleaner is one of them.
fn reap(cleaner: Pid) -> Option<Verdict> {
    let mut verdict = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == cleaner => {
                verdict = Some(Verdict::Exit(code));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == cleaner => {
                verdict = Some(Verdict::Signal(signal as i32));
            }
            Ok(WaitStatus::StillAlive) => return verdict,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return verdict,
        }
    }
}

/// Kills until no descendant is left. Orphans become children of the supervisor.
async fn kill_descendants() {
    loop {
        for pid in children() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Err(Errno::ECHILD) => return,
                Ok(_) | Err(_) => {}
            }
        }
        // A process that waits for its disk dies when the disk responds.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn children() -> Vec<Pid> {
    let is_child = |process: &Process| {
        let stat = process.stat();
        stat.is_ok_and(|stat| stat.ppid == Pid::this().as_raw())
    };
    let processes = all_processes().into_iter().flatten().flatten();
    let children = processes.filter(is_child);
    children.map(|child| Pid::from_raw(child.pid)).collect()
}
