//! From the command line to the request.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use super::{Outcome, ReleaseError, Request, Scope, run};
use crate::args::{Environment, Release};
use crate::cluster::Cluster;
use crate::cmd::run::{Misuse, client};
use crate::metrics::Metrics;

/// Does what the command line says.
///
/// # Errors
/// [`Misuse`] where it makes no sense; else as [`run`].
pub async fn command(
    args: Release,
    environment: Environment,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let unless_installed = args.unless_installed;
    let request = request(args, environment)?;
    let cluster = Cluster::new(client().await?, Arc::new(Metrics::new()?));
    match run(&cluster, &request, out).await {
        Ok(Outcome::AllReleased) => Ok(ExitCode::SUCCESS),
        Ok(Outcome::Installed) if unless_installed => Ok(ExitCode::SUCCESS),
        Ok(Outcome::SomeStay | Outcome::Installed) => Ok(ExitCode::FAILURE),
        Err(ReleaseError::Misuse(misuse)) => Err(misuse.into()),
        Err(error) => Err(error.into()),
    }
}

fn request(args: Release, environment: Environment) -> Result<Request, Misuse> {
    let known = (!environment.namespace_defaulted).then_some(environment.namespace);
    let namespace = args.namespace.or(known);
    let scope = match (args.node, args.daemonset, namespace) {
        (Some(node), _, _) => Scope::Node(node),
        (None, None, namespace) => Scope::All { namespace },
        (None, Some(daemon_set), Some(namespace)) => Scope::Installation {
            namespace,
            daemon_set,
        },
        (None, Some(_), None) => {
            return Err(Misuse("say where the DaemonSet is with --namespace".into()));
        }
    };
    Ok(Request {
        scope,
        abandon_uncleaned: args.abandon_uncleaned,
        dry_run: args.dry_run,
        timeout: args.timeout,
        absent_for: args.absent_for,
    })
}
