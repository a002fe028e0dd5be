//! Runs an external cleaner, a `blockCleanerCommand`, under the [`super::supervisor`].

mod lines;

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::Stdio;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};

use super::progress::{Cancelled, Progress};
use super::supervisor::{self, Verdict};
use lines::{LastLines, Lines};

/// Why an external cleaner did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// No such program.
    #[error(
        "there is no program {program:?}, or not the interpreter that its first line names; correct blockCleanerCommand"
    )]
    NotFound {
        /// The first word of the command.
        program: String,
    },
    /// The program exists but does not start.
    #[error("{program:?} cannot be run: {source}; correct blockCleanerCommand")]
    NotStarted {
        /// The first word of the command.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It ended with an exit code other than 0.
    #[error("{program:?} ended with exit code {code}{last_lines}")]
    Exit {
        /// The first word of the command.
        program: String,
        /// Its exit code.
        code: i32,
        /// Its last lines of output.
        last_lines: LastLines,
    },
    /// A signal that the supervisor did not send killed it.
    #[error("{program:?} was killed by signal {signal}{last_lines}")]
    Signal {
        /// The first word of the command.
        program: String,
        /// The signal's number.
        signal: i32,
        /// Its last lines of output.
        last_lines: LastLines,
    },
    /// The supervisor of the cleaner failed.
    #[error(
        "the supervisor of {program:?} failed ({problem}); a part of the cleaner may still run; stop it before anything else uses the device"
    )]
    Supervisor {
        /// The first word of the command.
        program: String,
        /// The cause.
        problem: String,
    },
    /// It was cancelled, and none of its processes runs.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl CommandError {
    /// The reason in CamelCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "CommandNotFound",
            Self::NotStarted { .. } => "CommandNotStarted",
            Self::Exit { .. } => "CommandFailed",
            Self::Signal { .. } => "CommandKilled",
            Self::Supervisor { .. } => "SupervisorFailed",
            Self::Cancelled(_) => "Cancelled",
        }
    }
}

/// Runs a command until it and all its descendants have ended.
///
/// `env` is added to the environment. `keep`, the volume's lock, is open in the command and its
/// descendants. So no other cleaner starts while a descendant hangs on its disk and outlives the
/// provisioner and the supervisor. `on_line` receives each line of output without its line end: invalid
/// UTF-8 is replaced, long lines are truncated.
///
/// After a cancellation through `progress`, all processes are killed and reaped before this returns. If
/// the future is dropped, they are killed as well, but not awaited.
///
/// # Errors
/// When the command does not end with exit code 0.
pub async fn run(
    command: &[String],
    env: &[(&str, &OsStr)],
    keep: BorrowedFd<'_>,
    on_line: impl FnMut(&str),
    progress: &Progress,
) -> Result<(), CommandError> {
    let supervisor = Path::new("/proc/self/exe");
    run_with(supervisor, command, env, keep, on_line, progress).await
}

/// [`run`] with another executable as the supervisor.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    supervisor: &Path,
    command: &[String],
    env: &[(&str, &OsStr)],
    keep: BorrowedFd<'_>,
    mut on_line: impl FnMut(&str),
    progress: &Progress,
) -> Result<(), CommandError> {
    progress.check()?;
    let program = command.first().cloned().unwrap_or_default();
    let broken = |problem: String| CommandError::Supervisor {
        program: program.clone(),
        problem,
    };
    let mut child = supervised(supervisor, command, keep)
        .and_then(|mut child| child.envs(env.iter().copied()).spawn())
        .map_err(|error| broken(format!("cannot start {}: {error}", supervisor.display())))?;

    // The supervisor kills the cleaner when this pipe closes, also after the death of this process.
    let mut lifeline = child.stdin.take();
    let (mut output, report) = (child.stdout.take(), child.stderr.take());
    let mut lines = Lines::default();
    let mut buffer = [0; 4096];
    while let Some(pipe) = &mut output {
        tokio::select! {
            read = pipe.read(&mut buffer) => match read {
                Ok(length @ 1..) => lines.push(&buffer[..length], &mut on_line),
                // End of file: no process has the pipe open.
                _ => output = None,
            },
            () = progress.cancelled(), if lifeline.is_some() => lifeline = None,
        }
    }
    lines.finish(&mut on_line);

    // A cleaner may close its output and continue.
    let status = tokio::select! {
        status = child.wait() => status,
        () = progress.cancelled() => {
            drop(lifeline.take());
            child.wait().await
        }
    };
    let status = status.map_err(|error| broken(error.to_string()))?;
    let report = read_report(report).await;
    let last_lines = lines.into_last();
    match report.parse() {
        Ok(Verdict::Exit(0)) => Ok(()),
        Ok(Verdict::Exit(code)) => Err(CommandError::Exit {
            program,
            code,
            last_lines,
        }),
        Ok(Verdict::Signal(signal)) => Err(CommandError::Signal {
            program,
            signal,
            last_lines,
        }),
        Ok(Verdict::NotStarted(errno)) => Err(match Errno::from_raw(errno) {
            Errno::ENOENT => CommandError::NotFound { program },
            errno => CommandError::NotStarted {
                program,
                source: errno.into(),
            },
        }),
        Ok(Verdict::Stopped) if progress.is_cancelled() => Err(Cancelled.into()),
        Ok(Verdict::Stopped) => Err(broken("it was stopped by a signal".into())),
        Err(()) => Err(broken(format!("{status}, output {:?}", report.trim_end()))),
    }
}

/// The command under its supervisor, with `keep` open in both.
#[expect(unsafe_code, reason = "std can do this only in the forked child")]
fn supervised(supervisor: &Path, command: &[String], keep: BorrowedFd<'_>) -> io::Result<Command> {
    let keep = keep.try_clone_to_owned()?;
    let mut child = Command::new(supervisor);
    child
        .arg(supervisor::SUBCOMMAND)
        .arg("--")
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    // Cleared only in the child: in this process, other children would inherit the descriptor.
    let inherit = move || Ok(fcntl(&keep, FcntlArg::F_SETFD(FdFlag::empty())).map(drop)?);
    // SAFETY: fcntl is one system call and safe between fork and exec.
    unsafe { child.pre_exec(inherit) };
    Ok(child)
}

/// The line that the supervisor writes before it exits.
async fn read_report(report: Option<ChildStderr>) -> String {
    let mut text = Vec::new();
    if let Some(report) = report {
        // After a read error the line does not parse, which is reported.
        let _ = report.take(4096).read_to_end(&mut text).await;
    }
    String::from_utf8_lossy(&text).into_owned()
}
