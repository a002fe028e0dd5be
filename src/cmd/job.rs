//! `job`: the program of the container of a cleaning Job.
//!
//! The provisioner that created the Job may be gone, and the disk may have been replaced. So the device is inspected
//! again: it must have the identity and size of the Job's device, and be unused. A lock excludes other cleaners of
//! this program. The device is cleaned with the code of the provisioner.

use std::env;
use std::fmt::Display;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Result, bail};
use tokio::time::Instant;

use super::cleaner;
use super::run::{UsageError, stop_signal};
use crate::args;
use crate::cleanup::blocking::{PROBE_TIMEOUT, open_when_free};
use crate::cleanup::external::Target;
use crate::cleanup::volume::{Access, OpenVolume};
use crate::cleanup::{Failure, Obstacle, inspect};
use crate::host::Machine;
use crate::host::identity::{Match, compare};
use crate::plan::job_object::{ENV_DEVICE, ENV_IDENTITY, ENV_PV, ENV_SIZE};
use crate::plan::reasons;
use crate::types::VolumeMode;
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// Reads an environment variable of the Job.
fn variable<T: FromStr<Err: Display>>(name: &str) -> Result<T, UsageError> {
    let value = env::var(name).unwrap_or_default();
    let refused = |why: &dyn Display| {
        UsageError(format!(
            "the variable {name} is {value:?}: {why}; this command runs only in Jobs that the provisioner creates; to clean a volume by hand, use clean"
        ))
    };
    if value.is_empty() {
        return Err(refused(&"it must be set"));
    }
    value.parse().map_err(|error| refused(&error))
}

/// Cleans the device. Exit code 0 if it is clean, 2 if the variables are missing or invalid, else 1. After 1 the
/// kubelet restarts the container.
///
/// # Errors
/// [`UsageError`] for the variables; another error if the device is not clean.
pub async fn run(job: &args::Job) -> Result<ExitCode> {
    let progress = Progress::default();
    let stopped = stop_signal()?;
    let target = Target {
        pv: variable(ENV_PV)?,
        path: variable(ENV_DEVICE)?,
        identity: variable(ENV_IDENTITY)?,
    };
    let size = variable(ENV_SIZE)?;
    let method = Method::of(VolumeMode::Block, &job.cleaner());
    let Target { pv, path, identity } = &target;
    tracing::info!(pv, %path, identity, "cleaning the device ({method})");
    let begun = Instant::now();
    let work = clean(target.clone(), size, &method, &progress);
    match cleaner::watch(&progress, stopped, work).await {
        Some(Ok(())) => {
            tracing::info!(pv, %path, "the device is clean (in {:?})", begun.elapsed());
            Ok(ExitCode::SUCCESS)
        }
        Some(Err(failure)) => bail!("the device {path} is not clean: {}", failure.message),
        None => bail!("the device {path} is not clean: interrupted"),
    }
}

async fn clean(
    mut target: Target,
    size: u64,
    method: &Method,
    progress: &Progress,
) -> Result<(), Failure> {
    // The provisioner may have closed the device only just now, so udev may still have it open.
    let expected = target.clone();
    let inspection = move || open(&expected, size);
    let opened = open_when_free(PROBE_TIMEOUT, progress, inspection).await;
    let opened = opened.map_err(|why| {
        let text = format!("{why}; nothing was touched");
        Failure::new(reasons::VOLUME_FAILED_DELETE, text)
    })?;
    target.identity.clone_from(&opened.candidate.identity.text);
    let (outcome, _lock) = opened.clean(&target, method, false, progress).await?;
    outcome.log(&target, progress);
    Ok(())
}

/// Opens and locks the device, and verifies that it is the one that the Job names. Blocking.
fn open(target: &Target, size: u64) -> Result<OpenVolume, Obstacle> {
    let machine = Machine::read()?;
    let opened = OpenVolume::take(&target.path, VolumeMode::Block, Access::Clean, &machine)?;
    let found = &opened.candidate;
    if compare(&target.identity, &found.identity) != Match::Same || found.capacity != size {
        return Err(Obstacle::Unknown(format!(
            "another device is at {} than the one to be cleaned: expected {:?} with {size} bytes, found {:?} with {}; \
             put the expected disk back, or delete this Job",
            target.path, target.identity, found.identity.text, found.capacity
        )));
    }
    let devices = found.footprint.devices();
    let twins = machine.sysfs.twins(devices)?;
    inspect::other_devices_are_free(devices, &twins, &machine)?;
    Ok(opened)
}
