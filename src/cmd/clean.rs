//! `clean`: cleans one volume of a configured class on an operator's request.
//!
//! It decides by the provisioner's plan, inspects and wipes with the code of a cleanup, and never changes an object.
//! Instead of the commit of a cleanup, the operator confirms by typing the volume's path.

mod show;
mod target;

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use nix::sys::termios::{FlushArg, tcflush};
use tokio::task::spawn_blocking;

use super::cleaner;
use super::run::{UsageError, stop_signal};
use crate::args::{Args, Clean, Environment};
use crate::types::MountPath;
use crate::wipe::progress::Progress;
use target::{Finder, Target};

/// Inspects the volume, shows it, asks for confirmation, inspects it again, and cleans it.
///
/// # Errors
/// [`UsageError`] when nothing was touched; another error when the volume is not clean.
pub async fn command(
    request: &Clean,
    args: &Args,
    environment: &Environment,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let refused = |why| UsageError(format!("{why:#}; nothing was touched"));
    let finder = Finder::new(request, args, environment).await?;
    let target = confirmed(request, &finder, out).await.map_err(refused)?;
    if request.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Progress::default();
    let path = target.path.clone();
    let wipe = Box::pin(target.wipe(&progress));
    let took = cleaner::finish(&path, &progress, stop_signal()?, wipe).await?;
    // The volume is clean even if the output is closed.
    let _ = writeln!(out, "Cleaned {path} in {took}.");
    Ok(ExitCode::SUCCESS)
}

/// Shows the volume, and returns it after the operator has confirmed. It is then open again.
async fn confirmed(
    request: &Clean,
    finder: &Finder<'_>,
    out: &mut (dyn Write + Send),
) -> Result<Target> {
    let asks = !request.dry_run && !request.yes;
    // The operator must see the question and the volume that it is about.
    let is_seen = io::stdout().is_terminal() && io::stderr().is_terminal();
    ensure!(
        !asks || is_seen && io::stdin().is_terminal(),
        "there is no terminal for the question; check with --dry-run first, then use --yes"
    );
    let target = finder.open().await?;
    show::write(&target, out)?;
    if request.dry_run {
        writeln!(out, "\nDry run: nothing was touched.")?;
    }
    if !asks {
        return Ok(target);
    }
    let (path, shown) = (target.path.clone(), target.identity().clone());
    // Unlocks the volume, so that the question does not block a cleanup by the provisioner.
    drop(target);
    confirm(&path).await?;
    let target = finder.open().await?;
    let found = target.identity();
    ensure!(
        *found == shown,
        "what is at {path} changed before the answer: it was {shown}, and is now {found}"
    );
    Ok(target)
}

/// Requires the operator to type the path, which cannot be confirmed by habit.
async fn confirm(path: &MountPath) -> Result<()> {
    let answer = spawn_blocking(|| {
        // Discards input that was typed before the question.
        tcflush(io::stdin(), FlushArg::TCIFLUSH)?;
        write!(
            io::stderr(),
            "\nAll data in it will be lost. To go on, type its path: "
        )?;
        let mut answer = Vec::new();
        io::stdin().lock().read_until(b'\n', &mut answer)?;
        io::Result::Ok(answer)
    });
    let answer = answer.await?.context("the question cannot be asked")?;
    ensure!(
        answer.trim_ascii() == path.as_path().as_os_str().as_encoded_bytes(),
        "that is not its path"
    );
    Ok(())
}
