//! `check`: whether the installation works, one line for each check, with the remedy. It changes nothing.

mod daemon_sets;
mod findings;
mod fleet;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::ListParams;

use super::api_server::cluster;
use super::fleet::ask_all;
use crate::args::Check;
use crate::cluster::Cluster;
use crate::errors::chain;
use findings::Findings;
pub(super) use findings::counted;

/// Checks the installation. The exit code is 1 if a check fails.
///
/// # Errors
/// When the API server cannot be reached, or the output cannot be written.
pub async fn command(request: &Check, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let cluster = cluster(&request.provisioners.api_server).await?;
    let namespace = request.provisioners.namespace.as_deref();
    let findings = findings(&cluster, namespace).await?;
    let text = findings.text(io::stdout().is_terminal());
    out.write_all(text.as_bytes())
        .context("writing the result")?;
    Ok(ExitCode::from(u8::from(findings.failed() > 0)))
}

/// The results of all checks.
///
/// # Errors
/// When the API server does not answer.
pub(super) async fn findings(cluster: &Cluster, namespace: Option<&str>) -> Result<Findings> {
    let mut findings = Findings::default();
    let version = cluster.client.apiserver_version().await;
    let version = version.context("asking the API server for its version")?;
    findings.good(format!("the API server answers: {}", version.git_version));

    match daemon_sets::read(cluster, namespace).await {
        Ok(found) => daemon_sets::check(cluster, &found, &mut findings).await,
        Err(error) => findings.bad(&chain(&error), "allow list on daemonsets (docs/status.md)"),
    }
    match ask_all(cluster, namespace, None).await {
        Ok(answers) => {
            let api: Api<StorageClass> = Api::all(cluster.client.clone());
            let classes = cluster.list_pages("storageclasses", api, ListParams::default(), Some);
            let classes = classes.await;
            if let Err(error) = &classes {
                findings.bad(
                    &chain(error),
                    "allow list on storageclasses (docs/status.md)",
                );
            }
            fleet::check(&answers, classes.ok().as_deref(), &mut findings);
        }
        Err(error) => findings.bad(&chain(error.as_ref()), "see docs/why-no-pv.md"),
    }
    Ok(findings)
}
