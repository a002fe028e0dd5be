//! `job`: the program of the container of a cleaning Job.
//!
//! The provisioner that created the Job may be gone, and the disk may have been replaced. So the device is inspected
//! again: it must have the identity and size of the Job's device, and be unused. Its mark must be that of the Job's PV.
//! A lock excludes other cleaners of this program. The device is cleaned with the code of the provisioner.

use std::process::ExitCode;

use anyhow::Result;
use tracing::{Instrument, error_span};

use super::cleaner;
use super::run::stop_signal;
use crate::args;
use crate::cleanup::blocking::{PROBE_TIMEOUT, open_when_free};
use crate::cleanup::volume::{Access, OpenVolume};
use crate::cleanup::{Failure, Obstacle, inspect};
use crate::host::Machine;
use crate::host::identity::{Match, compare};
use crate::host::mark::{MarkState, StateDir};
use crate::host::mounts::MountTable;
use crate::types::VolumeMode;
use crate::wipe::method::Method;
use crate::wipe::progress::Progress;

/// Cleans the device. If that fails, the kubelet restarts the container.
///
/// # Errors
/// Why the device is not clean.
pub async fn run(job: args::Job) -> Result<ExitCode> {
    let progress = Progress::default();
    let method = Method::of(VolumeMode::Block, &job.cleaner());
    let (pv, path) = (&job.pv, &job.device);
    let work = async {
        tracing::info!(job.identity, "cleaning the device ({method})");
        let work = clean(&job, &method, &progress);
        let took = cleaner::finish(path, &progress, stop_signal()?, work).await?;
        tracing::info!("the device is clean (in {took})");
        Ok(ExitCode::SUCCESS)
    };
    work.instrument(error_span!("clean", pv, %path)).await
}

async fn clean(job: &args::Job, method: &Method, progress: &Progress) -> Result<(), Failure> {
    let expected = job.clone();
    // The provisioner may have closed the device only just now, so udev may still have it open.
    let opened =
        open_when_free(PROBE_TIMEOUT, progress, move || open(&expected)).await.map_err(|why| {
            let text = format!("{why}; nothing was touched");
            Failure::new(text)
        })?;
    let cleaned = opened.clean(method, false, None, progress);
    cleaned.await.map(drop)
}

/// Opens and locks the device, and verifies that it is the one that the Job names. Blocking.
fn open(job: &args::Job) -> Result<OpenVolume, Obstacle> {
    let (path, size) = (&job.device, job.size);
    let state = match &job.state_directory {
        Some(dir) => StateDir::open(dir, false, &MountTable::read()?).map_err(Obstacle::Unknown)?,
        None => StateDir::default(),
    };
    let machine = Machine::read(&state)?;
    let opened = OpenVolume::take(path, &job.class, VolumeMode::Block, Access::Clean, &machine)?;
    let found = &opened.candidate;
    if compare(&job.identity, &found.identity) != Match::Same || found.capacity != size {
        return Err(Obstacle::Unknown(format!(
            "another device is at {path} than the one to be cleaned: expected {:?} with {size} bytes, found {:?} with {}; \
             put the expected disk back, or delete this Job",
            job.identity, found.identity.text, found.capacity
        )));
    }
    if job.state_directory.is_some() && !found.mark.on_disk.is_of(&job.pv_uid, MarkState::Used) {
        return Err(Obstacle::Unknown(format!(
            "the mark of {path} is not that of the PV {} with the UID {}, so the device may have another tenant; delete \
             this Job",
            job.pv, job.pv_uid
        )));
    }
    let devices = found.footprint.devices();
    let twins = machine.sysfs.twins(devices)?;
    inspect::other_devices_are_free(devices, &twins, &machine)?;
    Ok(opened)
}
