//! `clean PATH`: does to one volume, by hand, what a cleanup does, with the same cleaners and after
//! the same looks at the disk.
//!
//! It asks no API server. In the place of the protocol's commit there is a person, who is shown what
//! is there and types its path once more.

mod confirm;
mod judge;
mod method;
mod needs;
mod ourselves;
mod refusal;
mod show;
mod target;
mod watch;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::args::{Args, Clean, Environment};
use crate::clean::blocking::blocking;
use crate::clean::pace::Pace;
use crate::clean::progress::Progress;
use crate::cluster::chain;
use crate::config::duration;
use crate::types::MountPath;

pub use needs::Needs;
pub use refusal::Refusal;
use target::Target;
use watch::{Display, End, Signals};

/// Why a volume is not clean.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// Nothing was touched.
    #[error("{0}; nothing was touched")]
    Refused(#[from] Refusal),
    /// It was begun.
    #[error(
        "cleaning {path} failed: {cause} ({so_far}); the volume is not clean: run this again when that is mended"
    )]
    Failed {
        /// The volume.
        path: MountPath,
        /// The cause, in the words of the provisioner's event.
        cause: String,
        /// How far it came.
        so_far: Pace,
    },
    /// By Ctrl-C, or a signal.
    #[error(
        "interrupted ({so_far}); {path} is {}: run this again, it begins from the start{}",
        if *.is_empty {
            "empty, but its disk was not told, or not of all of it"
        } else {
            "half cleaned, and what is left can still be read"
        },
        if *.hangs {
            "; the cleaner has not stopped, so its disk still takes what was written, or hangs: look at the kernel log"
        } else {
            ""
        }
    )]
    Interrupted {
        /// The volume.
        path: MountPath,
        /// How far it came.
        so_far: Pace,
        /// Whether only the trim is missing.
        is_empty: bool,
        /// Whether the cleaner did not heed it.
        hangs: bool,
    },
    /// What is to be seen before a volume is cleaned cannot be shown.
    #[error("the output cannot be written, and nothing was touched: {0}")]
    Output(#[from] io::Error),
}

impl CleanError {
    /// The exit code of the program.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { .. } => 1,
            Self::Refused(_) | Self::Output(_) => 2,
            Self::Interrupted { .. } => 130,
        }
    }
}

/// Does what the command line says, and tells how it ended.
///
/// # Errors
/// When it could not even begin.
pub async fn command(
    request: &Clean,
    args: &Args,
    environment: &Environment,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let needs = Needs::of_this_machine(args, environment);
    let result = match needs {
        Ok(needs) => run(request, &needs, out).await,
        Err(error) => Err(error.into()),
    };
    Ok(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", chain(&error));
            ExitCode::from(error.exit_code())
        }
    })
}

/// Looks, shows, asks, looks again, and cleans.
///
/// # Errors
/// [`CleanError`] whenever the volume is not clean in the end, bar a dry run.
pub async fn run(
    request: &Clean,
    needs: &Needs,
    out: &mut (dyn Write + Send),
) -> Result<(), CleanError> {
    let asks = !request.dry_run && !request.yes;
    // What is asked, and about what, has to be seen.
    let is_seen = io::stdout().is_terminal() && io::stderr().is_terminal();
    if asks && !(is_seen && io::stdin().is_terminal()) {
        return Err(Refusal::NoTerminal.into());
    }
    let path = target::absolute(&request.path)?;
    let target = Target::open(&path, request.dry_run, needs)?;
    let method = method::choose(request, &target)?;
    show::write(&target, request, &method, needs, out)?;
    if request.dry_run {
        writeln!(out, "\nDry run: nothing was touched.")?;
        return Ok(());
    }
    // Up to here a signal ends the program at once, and without a word.
    let mut signals = Signals::catch().map_err(|source| Refusal::Signals { source })?;
    if asks {
        tokio::select! {
            answer = confirm::confirm(path.clone()) => answer?,
            () = signals.any() => {
                // From the question to a line of its own.
                let _ = writeln!(io::stderr());
                return Err(Refusal::Interrupted.into());
            }
        }
    }
    target.look_again(needs)?;
    let progress = Progress::default();
    let (idle, in_memory) = (target.volume.is_alone(), target.is_in_memory());
    let work = {
        let (progress, trim, verify) = (progress.clone(), request.trim, request.verify);
        move || target.wipe(&method, trim, verify, &progress)
    };
    let begun = Instant::now();
    let wipe = blocking(idle, work);
    let end = watch::watch(Display::new(), &progress, signals.any(), wipe).await;
    let elapsed = Duration::from_millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(0));
    let so_far = progress.pace(elapsed);
    match end {
        End::Done(Ok(done)) => {
            // It is clean, whether that can be told or not.
            let _ = writeln!(
                out,
                "Cleaned {path} in {}: {}.",
                duration::format(elapsed),
                show::result(&done, so_far.entries, in_memory)
            );
            Ok(())
        }
        End::Done(Err(failure)) => Err(CleanError::Failed {
            path,
            cause: failure.message,
            so_far,
        }),
        End::Stopped { hangs } => Err(CleanError::Interrupted {
            path,
            so_far,
            is_empty: progress.is_data_gone(),
            hangs,
        }),
    }
}
