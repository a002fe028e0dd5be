//! The gate decides whether a volume may be cleaned, on state that it reads right before the cleanup.
//!
//! It returns the volume open and locked. The later steps use these descriptors and never resolve the
//! path again.

use std::io;
use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::{ApiError, ClaimView, PodView};
use crate::inventory::Candidate;
use crate::plan::verdict::{Due, Permission, consents_to_forget, due, may_clean};
use crate::plan::{CleanOrder, CleanupState, PvLocation, reasons};
use crate::types::{HostPath, VolumeMode};
use crate::view::{ClaimRef, NodeView, PvView};

use super::duplicate::no_other_pv;
use super::{CleanupContext, Failure, KubeletUses, LockedVolume, NotifyAfter, Stop};
use crate::wipe::method::Method;

/// The time limit for a check of the disk or of the kubelet's directory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A volume that may be cleaned: open, locked and checked.
#[derive(Debug)]
pub struct Gated {
    pub(super) order: CleanOrder,
    pub(super) pv: PvView,
    pub(super) permission: Permission,
    pub(super) volume: Box<dyn LockedVolume>,
}

/// Reads everything again: the PV, its claim, the Pods, the kubelet's directory, the disk and the Node.
///
/// # Errors
/// [`Stop`]: retry, drop the cleanup, or report a failure.
pub async fn gate(context: &CleanupContext, order: CleanOrder) -> Result<Gated, Stop> {
    let pv = fresh_pv(context, &order).await?;
    let sees_pods = ensure_kubelet_unmounted(context, &pv).await?;
    // Pods before the claim: the Pod of a successor claim must not be seen without that claim.
    let pods = pods_of_node(context).await?;
    no_pod_mounts(&pods, &order.path)?;
    if let Some(claim) = &pv.claim {
        // Other nodes reach the volumes of a class with a selector.
        let others = if order.class.selector.is_empty() {
            Vec::new()
        } else {
            seen_pods(context.cluster.pods_in(&claim.namespace).await)?
        };
        let successor = claim_is_gone(context, claim).await?;
        no_pod_uses(&pods, claim, successor.as_ref(), sees_pods)?;
        no_pod_uses(&others, claim, successor.as_ref(), sees_pods)?;
    }
    let volume = inspect_disk(context, &order).await?;
    no_other_pv(context, &pv).await?;
    node_is_not_paused(context).await?;
    let permission = judge(context, &order, &pv, volume.candidate())?;
    Ok(Gated {
        order,
        pv,
        permission,
        volume,
    })
}

/// Decides whether the device or filesystem at the path is the volume and may be cleaned.
fn judge(
    context: &CleanupContext,
    order: &CleanOrder,
    pv: &PvView,
    candidate: &Candidate,
) -> Result<Permission, Stop> {
    let state = context.state.borrow().clone();
    // A reload may have changed the classes. After this check, the cleanup keeps its configuration.
    if state.settings.generation != order.generation {
        return Err(Stop::NotDue("the configuration changed meanwhile".into()));
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

/// Abandons a check that hangs.
async fn with_timeout<T>(what: &str, check: impl Future<Output = T>) -> Result<T, Stop> {
    let checked = tokio::time::timeout(TIMEOUT, check).await;
    checked.map_err(|_| failed(format!("{what} did not answer for {TIMEOUT:?}")))
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

/// Reads the Node again: without permission to watch it, the main loop sees a pause late.
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
            // Transient errors: checking again costs little.
            ApiError::Failed(_) => Stop::InUse {
                by: message,
                notify: NotifyAfter::LongUse,
            },
            ApiError::Forbidden { .. } => {
                Stop::Failed(Failure::new(reasons::PERMISSION_MISSING, message))
            }
            _ => failed(message),
        }
    }
}

/// Fails while the claim of a released PV exists. Returns a new claim of the same name.
async fn claim_is_gone(
    context: &CleanupContext,
    claim: &ClaimRef,
) -> Result<Option<ClaimView>, Stop> {
    let found = match context.cluster.claim(claim).await {
        Ok(found) => found,
        // Older installations lack the permission. It is reported as missing (see `Permissions`), and this
        // check, one of several, is skipped.
        Err(ApiError::Forbidden { .. }) => return Ok(None),
        Err(error) => return Err(api("reading the claim")(error)),
    };
    match found {
        Some(found) if claim.uid.as_ref().is_none_or(|uid| *uid == found.uid) => Err(Stop::InUse {
            by: format!("its claim {claim} still exists"),
            notify: NotifyAfter::LongUse,
        }),
        found => Ok(found),
    }
}

/// The Pods of this node.
async fn pods_of_node(context: &CleanupContext) -> Result<Vec<PodView>, Stop> {
    let node = context.state.borrow().node.name.clone();
    seen_pods(context.cluster.pods_of(&node).await)
}

/// The Pods of a list; none without permission, as for claims.
fn seen_pods(listed: Result<Vec<PodView>, ApiError>) -> Result<Vec<PodView>, Stop> {
    match listed {
        Err(ApiError::Forbidden { .. }) => Ok(Vec::new()),
        pods => pods.map_err(api("listing Pods")),
    }
}

/// Fails if a running Pod of these uses the claim. A Pod that started after a new claim of the same
/// name was created uses the new claim.
fn no_pod_uses(
    pods: &[PodView],
    claim: &ClaimRef,
    successor: Option<&ClaimView>,
    kubelet_is_seen: bool,
) -> Result<(), Stop> {
    // API times are whole seconds, and a claim and its Pod are often created in the same second. Such a
    // Pod counts as a user of the old claim only if the kubelet's directory is not visible.
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
        notify: NotifyAfter::Zero,
    })
}

/// Fails if a Pod on this node mounts the volume by hostPath. (Monitoring Pods mount a parent directory.)
fn no_pod_mounts(pods: &[PodView], path: &HostPath) -> Result<(), Stop> {
    let users = pods.iter().filter(|pod| pod.mounts(path));
    let users: Vec<_> = users.map(|pod| pod.name.as_str()).collect();
    if users.is_empty() {
        return Ok(());
    }
    Err(Stop::InUse {
        by: format!("Volume is used by pods by hostPath: {}", users.join(", ")),
        notify: NotifyAfter::Zero,
    })
}

/// Fails until the kubelet has unmounted the volume. The containers of a force-deleted Pod run until the
/// kubelet stops them, although the Pod object is gone.
///
/// A visible mount always counts. No visible mount counts only where mounts are visible; elsewhere the
/// quiet period must pass. Returns whether the node's pods are visible.
async fn ensure_kubelet_unmounted(context: &CleanupContext, pv: &PvView) -> Result<bool, Stop> {
    let what = "the kubelet's directory";
    let uses = with_timeout(what, context.host.kubelet_uses(pv)).await?;
    let KubeletUses {
        sees_pods,
        would_be_seen,
        paths,
    } = uses.map_err(|error| failed(format!("{what} cannot be read: {error}")))?;
    match paths {
        Ok(paths) => {
            if let Some(path) = paths.first() {
                let by = format!("the kubelet still has it: {}", path.display());
                return Err(Stop::InUse {
                    by,
                    notify: NotifyAfter::LongUse,
                });
            }
        }
        // The kubelet's directory is not mounted in this container.
        Err(error) if !would_be_seen && error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(failed(format!("{what} cannot be read: {error}")));
        }
    }
    if would_be_seen {
        return Ok(sees_pods);
    }
    let quiet = jiff::SignedDuration::try_from(context.quiet_period).unwrap_or_default();
    let passed = match pv.released_at {
        // API times are rounded down to seconds, so one more second must have passed. A time in the future
        // comes from another machine's clock: then wait for the whole period.
        Some(released) => {
            context.cluster.now().duration_since(released) - jiff::SignedDuration::from_secs(1)
        }
        // Kubernetes before 1.29 records no time of the release.
        None => blocked_for(context, pv),
    };
    if passed >= quiet && !passed.is_negative() {
        return Ok(sees_pods);
    }
    let by = format!(
        "the kubelet's directory is not visible here, so {:?} must pass after the release",
        context.quiet_period
    );
    Err(Stop::InUse {
        by,
        notify: NotifyAfter::LongUse,
    })
}

/// How long the attempts of this cleanup have been blocked.
fn blocked_for(context: &CleanupContext, pv: &PvView) -> jiff::SignedDuration {
    let entry = context.table.get(&pv.tenancy());
    let blocked = entry.filter(|it| matches!(it.cleanup.state, CleanupState::Blocked { .. }));
    let lasted = blocked.map_or(Duration::ZERO, |it| it.lasted(&context.table));
    jiff::SignedDuration::try_from(lasted).unwrap_or_default()
}

async fn inspect_disk(
    context: &CleanupContext,
    order: &CleanOrder,
) -> Result<Box<dyn LockedVolume>, Stop> {
    if order.kind == VolumeMode::Block && order.method == Method::DeleteContents {
        return Err(no_cleaner_of_devices(order).into());
    }
    let config = context.state.borrow().settings.config.clone();
    let opened = with_timeout("the disk", context.host.open(order, &config)).await?;
    Ok(opened?)
}

fn failed(message: impl Into<String>) -> Stop {
    Stop::Failed(Failure::new(reasons::VOLUME_FAILED_DELETE, message))
}

/// The volume is a device, and the method of its class does not clean devices.
pub(super) fn no_cleaner_of_devices(order: &CleanOrder) -> Failure {
    let message = format!(
        "{} does not clean devices; correct the blockCleanerCommand of class {:?}",
        order.method, order.class.name
    );
    Failure::new(reasons::VOLUME_FAILED_DELETE, message)
}
