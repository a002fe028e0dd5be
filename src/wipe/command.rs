//! Runs an external cleaner, a `blockCleanerCommand`, under the [`super::supervisor`].

mod lines;

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};

use super::progress::{Cancelled, Progress};
use super::supervisor::{self, Verdict};
use lines::Lines;

/// Why an external cleaner did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program does not exist or does not start.
    #[error(
        "{program:?} cannot be run: {source}; correct blockCleanerCommand, or the interpreter that the program's first line names"
    )]
    NotStarted {
        /// The first word of the command.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It ended with an exit code other than 0, or by a signal that the supervisor did not send.
    #[error("{program:?} {end}{last_lines}")]
    Failed {
        /// The first word of the command.
        program: String,
        /// How it ended.
        end: String,
        /// Its last lines of output.
        last_lines: String,
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

/// Runs a command until it and all its descendants have ended.
///
/// `supervisor` is our own executable. `env` is added to the environment. `keep`, the volume's lock, is open in the
/// command and its descendants. So no other cleaner starts while a descendant hangs on its disk and outlives the
/// provisioner and the supervisor. `on_line` receives each line of output without its line end: invalid
/// UTF-8 is replaced, long lines are truncated.
///
/// After a cancellation through `progress`, all processes are killed and reaped before this returns. If
/// the future is dropped, they are killed as well, but not awaited.
///
/// # Errors
/// When the command does not end with exit code 0.
pub async fn run(
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
    let (output, report) = (child.stdout.take(), child.stderr.take());
    let mut end = pin!(async {
        let lines = Lines::read(output, &mut on_line).await;
        // A cleaner may close its output and continue.
        (child.wait().await, lines)
    });
    let (status, lines) = tokio::select! {
        end = &mut end => end,
        () = progress.cancelled() => {
            drop(lifeline.take());
            end.await
        }
    };
    let status = status.map_err(|error| broken(error.to_string()))?;
    let report = read_report(report).await;
    let failed = |end: String| CommandError::Failed {
        program: program.clone(),
        end,
        last_lines: lines.last(),
    };
    match serde_json::from_slice(&report) {
        Ok(Verdict::Exit(0)) => Ok(()),
        Ok(Verdict::Exit(code)) => Err(failed(format!("ended with exit code {code}"))),
        Ok(Verdict::Signal(signal)) => Err(failed(format!("was killed by signal {signal}"))),
        Ok(Verdict::NotStarted(errno)) => Err(CommandError::NotStarted {
            program,
            source: io::Error::from_raw_os_error(errno),
        }),
        Ok(Verdict::Stopped) if progress.is_cancelled() => Err(Cancelled.into()),
        Ok(Verdict::Stopped) => Err(broken("it was stopped by a signal".into())),
        Err(_) => {
            let report = String::from_utf8_lossy(&report);
            Err(broken(format!("{status}, output {:?}", report.trim_end())))
        }
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
async fn read_report(report: Option<ChildStderr>) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(report) = report {
        // After a read error the line does not parse, which is reported.
        let _ = report.take(4096).read_to_end(&mut text).await;
    }
    text
}
