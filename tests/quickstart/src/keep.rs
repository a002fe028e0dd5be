//! After the story: everything stays, to be looked at, until Ctrl-C.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::signal::unix::{SignalKind, signal};

use crate::ground::Ground;
use crate::voice::Voice;

/// How long the provisioner may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says how to look at it, and waits for Ctrl-C.
///
/// The kubeconfig is reached through `/proc`, below the root of our mount namespace, where nothing has
/// to be removed afterwards.
pub fn keep(ground: &mut Ground, voice: &mut Voice) -> Result<()> {
    // Listened to before anybody is told to press it.
    let mut interrupt = ground
        .cluster
        .block_on(async { signal(SignalKind::interrupt()) })?;
    let provisioner = ground
        .provisioner
        .as_mut()
        .context("the provisioner has not started")?;
    let address = provisioner.http_address()?;
    let pid = std::process::id();
    let scratch = ground.sandbox.path().display();
    let user = if ground.sandbox.in_user_namespace() {
        "--user --preserve-credentials "
    } else {
        ""
    };
    voice.step("It stays, until you press Ctrl-C")?;
    voice.say(&format!(
        "The cluster, from another terminal:\n\
         \x20 export KUBECONFIG=/proc/{pid}/root{scratch}/kubeconfig\n\
         \x20 kubectl get pv,pvc,pod\n\
         \x20 kubectl delete pod,pvc --all     # and see the volumes cleaned again\n\
         The mounts, which nobody else sees:\n\
         \x20 nsenter --target {pid} {user}--mount\n\
         The provisioner:\n\
         \x20 tail -f /proc/{pid}/root{scratch}/provisioner.log\n\
         \x20 curl http://{address}/status     # also /metrics, /ready, /healthz"
    ))?;
    ground.cluster.block_on(interrupt.recv());
    let status = provisioner.stop(PATIENCE)?;
    ensure!(status.success(), "the provisioner ended with {status}");
    voice.blank()?;
    voice.say("Stopped. Mounts, devices and files go with this process; nothing is left.")
}
