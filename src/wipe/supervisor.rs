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
use procfs::process::all_processes;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use super::priority::IdleIo;

/// The hidden subcommand that runs the supervisor: `supervise -- PROGRAM [ARGUMENT]...`.
pub const SUBCOMMAND: &str = "supervise";

/// The supervisor's verdict, which is the text on its standard error, to which the cleaner has no access: the cleaner
/// exited with code 0.
pub(super) const SUCCEEDED: &str = "succeeded";
/// The verdict after the supervisor was stopped. No process of the cleaner is left.
pub(super) const STOPPED: &str = "was stopped";

/// Runs the supervisor. The process must do nothing else: it treats each of its children as the cleaner's.
///
/// Standard input is the pipe to the provisioner, standard output that of the cleaner. The verdict is written
/// to standard error; any other than the two constants is the cause of a failure.
pub fn supervise(command: &[OsString]) -> ExitCode {
    let verdict = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(run(command)));
    let (text, code) = match verdict {
        Ok(verdict) => (verdict, ExitCode::SUCCESS),
        Err(error) => (error.to_string(), ExitCode::FAILURE),
    };
    // The provisioner may be dead.
    let _ = writeln!(io::stderr(), "{text}");
    code
}

async fn run(command: &[OsString]) -> io::Result<String> {
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
        Err(error) => {
            return Ok(format!(
                "cannot be run: {error}; correct blockCleanerCommand, or the interpreter that the program's first line names"
            ));
        }
    };
    let (mut unread, mut verdict) = ([0], String::new());
    while verdict.is_empty() {
        tokio::select! {
            _ = child_ended.recv() => { reap(cleaner, &mut verdict); },
            // The provisioner never writes to it, so a result means that it is closed.
            _ = lifeline.read(&mut unread) => STOPPED.clone_into(&mut verdict),
            _ = terminate.recv() => STOPPED.clone_into(&mut verdict),
        }
    }
    // Also after a normal exit: background processes of the cleaner may still write.
    while reap(cleaner, &mut String::new()) {
        for pid in children() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        // A process that waits for its disk dies when the disk responds.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(verdict)
}

#[expect(unsafe_code, reason = "std can do this only in the forked child")]
fn start(command: &[OsString]) -> io::Result<Pid> {
    let (program, arguments) = command.split_first().ok_or(Errno::EINVAL)?;
    let mut cleaner = Command::new(program);
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    cleaner.args(arguments).stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    cleaner.process_group(0);
    // If the supervisor is killed, the cleaner is killed too. The parent death signal is sufficient here:
    // the supervisor has one thread.
    // SAFETY: prctl is one system call and safe between fork and exec.
    unsafe { cleaner.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)) };
    let id = cleaner.spawn()?.id();
    Ok(Pid::from_raw(i32::try_from(id).map_err(io::Error::other)?))
}

/// Reaps dead children, and sets the verdict if the cleaner is one of them. Returns whether any child is left. Orphans
/// become children of the supervisor.
fn reap(cleaner: Pid, verdict: &mut String) -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, 0)) if pid == cleaner => SUCCEEDED.clone_into(verdict),
            Ok(WaitStatus::Exited(pid, code)) if pid == cleaner => {
                *verdict = format!("ended with exit code {code}");
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == cleaner => {
                *verdict = format!("was killed by signal {}", signal as i32);
            }
            Ok(WaitStatus::StillAlive) => return true,
            Err(Errno::ECHILD) => return false,
            Ok(_) | Err(_) => {}
        }
    }
}

fn children() -> Vec<Pid> {
    let processes = all_processes().into_iter().flatten().flatten();
    let stats = processes.filter_map(|process| process.stat().ok());
    let children = stats.filter(|stat| stat.ppid == Pid::this().as_raw());
    children.map(|child| Pid::from_raw(child.pid)).collect()
}
