//! `job`: the program of the container of a cleaning Job.
//!
//! The provisioner that created the Job may be gone, and the disk may have been replaced. So the device is inspected
//! again: it must have the identity and size of the Job's device, and be unused. A lock excludes other cleaners of
//! this program. The device is cleaned with the code of the provisioner.

use std::process::ExitCode;

use anyhow::{Result, bail};
use tokio::time::Instant;

use super::cleaner::{self, refused};
use super::run::{StopSignals, UsageError};
use crate::args;
use crate::cleanup::external::{PROBE_TIMEOUT, Target};
use crate::cleanup::volume::{Access, OpenVolume, Volume};
use crate::cleanup::{Failure, Obstacle, Stop, inspect};
use crate::host::identity::{Match, compare};
use crate::inventory::Machine;
use crate::plan::job_object::{ENV_DEVICE, ENV_IDENTITY, ENV_PV, ENV_SIZE};
use crate::plan::reasons;
use crate::types::{MountPath, VolumeMode};
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// The device that the Job names.
#[derive(Clone, Debug)]
struct JobDevice {
    target: Target,
    size: u64,
}

impl JobDevice {
    /// Reads the environment variables of the Job.
    fn read() -> Result<Self, UsageError> {
        let text = |name: &str| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty());
            value.ok_or_else(|| {
                UsageError(format!("the variable {name} is not set: this command runs only in Jobs that the provisioner creates; to clean a volume by hand, use clean"))
            })
        };
        let (path, size) = (text(ENV_DEVICE)?, text(ENV_SIZE)?);
        let invalid = |name, value: &str, why: &dyn std::fmt::Display| {
            UsageError(format!("{name} is {value:?}: {why}"))
        };
        Ok(Self {
            target: Target {
                pv: text(ENV_PV)?,
                path: path
                    .parse::<MountPath>()
                    .map_err(|fault| invalid(ENV_DEVICE, &path, &fault))?,
                identity: text(ENV_IDENTITY)?,
            },
            size: size
                .parse()
                .map_err(|error| invalid(ENV_SIZE, &size, &error))?,
        })
    }
}

/// Cleans the device. Exit code 0 if it is clean, 2 if the variables are missing or invalid, else 1. After 1 the
/// kubelet restarts the container.
///
/// # Errors
/// [`UsageError`] for the variables; another error if the device is not clean.
pub async fn run(job: &args::Job) -> Result<ExitCode> {
    let progress = Progress::default();
    let mut signals = StopSignals::new()?;
    let expected = JobDevice::read()?;
    let method = Method::of(VolumeMode::Block, &job.cleaner());
    let Target { pv, path, identity } = &expected.target;
    tracing::info!(pv, %path, identity, "cleaning the device ({method})");
    let begun = Instant::now();
    let work = clean(&expected, &method, &progress);
    match cleaner::watch(&progress, &mut signals, work).await {
        Some(Ok(())) => {
            tracing::info!(pv, %path, "the device is clean (in {:?})", begun.elapsed());
            Ok(ExitCode::SUCCESS)
        }
        Some(Err(failure)) => bail!("the device {path} is not clean: {}", failure.message),
        None => bail!("the device {path} is not clean: interrupted"),
    }
}

async fn clean(expected: &JobDevice, method: &Method, progress: &Progress) -> Result<(), Failure> {
    if *method == Method::DeleteContents {
        return Err(refused(format!(
            "{method} does not clean devices; correct the blockCleanerCommand of its class"
        )));
    }
    // The provisioner may have closed the device only just now, so udev may still have it open.
    let inspection = {
        let expected = expected.clone();
        move || open(&expected)
    };
    let opened = cleaner::inspect(PROBE_TIMEOUT, progress, inspection).await?;
    let target = Target {
        identity: opened.candidate.identity.text.clone(),
        ..expected.target.clone()
    };
    let (outcome, _lock) = opened.clean(&target, method, false, progress).await?;
    outcome.log(&target, progress);
    Ok(())
}

/// Opens and locks the device, and verifies that it is the one that the Job names. Blocking.
fn open(expected: &JobDevice) -> Result<OpenVolume, Stop> {
    let JobDevice { target, size } = expected;
    let path = &target.path;
    let machine = Machine::read().map_err(refused)?;
    let opened = OpenVolume::take(path, VolumeMode::Block, Access::Write, &machine)?;
    let Volume::Device(device) = &opened.volume else {
        return Err(refused("it is no device").into());
    };
    let found = &opened.candidate.identity;
    if compare(&target.identity, found) != Match::Same || device.size() != *size {
        let text = format!(
            "another device is at {path} than the one to be cleaned: expected {:?} with {size} bytes, found \
             {:?} with {}; nothing was touched; put the expected disk back, or delete this Job",
            target.identity,
            found.text,
            device.size()
        );
        return Err(Failure::new(reasons::VOLUME_IDENTITY_MISMATCH, text).into());
    }
    let devices = opened.candidate.footprint.devices();
    let twins = machine.sysfs.twins(devices).map_err(Obstacle::from)?;
    inspect::other_devices_are_free(devices, &twins, &machine)?;
    Ok(opened)
}
