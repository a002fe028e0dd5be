//! `job`: what runs in the container of a cleaning Job.
//!
//! Whoever made the Job has judged the volume, and may be dead by now, or wrong: the disk may be
//! another one. So it is looked at once more: it must be the device that was judged, nobody may use it,
//! and the lock on it keeps every other cleaner of ours away. Then it is cleaned by the same code as in
//! the provisioner.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::args;
use crate::clean::blocking::blocking;
use crate::clean::external::{OTHERS_LOOK, Target, external};
use crate::clean::method::Method;
use crate::clean::oversee::{STOPS_WITHIN, TELL_EVERY};
use crate::clean::progress::Progress;
use crate::clean::wipe::reset;
use crate::clean::{Failure, Stop, exclusive, inspect};
use crate::host::device::Device;
use crate::host::identity::{Match, compare};
use crate::host::lock::VolumeLock;
use crate::plan::job_object::{ENV_DEVICE, ENV_IDENTITY, ENV_PV, ENV_SIZE};
use crate::plan::reasons;
use crate::scan::Machine;
use crate::types::{MountPath, VolumeMode};

/// How long to wait between two looks at a device that somebody else looks at.
const PAUSE: Duration = Duration::from_millis(200);

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

/// The device, open and locked.
struct Found {
    device: Device,
    lock: VolumeLock,
    identity: String,
}

/// Cleans the device. Code 0 if it is clean, 2 if nothing can be made of the Job, else 1: the kubelet
/// tries again then.
///
/// # Errors
/// When the process cannot hear signals.
pub async fn run(job: &args::Job) -> Result<ExitCode> {
    let progress = Progress::default();
    let mut signals = [
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    ];
    let meant = match Meant::read(|name| std::env::var_os(name)) {
        Ok(meant) => meant,
        Err(fault) => {
            tracing::error!("{fault}");
            return Ok(ExitCode::from(2));
        }
    };
    let method = Method::of(VolumeMode::Block, &job.cleaner());
    let [terminate, interrupt] = &mut signals;
    let told = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        progress.cancel();
        sleep(STOPS_WITHIN).await;
    };
    let (pv, path) = (&meant.pv, &meant.path);
    tracing::info!(pv, %path, identity = meant.identity, "cleaning the device ({method})");
    let begun = Instant::now();
    let result = tokio::select! {
        result = clean(&meant, &method, &progress) => result,
        () = told => {
            tracing::error!(pv, %path, "the cleaner has not stopped within {STOPS_WITHIN:?}, so the disk seems to hang");
            return Ok(ExitCode::FAILURE);
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
    let found = open(meant, progress).await?;
    tokio::select! {
        result = wipe(meant, method, found, progress) => result,
        () = tell(meant, method, progress) => Ok(()),
    }
}

fn refused(message: String) -> Failure {
    Failure::new(reasons::VOLUME_FAILED_DELETE, message)
}

/// Opens and locks the device, and makes sure that it is the one that is meant. Others may look at it
/// for a moment: whoever made the Job has just closed it.
async fn open(meant: &Meant, progress: &Progress) -> Result<Found, Failure> {
    let deadline = Instant::now() + OTHERS_LOOK;
    loop {
        let look = {
            let meant = meant.clone();
            tokio::task::spawn_blocking(move || look(&meant))
        };
        let stop = match look.await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(stop)) => stop,
            Err(error) => return Err(refused(format!("looking at the device: {error}"))),
        };
        match stop {
            Stop::Failed(failure) => return Err(failure),
            _ if Instant::now() < deadline => {}
            other => return Err(refused(format!("{other}; nothing was touched"))),
        }
        sleep(PAUSE).await;
        progress
            .check()
            .map_err(|stopped| refused(stopped.to_string()))?;
    }
}

/// Looks once. Blocking.
fn look(meant: &Meant) -> Result<Found, Stop> {
    let path = &meant.path;
    let machine =
        Machine::read().map_err(|error| refused(format!("reading the mount table: {error}")))?;
    let (device, lock, candidate) = exclusive::take(path, &machine)?;
    let (identity, size) = (candidate.identity, device.size());
    if compare(&meant.identity, &identity) != Match::Same || size != meant.size {
        let text = format!(
            "another device is at {path} than the one that was to be cleaned: meant was {:?} with {} bytes, found \
             {identity:?} with {size}; nothing was touched; put the right disk back, or delete this Job",
            meant.identity,
            meant.size,
            identity = identity.text
        );
        return Err(Failure::new(reasons::VOLUME_IDENTITY_MISMATCH, text).into());
    }
    let below = candidate.footprint.devices();
    inspect::twins_are_free(below, &machine)?;
    Ok(Found {
        device,
        lock,
        identity: identity.text,
    })
}

async fn wipe(
    meant: &Meant,
    method: &Method,
    found: Found,
    progress: &Progress,
) -> Result<(), Failure> {
    let Found {
        device,
        lock,
        identity,
    } = found;
    if let Method::Command(words) = method {
        let target = Target {
            pv: meant.pv.clone(),
            path: meant.path.clone(),
            identity,
        };
        return external(&target, device, &lock, words, progress).await;
    }
    let (method, progress) = (method.clone(), progress.clone());
    blocking(true, move || {
        // The lock is held for as long as this thread is at work.
        let _lock = lock;
        if let Some(report) = reset(&device, &method, &progress)? {
            tracing::info!(means = report.means.as_str(), "{}", report.means.outcome());
        }
        Ok(())
    })
    .await
}

/// Says in the log how far it is. Never returns.
async fn tell(meant: &Meant, method: &Method, progress: &Progress) {
    let (pv, path, begun) = (&meant.pv, &meant.path, Instant::now());
    loop {
        sleep(TELL_EVERY).await;
        if matches!(method, Method::Command(_)) {
            tracing::info!(pv, %path, "the external cleaner is still at work");
        } else {
            tracing::info!(pv, %path, "cleaning goes on: {}", progress.pace(begun.elapsed()));
        }
    }
}
