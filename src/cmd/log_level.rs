//! `log-level`: makes the running provisioner log more, or as configured again.

use std::io::{self, Write};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::run::Misuse;
use super::running::{self, Running};
use crate::args::{Change, ChangeLogLevel};

/// Sends the signal.
///
/// # Errors
/// [`Misuse`] when there is no process to send it to, or more than one; else what the kernel says.
pub fn run(request: &ChangeLogLevel, out: &mut dyn Write) -> Result<()> {
    let Running { pid, .. } = choose(request.pid)?;
    let (signal, words) = match request.change {
        Change::More => (Signal::SIGUSR1, "log one step more"),
        Change::Default => (Signal::SIGUSR2, "log as configured again"),
    };
    kill(Pid::from_raw(pid), signal)
        .with_context(|| format!("sending {signal} to process {pid}"))?;
    match writeln!(
        out,
        "Told process {pid} to {words}; its log says the level, and so does `status`."
    ) {
        // It is done, whether that can be told or not.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn choose(wanted: Option<i32>) -> Result<Running> {
    if let Some(pid) = wanted {
        // The signal would end any other process.
        return running::look(pid).with_context(|| {
            Misuse(format!(
                "process {pid} is not a provisioner of this very program file, or belongs to somebody else; nothing was sent to it"
            ))
        });
    }
    let mut found = running::all().context("looking for the provisioner's process")?;
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Misuse(
            "no provisioner of this program file runs here; run this in its container: kubectl exec POD -- /local-volume-provisioner log-level more".into(),
        )
        .into()),
        (Some(last), false) => {
            let pids: Vec<_> = found.iter().chain([&last]).map(|found| found.pid.to_string()).collect();
            Err(Misuse(format!(
                "several provisioners run here, with the process ids {}; say which with --pid",
                pids.join(", ")
            ))
            .into())
        }
    }
}
