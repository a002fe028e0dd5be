//! `check`: whether the installation works, or with `--pre` whether manifests can be installed. One line for each check,
//! with the remedy. It changes nothing.

mod daemon_sets;
mod findings;
mod fleet;
mod pre;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Api;
use kube::api::ListParams;

use super::api_server::cluster;
use super::fleet::ask_all;
use super::manifests::Manifests;
use crate::args::Check;
use crate::cluster::Cluster;
use crate::errors::chain;
use findings::Findings;
pub(super) use findings::counted;

/// The oldest supported version of Kubernetes (docs/versions.md).
const OLDEST_KUBERNETES: (u32, u32) = (1, 25);

/// Checks the installation, or manifests. The exit code is 1 if a check fails.
///
/// # Errors
/// When the API server cannot be reached, the manifests cannot be read, or the output cannot be written.
pub async fn command(request: &Check, out: &mut (dyn Write + Send)) -> Result<ExitCode> {
    let manifests = request.pre.then(|| Manifests::read(&request.filename)).transpose()?;
    let cluster = cluster(&request.provisioners.api_server).await?;
    let namespace = request.provisioners.namespace.as_deref();
    let findings = match manifests {
        Some(manifests) => {
            let mut findings = answers(&cluster).await?;
            let namespace = namespace.unwrap_or(cluster.client.default_namespace());
            pre::check(&cluster, namespace, &manifests, &mut findings).await;
            findings
        }
        None => installed(&cluster, namespace).await?,
    };
    let text = findings.text(io::stdout().is_terminal());
    out.write_all(text.as_bytes()).context("writing the result")?;
    Ok(ExitCode::from(u8::from(findings.failed() > 0)))
}

/// Whether the API server answers, and has a supported version.
async fn answers(cluster: &Cluster) -> Result<Findings> {
    let mut findings = Findings::default();
    let answer = cluster.client.apiserver_version().await;
    version(&answer.context("asking the API server for its version")?, &mut findings);
    Ok(findings)
}

fn version(info: &Info, findings: &mut Findings) {
    // Some API servers add a sign: 25+.
    let number = |text: &str| text.trim_end_matches('+').parse().unwrap_or_default();
    findings.good(format!("the API server answers: {}", info.git_version));
    if (number(&info.major), number(&info.minor)) < OLDEST_KUBERNETES {
        let (major, minor) = OLDEST_KUBERNETES;
        findings.bad(
            &format!("Kubernetes {} is not supported", info.git_version),
            &format!("upgrade it to {major}.{minor} or later (docs/versions.md)"),
        );
    }
}

/// The results of all checks of the installation.
///
/// # Errors
/// When the API server does not answer.
pub(super) async fn installed(cluster: &Cluster, namespace: Option<&str>) -> Result<Findings> {
    let mut findings = answers(cluster).await?;
    let found = daemon_sets::read(cluster, namespace).await;
    if let Some(found) = findings.require(found, "list on daemonsets (docs/status.md)") {
        daemon_sets::check(cluster, &found, &mut findings).await;
    }
    match ask_all(cluster, namespace, None).await {
        Ok(answers) => {
            let classes = storage_classes(cluster, &mut findings).await;
            fleet::check(&answers, classes.as_deref(), &mut findings);
        }
        Err(error) => findings.bad(&chain(error.as_ref()), "see docs/why-no-pv.md"),
    }
    Ok(findings)
}

/// The StorageClasses of the cluster, or a failed check.
async fn storage_classes(cluster: &Cluster, findings: &mut Findings) -> Option<Vec<StorageClass>> {
    let api: Api<StorageClass> = Api::all(cluster.client.clone());
    let classes = cluster.list_pages("storageclasses", api, ListParams::default(), Some);
    findings.require(classes.await, "list on storageclasses (docs/status.md)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_supported_kubernetes_is_that_of_the_documentation_and_of_the_chart() {
        let (major, minor) = OLDEST_KUBERNETES;
        let page = include_str!("../../docs/versions.md");
        assert!(page.contains(&format!("| before {major}.{minor} | Not supported")));
        let chart = include_str!("../../helm/local-volume-provisioner/Chart.yaml");
        assert!(chart.contains(&format!("kubeVersion: \">= {major}.{minor}.0-0\"")));
    }

    #[test]
    fn old_kubernetes_is_a_problem() {
        for (minor, failed) in [("24", 1), ("24+", 1), ("25", 0), ("25+", 0), ("37", 0)] {
            let info = Info { major: "1".into(), minor: minor.into(), ..Info::default() };
            let mut findings = Findings::default();
            version(&info, &mut findings);
            assert_eq!(findings.failed(), failed, "{minor}");
        }
    }
}
