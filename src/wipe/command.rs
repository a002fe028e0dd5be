//! Runs an external cleaner, a `blockCleanerCommand`, under the [`super::supervisor`].

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;

use super::error::WipeError;
use super::progress::Progress;
use super::supervisor;
use crate::escape::tenants;

/// Longer lines of output are cut: a program may write without ever ending a line.
const MAX_LINE_BYTES: u64 = 1024;
/// The lines kept for the error. An event message is limited to one kilobyte.
const MAX_LAST_LINES: usize = 5;

/// Runs a command until it and all its descendants have ended.
///
/// `supervisor` is our own executable. `env` is added to the environment. `keep`, the volume's lock, is open in the
/// command and its descendants. So no other cleaner starts while a descendant hangs on its disk and outlives the
/// provisioner and the supervisor. `on_line` receives each line of output without its line end: invalid
/// UTF-8 is replaced, long lines are cut.
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
) -> Result<(), WipeError> {
    if progress.is_cancelled() {
        return Err(WipeError::Cancelled);
    }
    let program = command.first().map_or("", String::as_str);
    let broken = |problem: String| {
        WipeError::Failed(format!(
            "the supervisor of {program:?} failed ({problem}); a part of the cleaner may still run; stop it before anything else uses the device"
        ))
    };
    let mut child = supervised(supervisor, command, keep)
        .and_then(|mut child| child.envs(env.iter().copied()).spawn())
        .map_err(|error| broken(format!("cannot start {}: {error}", supervisor.display())))?;

    // The supervisor kills the cleaner when this pipe closes, also after the death of this process.
    let mut lifeline = child.stdin.take();
    let (output, verdict) = (child.stdout.take(), child.stderr.take());
    let mut end = pin!(async {
        let last_lines = read_lines(output, &mut on_line).await;
        // A cleaner may close its output and continue.
        (child.wait().await, last_lines)
    });
    let (status, last_lines) = tokio::select! {
        end = &mut end => end,
        () = progress.cancelled() => {
            drop(lifeline.take());
            end.await
        }
    };
    let status = status.map_err(|error| broken(error.to_string()))?;
    let mut text = String::new();
    if let Some(verdict) = verdict {
        // After a read error, the supervisor counts as failed.
        let _ = verdict.take(4096).read_to_string(&mut text).await;
    }
    match text.trim_end() {
        supervisor::SUCCEEDED if status.success() => Ok(()),
        supervisor::STOPPED if progress.is_cancelled() => Err(WipeError::Cancelled),
        text if !status.success() || text.is_empty() || text == supervisor::STOPPED => {
            Err(broken(format!("{status}, output {text:?}")))
        }
        text => Err(WipeError::Failed(format!("{program:?} {text}{last_lines}"))),
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

/// Passes the lines of an output to `on_line`, until no process has it open. Returns the last ones, for an error
/// message. A carriage return also ends a line: programs use it to overwrite their progress on a terminal.
async fn read_lines(
    output: Option<impl AsyncRead + Unpin>,
    on_line: &mut impl FnMut(&str),
) -> String {
    let mut output = output.map(BufReader::new);
    let (mut line, mut last, mut is_rest) = (Vec::new(), Vec::new(), false);
    while let Some(output) = &mut output
        && let Ok(1..) = output.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await
    {
        let text = String::from_utf8_lossy(&line);
        // The rest of a long line is dropped.
        let parts = text.split(['\n', '\r']).skip(is_rest.into());
        is_rest = !text.ends_with(['\n', '\r']);
        for part in parts.filter(|part| !part.trim().is_empty()) {
            on_line(part);
            last.push(part.to_owned());
        }
        line.clear();
        last.drain(..last.len().saturating_sub(MAX_LAST_LINES));
    }
    match last.join(" | ") {
        none if none.is_empty() => none,
        // It may contain names from the tenant's data.
        last => format!("; last output: {}", tenants(last.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(output: &[u8]) -> (Vec<String>, String) {
        let mut seen = Vec::new();
        let last = read_lines(Some(output), &mut |line: &str| seen.push(line.to_owned())).await;
        (seen, last)
    }

    #[tokio::test]
    async fn output_is_split_into_lines() {
        let (seen, last) = lines(b"one\ntwo\r\n\n50%\r99%\r\xffend").await;
        assert_eq!(seen, ["one", "two", "50%", "99%", "\u{fffd}end"]);
        assert_eq!(last, "; last output: “one | two | 50% | 99% | \u{fffd}end”");
        assert_eq!(lines(b"").await, (vec![], String::new()));
    }

    #[tokio::test]
    async fn long_line_is_cut_and_only_the_last_lines_are_kept() {
        let (seen, _) = lines(&[&b"x".repeat(1500)[..], b"\nnext"].concat()).await;
        assert_eq!(seen, ["x".repeat(1024), "next".into()]);
        let (_, last) = lines(b"1\n2\n3\n4\n5\n6\n7\n").await;
        assert_eq!(last, "; last output: “3 | 4 | 5 | 6 | 7”");
    }
}
