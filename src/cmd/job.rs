//! `job`: the program of the container of a cleaning Job.
//!
//! The provisioner that created the Job may be gone, and the disk may have been replaced. So the device is inspected
//! again: it must have the identity and size of the Job's device, and be unused. A lock excludes other cleaners of
//! this program. The device is cleaned with the code of the provisioner.

use std::ffi::OsString;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::Result;
use tokio::time::{Instant, interval_at, timeout};

use super::cleaner::{self, refused};
use super::run::StopSignals;
use crate::args;
use crate::cleanup::external::{PROBE_TIMEOUT, Target};
use crate::cleanup::oversee::{PROGRESS_LOG_PERIOD, STOP_TIMEOUT};
use crate::cleanup::volume::{Access, OpenVolume, Volume};
use crate::cleanup::{Failure, Stop, inspect};
use crate::host::device::Device;
use crate::host::identity::{Match, compare};
use crate::host::lock::VolumeLock;
use crate::inventory::Machine;
use crate::plan::job_object::{ENV_DEVICE, ENV_IDENTITY, ENV_PV, ENV_SIZE};
use crate::plan::reasons;
use crate::types::{MountPath, VolumeMode};
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// The device that the Job names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct JobDevice {
    pv: String,
    path: MountPath,
    identity: String,
    size: u64,
}

impl JobDevice {
    /// Reads the environment variables of the Job.
    fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let text = |name: &str| {
            let value = lookup(name).and_then(|value| value.into_string().ok());
            value.filter(|value| !value.is_empty()).ok_or_else(|| {
                format!("the variable {name} is not set: this command runs only in Jobs that the provisioner creates; to clean a volume by hand, use clean")
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
                .map_err(|_| format!("{ENV_SIZE} is {size:?}, which is not a number of bytes"))?,
        })
    }
}

/// Cleans the device. Exit code 0 if it is clean, 2 if the variables are missing or invalid, else 1. After 1 the
/// kubelet restarts the container.
///
/// # Errors
/// When the signal handlers cannot be installed.
pub async fn run(job: &args::Job) -> Result<ExitCode> {
    let progress = Progress::default();
    let mut signals = StopSignals::new()?;
    let expected = match JobDevice::read(|name| std::env::var_os(name)) {
        Ok(expected) => expected,
        Err(fault) => {
            tracing::error!("{fault}");
            return Ok(ExitCode::from(2));
        }
    };
    let method = Method::of(VolumeMode::Block, &job.cleaner());
    let (pv, path) = (&expected.pv, &expected.path);
    tracing::info!(pv, %path, identity = expected.identity, "cleaning the device ({method})");
    let begun = Instant::now();
    let mut ticks = interval_at(begun + PROGRESS_LOG_PERIOD, PROGRESS_LOG_PERIOD);
    let mut work = pin!(clean(&expected, &method, &progress));
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            signal = signals.received() => {
                tracing::info!("{signal}: stopping");
                progress.cancel();
                let end = timeout(STOP_TIMEOUT, work).await;
                break end.unwrap_or_else(|_| {
                    let text = format!("the cleaner has not stopped within {STOP_TIMEOUT:?}, so the disk seems to hang");
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
    let (device, lock, identity) = cleaner::inspect(PROBE_TIMEOUT, progress, inspection).await?;
    let target = Target {
        pv: expected.pv.clone(),
        path: expected.path.clone(),
        identity,
    };
    if let Some(report) = cleaner::wipe(device, lock, target, method.clone(), progress).await? {
        let (outcome, effect) = (report.outcome.as_str(), report.outcome.effect());
        tracing::info!(outcome, "{effect}");
    }
    Ok(())
}

/// Opens and locks the device, and verifies that it is the one that the Job names. Blocking.
fn open(expected: &JobDevice) -> Result<(Device, VolumeLock, String), Stop> {
    let path = &expected.path;
    let machine = Machine::read().map_err(refused)?;
    let opened = OpenVolume::take(path, VolumeMode::Block, Access::Write, &machine)?;
    let OpenVolume {
        volume: Volume::Device(device),
        lock,
        candidate,
    } = opened
    else {
        return Err(refused("it is no device").into());
    };
    let (identity, size) = (candidate.identity, device.size());
    if compare(&expected.identity, &identity) != Match::Same || size != expected.size {
        let text = format!(
            "another device is at {path} than the one to be cleaned: expected {:?} with {} bytes, found \
             {identity:?} with {size}; nothing was touched; put the expected disk back, or delete this Job",
            expected.identity,
            expected.size,
            identity = identity.text
        );
        return Err(Failure::new(reasons::VOLUME_IDENTITY_MISMATCH, text).into());
    }
    inspect::twins_are_free(candidate.footprint.devices(), &machine)?;
    Ok((device, lock, identity.text))
}
