//! `job`: what runs in the container of a cleaning Job.
//!
//! The provisioner that made the Job may be gone, and the disk another one. So the device is inspected
//! again: it must be the one that was judged, nothing may use it, and the lock on it excludes every other
//! cleaner of this program. Then the code of the provisioner cleans it.

use std::ffi::OsString;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::Result;
use tokio::time::{Instant, interval_at, timeout};

use super::cleaner::{self, refused};
use super::run::Told;
use crate::args;
use crate::cleanup::external::{OTHERS_LOOK, Target};
use crate::cleanup::oversee::{STOPS_WITHIN, TELL_EVERY};
use crate::cleanup::{Failure, Stop, exclusive, inspect};
use crate::host::device::Device;
use crate::host::identity::{Match, compare};
use crate::host::lock::VolumeLock;
use crate::inventory::Machine;
use crate::plan::job_object::{ENV_DEVICE, ENV_IDENTITY, ENV_PV, ENV_SIZE};
use crate::plan::reasons;
use crate::types::{MountPath, VolumeMode};
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// The device that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Meant {
    pv: String,
    path: MountPath,
    identity: String,
    size: u64,
}

impl Meant {
    /// Reads the Job's variables.
    fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let text = |name: &str| {
            let value = lookup(name).and_then(|value| value.into_string().ok());
            value.filter(|value| !value.is_empty()).ok_or_else(|| {
                format!("the variable {name} is not set: this runs in the Jobs that the provisioner makes, and is nothing to run by hand (see clean)")
            })
        };
        let (path, size) = (text(ENV_DEVICE)?, text(ENV_SIZE)?);
        Ok(Self {
            pv: text(ENV_PV)?,
            path: MountPath::normalise(&path)
                .map_err(|fault| format!("{ENV_DEVICE} is {path:?}: {fault}"))?,
            identity: text(ENV_IDENTITY)?,
            size: size
                .parse()
                .map_err(|_| format!("{ENV_SIZE} is {size:?}, which is no number of bytes"))?,
        })
    }
}

/// Cleans the device. Code 0 if it is clean, 2 if the Job is not of the provisioner, else 1, so that
/// the kubelet starts the container again.
///
/// # Errors
/// When the process cannot catch signals.
pub async fn run(job: &args::Job) -> Result<ExitCode> {
    let progress = Progress::default();
    let mut told = Told::new()?;
    let meant = match Meant::read(|name| std::env::var_os(name)) {
        Ok(meant) => meant,
        Err(fault) => {
            tracing::error!("{fault}");
            return Ok(ExitCode::from(2));
        }
    };
    let method = Method::of(VolumeMode::Block, &job.cleaner());
    let (pv, path) = (&meant.pv, &meant.path);
    tracing::info!(pv, %path, identity = meant.identity, "cleaning the device ({method})");
    let begun = Instant::now();
    let mut ticks = interval_at(begun + TELL_EVERY, TELL_EVERY);
    let mut work = pin!(clean(&meant, &method, &progress));
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            signal = told.stop_wanted() => {
                tracing::info!("{signal}: stopping");
                progress.cancel();
                let end = timeout(STOPS_WITHIN, work).await;
                break end.unwrap_or_else(|_| {
                    let text = format!("the cleaner has not stopped within {STOPS_WITHIN:?}, so the disk seems to hang");
                    Err(Failure::new(reasons::VOLUME_FAILED_DELETE, text))
                });
            }
            _ = ticks.tick() => tracing::info!(pv, %path, "cleaning goes on: {}", progress.pace(begun.elapsed())),
        }
    };
    match result {
        Ok(()) => {
            tracing::info!(pv, %path, "the device is clean (in {:?})", begun.elapsed());
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            tracing::error!(pv, %path, "the device is not clean: {}", failure.message);
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn clean(meant: &Meant, method: &Method, progress: &Progress) -> Result<(), Failure> {
    if *method == Method::DeleteContents {
        return Err(refused(format!(
            "{method} does not clean devices; correct the blockCleanerCommand of its class"
        )));
    }
    // The provisioner has just closed it.
    let inspection = {
        let meant = meant.clone();
        move || look(&meant)
    };
    let (device, lock, identity) = cleaner::inspect(OTHERS_LOOK, progress, inspection).await?;
    let target = Target {
        pv: meant.pv.clone(),
        path: meant.path.clone(),
        identity,
    };
    if let Some(report) = cleaner::wipe(device, lock, target, method.clone(), progress).await? {
        tracing::info!(means = report.means.as_str(), "{}", report.means.outcome());
    }
    Ok(())
}

/// Opens and locks the device, and makes sure that it is the one that is meant. Blocking.
fn look(meant: &Meant) -> Result<(Device, VolumeLock, String), Stop> {
    let path = &meant.path;
    let machine = Machine::read().map_err(refused)?;
    let (device, lock, candidate) = exclusive::take(path, &machine)?;
    let (identity, size) = (candidate.identity, device.size());
    if compare(&meant.identity, &identity) != Match::Same || size != meant.size {
        let text = format!(
            "another device is at {path} than the one to be cleaned: expected {:?} with {} bytes, found \
             {identity:?} with {size}; nothing was touched; put the right disk back, or delete this Job",
            meant.identity,
            meant.size,
            identity = identity.text
        );
        return Err(Failure::new(reasons::VOLUME_IDENTITY_MISMATCH, text).into());
    }
    inspect::twins_are_free(candidate.footprint.devices(), &machine)?;
    Ok((device, lock, identity.text))
}
