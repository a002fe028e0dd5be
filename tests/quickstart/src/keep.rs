//! After the story: everything stays, for inspection, until Ctrl-C.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::signal::unix::{SignalKind, signal};

use crate::fixture::Fixture;
use crate::printer::Printer;

/// How long the provisioner may take to end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Prints how to inspect it, and waits for Ctrl-C.
///
/// The kubeconfig is reached through `/proc`, below the root of our mount namespace, where nothing has
/// to be removed afterwards.
pub fn keep(fixture: &mut Fixture, printer: &mut Printer) -> Result<()> {
    // The handler is installed before the text asks for the key.
    let mut interrupt = fixture.cluster.block_on(async { signal(SignalKind::interrupt()) })?;
    let provisioner = fixture.provisioner.as_mut().context("the provisioner has not started")?;
    let address = provisioner.http_address()?;
    let pid = std::process::id();
    let scratch = fixture.sandbox.path().display();
    let user =
        if fixture.sandbox.in_user_namespace() { "--user --preserve-credentials " } else { "" };
    printer.step("It stays, until you press Ctrl-C")?;
    printer.say(&format!(
        "The cluster, from another terminal:\n\
         \x20 export KUBECONFIG=/proc/{pid}/root{scratch}/kubeconfig\n\
         \x20 kubectl get pv,pvc,pod\n\
         \x20 kubectl delete pod,pvc --all     # and see the volumes cleaned again\n\
         The mounts, which no other process sees:\n\
         \x20 nsenter --target {pid} {user}--mount\n\
         The provisioner:\n\
         \x20 tail -f /proc/{pid}/root{scratch}/provisioner.log\n\
         \x20 curl http://{address}/status     # also /metrics, /ready, /healthz"
    ))?;
    fixture.cluster.block_on(interrupt.recv());
    let status = provisioner.stop(TIMEOUT)?;
    ensure!(status.success(), "the provisioner ended with {status}");
    printer.blank()?;
    printer.say("Stopped. Mounts, devices and files go with this process; nothing is left.")
}
