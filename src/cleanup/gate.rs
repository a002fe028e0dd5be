//! The gate: whether a volume may be cleaned, judged on fresh facts right before it is.
//!
//! Passing it gives the volume itself, open and locked. All that follows is done through these
//! descriptors, never by looking the path up again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::{ApiError, ClaimView, PodView};
use crate::config::Config;
use crate::host::filesystem::FsRoot;
use crate::host::kubelet::KubeletDir;
use crate::host::lock::VolumeLock;
use crate::inventory::{Candidate, Machine, candidate_of_filesystem};
use crate::plan::verdict::{Due, Permission, consents_to_forget, due, may_clean};
use crate::plan::{CleanOrder, PvLocation, reasons};
use crate::types::{HostPath, VolumeMode};
use crate::view::{ClaimRef, NodeView, PvView};

use super::duplicate::no_other_pv;
use super::exclusive::{self, failed, io_failed, locked};
use super::inspect::{inspect, report_mounts, system_storage};
use super::volume::Volume;
use super::{CleanupContext, Failure, Stop, Tell};
use crate::wipe::method::Method;

/// How long looking at one disk may take.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// Why an attempt ends whose configuration is no longer in force.
const RECONFIGURED: &str = "the configuration changed meanwhile";

/// A volume that may be cleaned: open, locked, and judged.
#[derive(Debug)]
pub struct Gated {
    pub(super) order: CleanOrder,
    pub(super) pv: PvView,
    pub(super) permission: Permission,
    pub(super) volume: Volume,
    pub(super) lock: VolumeLock,
}

/// What looking at the disk gave.
struct Look {
    volume: Volume,
    lock: VolumeLock,
    candidate: Candidate,
}

/// Looks at everything again: the PV, its claim, the Pods, the kubelet's directory, the disk, the Node.
///
/// # Errors
/// [`Stop`], which says whether to look again, to forget it, or to report a failure.
pub async fn gate(context: &CleanupContext, order: CleanOrder) -> Result<Gated, Stop> {
    let pv = fresh_pv(context, &order).await?;
    let sees_pods = kubelet_let_go(context, &pv).await?;
    // In this order: a Pod of the claim's successor must not be seen without the successor.
    let pods = pods_of_node(context).await?;
    no_pod_mounts(&pods, &order.path)?;
    if let Some(claim) = &pv.claim {
        let successor = claim_is_gone(context, claim).await?;
        no_pod_uses(&pods, claim, successor.as_ref(), sees_pods)?;
    }
    let look = look_at_disk(context, &order).await?;
    no_other_pv(context, &pv).await?;
    node_is_not_paused(context).await?;
    let permission = judge(context, &order, &pv, &look.candidate)?;
    let Look { volume, lock, .. } = look;
    Ok(Gated {
        order,
        pv,
        permission,
        volume,
        lock,
    })
}

/// Judges what is at the path now.
fn judge(
    context: &CleanupContext,
    order: &CleanOrder,
    pv: &PvView,
    candidate: &Candidate,
) -> Result<Permission, Stop> {
    let state = context.state.borrow().clone();
    // Another configuration may have other classes. From here on, this cleanup keeps to its own.
    if state.settings.generation != order.generation {
        return Err(Stop::NotDue(RECONFIGURED.into()));
    }
    let entry = order
        .path
        .child_of(&order.class.host_dir)
        .unwrap_or_default()
        .to_owned();
    let place = PvLocation::Volume(&order.class, &entry, candidate);
    may_clean(
        pv,
        &state.settings.config,
        &state.node,
        &place,
        &state.occupied,
    )
    .map_err(|refusal| Stop::Failed(Failure::new(refusal.reason, refusal.message)))
}

/// Looks at something that may hang, on a thread that can be left behind.
async fn in_time<T: Send + 'static>(
    what: &str,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stop> {
    match tokio::time::timeout(LOOK_LIMIT, tokio::task::spawn_blocking(look)).await {
        Ok(Ok(seen)) => Ok(seen),
        Ok(Err(error)) => Err(failed(format!(
            "looking at {what} ended in a panic ({error}); this is a bug"
        ))),
        Err(_) => Err(failed(format!("{what} did not answer for {LOOK_LIMIT:?}"))),
    }
}

async fn fresh_pv(context: &CleanupContext, order: &CleanOrder) -> Result<PvView, Stop> {
    let found = context
        .cluster
        .pv(&order.pv.name)
        .await
        .map_err(api("reading the PV"))?;
    let Some(pv) = found.filter(|pv| pv.uid == order.pv.uid) else {
        return Err(Stop::NotDue("the PV is gone".into()));
    };
    if pv.tenancy() != order.pv.tenancy() {
        return Err(Stop::NotDue(
            "the PV was bound to another claim meanwhile".into(),
        ));
    }
    if due(&pv) != Due::Yes || consents_to_forget(&pv) {
        return Err(Stop::NotDue("the PV is no longer to be cleaned".into()));
    }
    if pv.path() != Some(&order.path) || pv.class != order.class.name {
        return Err(Stop::NotDue("the PV was changed meanwhile".into()));
    }
    if context.state.borrow().paused || pv.paused {
        return Err(Stop::NotDue("cleaning was paused meanwhile".into()));
    }
    Ok(pv)
}

/// No administrator has paused cleaning on the Node since the main loop heard of it, which is late where
/// the Node may not be watched.
async fn node_is_not_paused(context: &CleanupContext) -> Result<(), Stop> {
    let known = context.state.borrow().node.clone();
    let node = match context.cluster.node(&known.name).await {
        Err(ApiError::NotFound) => return Err(Stop::NotDue("our Node is gone".into())),
        node => node.map_err(api("reading our Node"))?,
    };
    let node = NodeView::from_metadata(&node).map_err(|fault| failed(fault.to_string()))?;
    if node.uid != known.uid {
        return Err(Stop::NotDue("our Node was registered again".into()));
    }
    if node.paused {
        return Err(Stop::NotDue("cleaning was paused meanwhile".into()));
    }
    Ok(())
}

pub(super) fn api(what: &'static str) -> impl Fn(ApiError) -> Stop {
    move |error| {
        let message = format!("{what} failed: {error}");
        match error {
            // These may pass at any moment, and looking again costs little.
            ApiError::Failed(_) | ApiError::TimedOut => Stop::InUse {
                by: message,
                notify: Tell::IfItLasts,
            },
            ApiError::Forbidden { .. } => {
                Stop::Failed(Failure::new(reasons::PERMISSION_MISSING, message))
            }
            _ => failed(message),
        }
    }
}

/// A released PV's claim is gone, or another one has its name now: that is returned.
async fn claim_is_gone(
    context: &CleanupContext,
    claim: &ClaimRef,
) -> Result<Option<ClaimView>, Stop> {
    let found = match context.cluster.claim(&claim.namespace, &claim.name).await {
        Ok(found) => found,
        // Older installations lack the right. The check is one of several: it is reported as missing
        // (see `Permissions`) and left out.
        Err(ApiError::Forbidden { .. }) => return Ok(None),
        Err(error) => return Err(api("reading the claim")(error)),
    };
    match found {
        Some(found) if claim.uid.as_ref().is_none_or(|uid| *uid == found.uid) => Err(Stop::InUse {
            by: format!("its claim {claim} still exists"),
            notify: Tell::IfItLasts,
        }),
        found => Ok(found),
    }
}

/// The Pods of this node.
async fn pods_of_node(context: &CleanupContext) -> Result<Vec<PodView>, Stop> {
    let node = context.state.borrow().node.name.clone();
    match context.cluster.pods_of(&node).await {
        // As with claims.
        Err(ApiError::Forbidden { .. }) => Ok(Vec::new()),
        pods => pods.map_err(api("listing this node's Pods")),
    }
}

/// No Pod on this node that has not ended uses the claim. A Pod that started after a new claim took
/// the name uses that one.
fn no_pod_uses(
    pods: &[PodView],
    claim: &ClaimRef,
    successor: Option<&ClaimView>,
    kubelet_is_seen: bool,
) -> Result<(), Stop> {
    // The API's times are whole seconds. A claim and its Pod are often made in the same one; where the
    // kubelet's directory shows what is really in use, that second is not held against the Pod.
    let uses_successor = |started: Option<Timestamp>| {
        let created = successor.and_then(|claim| claim.created);
        matches!((started, created), (Some(started), Some(created))
            if started > created || (kubelet_is_seen && started == created))
    };
    let users: Vec<_> = pods
        .iter()
        .filter(|pod| !pod.terminal && pod.namespace == claim.namespace)
        .filter(|pod| pod.claims.contains(&claim.name) && !uses_successor(pod.started))
        .map(|pod| pod.name.as_str())
        .collect();
    if users.is_empty() {
        return Ok(());
    }
    Err(Stop::InUse {
        by: format!("Volume is used by pods: {}", users.join(", ")),
        notify: Tell::AtOnce,
    })
}

/// No Pod on this node mounts the volume by its path. (Pods that monitor it mount what is above.)
fn no_pod_mounts(pods: &[PodView], path: &HostPath) -> Result<(), Stop> {
    let users = pods.iter().filter(|pod| pod.mounts(path));
    let users: Vec<_> = users.map(|pod| pod.name.as_str()).collect();
    if users.is_empty() {
        return Ok(());
    }
    Err(Stop::InUse {
        by: format!("Volume is used by pods by hostPath: {}", users.join(", ")),
        notify: Tell::AtOnce,
    })
}

/// The kubelet has unmounted the volume. A Pod that was deleted by force has no object any more, but
/// its containers live on until the kubelet has stopped them.
///
/// What is seen of the volume counts in any case; that nothing is seen counts only where it would be.
/// Returns whether the node's pods can be seen.
async fn kubelet_let_go(context: &CleanupContext, pv: &PvView) -> Result<bool, Stop> {
    let (kubelet, name) = (Arc::clone(&context.kubelet), pv.name.clone());
    let mode = pv.mode;
    let look = in_time("the kubelet's directory", move || {
        let would_be_seen = kubelet.sees(mode);
        let sees_pods = would_be_seen || kubelet.visible();
        (sees_pods, would_be_seen, kubelet.mounts_of(&name))
    });
    let (sees_pods, would_be_seen, uses) = look.await?;
    match uses {
        Ok(uses) => {
            if let Some(path) = uses.first() {
                let by = format!("the kubelet still has it: {}", path.display());
                return Err(Stop::InUse {
                    by,
                    notify: Tell::IfItLasts,
                });
            }
        }
        // It is not mounted here at all.
        Err(error) if !would_be_seen && error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let message = format!("the kubelet's directory cannot be read: {error}");
            return Err(failed(message));
        }
    }
    if would_be_seen {
        return Ok(sees_pods);
    }
    let quiet = jiff::SignedDuration::try_from(context.quiet_period).unwrap_or_default();
    let released = pv.released_at.unwrap_or_else(Timestamp::now);
    // The API's times are whole seconds, rounded down, so that one more must have passed. A time in the
    // future is another machine's clock: then the whole period is waited for.
    let passed = Timestamp::now().duration_since(released) - jiff::SignedDuration::from_secs(1);
    if passed >= quiet && !passed.is_negative() {
        return Ok(sees_pods);
    }
    let by = format!(
        "the kubelet's directory is not visible here, so {:?} must pass after the release",
        context.quiet_period
    );
    Err(Stop::InUse {
        by,
        notify: Tell::IfItLasts,
    })
}

async fn look_at_disk(context: &CleanupContext, order: &CleanOrder) -> Result<Look, Stop> {
    let (order, kubelet) = (order.clone(), Arc::clone(&context.kubelet));
    let config = Arc::clone(&context.state.borrow().settings.config);
    in_time("the disk", move || look(&order, &kubelet, &config)).await?
}

/// Opens and locks what is at the path. Blocking.
fn look(order: &CleanOrder, kubelet: &KubeletDir, config: &Config) -> Result<Look, Stop> {
    let path = order.mount_path.as_path();
    let machine =
        Machine::read().map_err(|error| failed(format!("reading the mount table: {error}")))?;
    machine.mounts.complete().map_err(failed)?;
    let (volume, lock, candidate) = match order.kind {
        VolumeMode::Filesystem => {
            let root =
                FsRoot::open(path, &machine.mounts).map_err(|error| failed(error.to_string()))?;
            let lock = locked(VolumeLock::acquire(root.as_fd(), path))?;
            let candidate = candidate_of_filesystem(&root, &machine)
                .map_err(|error| io_failed(&order.mount_path, &error))?;
            (Volume::Filesystem(root), lock, candidate)
        }
        VolumeMode::Block => {
            if order.method == Method::DeleteContents {
                return Err(no_cleaner_of_devices(order).into());
            }
            let (device, lock, candidate) = exclusive::take(&order.mount_path, &machine)?;
            (Volume::Device(device), lock, candidate)
        }
    };
    let system = system_storage(kubelet, config).map_err(failed)?;
    inspect(&volume, &machine, kubelet, &system)?;
    report_mounts(&order.pv.name, &volume, &machine.mounts);
    Ok(Look {
        volume,
        lock,
        candidate,
    })
}

/// The volume is a device, and its class has it cleaned in a way that is none for devices.
pub(super) fn no_cleaner_of_devices(order: &CleanOrder) -> Failure {
    let message = format!(
        "{} does not clean devices; correct the blockCleanerCommand of class {:?}",
        order.method, order.class.name
    );
    Failure::new(reasons::VOLUME_FAILED_DELETE, message)
}
