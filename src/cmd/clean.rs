//! `clean`: cleans one volume of a configured class on an operator's request.
//!
//! It decides by the provisioner's plan, inspects and wipes with the code of a cleanup, and never changes an object.
//! Instead of the commit of a cleanup, the operator confirms by typing the volume's path.

mod target;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use tracing::{Instrument, error_span};

use super::ask::{confirm, ensure_terminal};
use super::cleaner;
use super::run::{UsageError, stop_signal};
use crate::args::{Clean, Environment};
use crate::cleanup::volume::Opened;
use crate::log::printable;
use crate::wipe::device::Disk;
use crate::wipe::pace::amount;
use crate::wipe::progress::Progress;
use crate::wipe::signature;
use target::{Finder, Target};

const QUESTION: &str = "\nAll data in it will be lost. To go on, type its path: ";

/// Inspects the volume, shows it, asks for confirmation, inspects it again, and cleans it.
///
/// # Errors
/// [`UsageError`] when nothing was touched; another error when the volume is not clean.
pub async fn command(
    request: &Clean,
    environment: &Environment,
    out: &mut (dyn Write + Send),
) -> Result<ExitCode> {
    let refused = |why| UsageError(format!("{why:#}; nothing was touched"));
    let finder = Finder::new(request, environment).await?;
    let target = confirmed(request, &finder, out).await.map_err(refused)?;
    if request.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Progress::default();
    let (path, opened, trim) = (&target.path, target.opened, target.class.trim);
    let pv = target.pv.map(|pv| pv.name);
    let wipe = opened.clean(&target.method, trim, target.mark, &progress);
    let finished = cleaner::finish(path, &progress, stop_signal()?, Box::pin(wipe));
    let took = finished.instrument(error_span!("clean", pv, %path)).await?;
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
    if asks {
        ensure_terminal()?;
    }
    let target = finder.open().await?;
    show(&target, out)?;
    if request.dry_run {
        writeln!(out, "\nDry run: nothing was touched.")?;
    }
    if !asks {
        return Ok(target);
    }
    let path = target.path.clone();
    let shown = target.opened.candidate.identity.clone();
    // Unlocks the volume, so that the question does not block a cleanup by the provisioner.
    drop(target);
    let question = QUESTION.to_owned();
    confirm(out, question, &path.to_string(), "that is not its path").await?;
    let target = finder.open().await?;
    let found = &target.opened.candidate.identity;
    ensure!(
        *found == shown,
        "what is at {path} changed before the answer: it was {shown}, and is now {found}"
    );
    Ok(target)
}

/// Writes the properties of the volume and how it will be cleaned.
fn show(target: &Target, out: &mut (dyn Write + Send)) -> Result<()> {
    let pv = match &target.pv {
        Some(pv) => format!("{} ({:?})", pv.name, pv.phase),
        None => "none".into(),
    };
    let mut rows = vec![("class", target.class.name.clone()), ("pv", pv)];
    match &target.opened.volume {
        Opened::Filesystem(root) => {
            let mount = root.mount();
            let source = mount.source.to_string_lossy();
            rows.push(("is", format!("{} of {source}", mount.fs_type)));
        }
        Opened::Device(device) => {
            let real = target.path.as_path().canonicalize()?;
            rows.push(("is", format!("the block device {}", real.display())));
            let progress = Progress::default();
            let found = signature::find(Disk::new(device.file(), device.size(), &progress))?;
            let holds = found.unwrap_or_else(|| "no known signature".into());
            rows.push(("holds", holds));
        }
    }
    rows.extend([
        ("size", amount(target.opened.candidate.capacity)),
        ("identity", target.opened.candidate.identity.to_string()),
        ("will be", format!("cleaned by {}", target.method)),
    ]);
    writeln!(out, "{}", printable(&target.path.to_string()))?;
    for (key, value) in rows {
        writeln!(out, "  {key:<8}  {}", printable(&value))?;
    }
    out.flush()?;
    Ok(())
}
