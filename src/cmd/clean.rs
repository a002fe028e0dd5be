//! `clean`: cleans one volume of a configured class on an operator's request.
//!
//! It decides by the provisioner's plan, inspects and wipes with the code of a cleanup, and never changes an object.
//! Instead of the commit of a cleanup, the operator confirms by typing the volume's path.

mod confirm;
mod show;
mod target;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::cleaner;
use super::run::{UsageError, stop_signal};
use crate::args::{Args, Clean, Environment};
use crate::config::duration;
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
    let stopped = stop_signal()?;
    let progress = Progress::default();
    let (path, begun) = (target.path.clone(), Instant::now());
    let wipe = Box::pin(target.wipe(&progress));
    let end = cleaner::watch(&progress, stopped, wipe).await;
    let so_far = progress.pace(begun.elapsed());
    match end {
        Some(Ok(outcome)) => {
            let took = duration::format(Duration::from_secs(begun.elapsed().as_secs()));
            // The volume is clean even if the output is closed.
            let _ = writeln!(out, "Cleaned {path} in {took}: {outcome}.");
            Ok(ExitCode::SUCCESS)
        }
        Some(Err(failure)) => bail!(
            "cleaning {path} failed: {} ({so_far}); the volume is not clean: fix the cause and run this again",
            failure.message
        ),
        None => {
            let _ = writeln!(
                io::stderr(),
                "error: interrupted ({so_far}); {path} is half cleaned, and the rest can still be read: run this again, it starts from the beginning"
            );
            Ok(ExitCode::from(130))
        }
    }
}

/// Shows the volume, and returns it after the operator has confirmed. It is then open again.
async fn confirmed(
    request: &Clean,
    finder: &Finder,
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
    confirm::confirm(path.clone()).await?;
    let target = finder.open().await?;
    let found = target.identity();
    ensure!(
        *found == shown,
        "what is at {path} changed before the answer: it was {shown}, and is now {found}"
    );
    Ok(target)
}
