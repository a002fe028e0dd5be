//! The logs of provisioners: the last part of each.

use std::io;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;

use super::archive::Archive;
use super::objects::container;
use crate::cluster::{ApiError, Cluster};
use crate::cmd::status::show::{list, text};
use crate::errors::chain;

/// The last lines of a log, and the bytes of these from the first one.
const MAX_LINES: u32 = 20_000;
const MAX_BYTES: u32 = 10 << 20;
/// The first line of a log that was cut.
const CUT: &str = "(The log is longer: here are its last 20000 lines, and of these the first 10 MiB. --since selects newer ones.)\n";
/// The number of logs that are read at the same time.
const CONCURRENCY: usize = 4;

/// Adds the logs of these pods, and those of their containers before a restart.
pub(super) async fn add(
    cluster: &Cluster,
    own_pods: &[Value],
    since: Option<Duration>,
    archive: &mut Archive<'_>,
) -> io::Result<()> {
    let mut wanted = Vec::new();
    for pod in own_pods {
        let [namespace, name] = ["namespace", "name"].map(|key| text(&pod["metadata"], key));
        let container = container(&pod["spec"]).map_or("", |it| text(it, "name"));
        let mut statuses = list(&pod["status"], "containerStatuses");
        let is_restarted = statuses
            .any(|it| text(it, "name") == container && it["restartCount"].as_u64() > Some(0));
        let params = LogParams {
            container: Some(container.to_owned()),
            since_seconds: since.and_then(|it| it.as_secs().max(1).try_into().ok()),
            tail_lines: Some(MAX_LINES.into()),
            limit_bytes: Some(MAX_BYTES.into()),
            ..LogParams::default()
        };
        let mut previous = params.clone();
        previous.previous = true;
        let file = format!("logs/{namespace}_{name}");
        wanted.push((format!("{file}.log"), namespace, name, params));
        if is_restarted {
            wanted.push((format!("{file}.previous.log"), namespace, name, previous));
        }
    }
    let mut logs = stream::iter(wanted)
        .map(|(file, namespace, name, params)| async move {
            let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
            let log = cluster.limited("pods/log", "get", pods.logs(name, &params));
            (file, log.await)
        })
        .buffered(CONCURRENCY);
    while let Some((file, log)) = logs.next().await {
        let log = match log {
            Ok(log) => log,
            // The container has not started, or the previous log is deleted.
            Err(ApiError::Bug(why)) => {
                archive.failed(&file, &why);
                continue;
            }
            Err(error) => {
                archive.failed(&file, &chain(&error));
                continue;
            }
        };
        if let Some(names) = &mut archive.names {
            names.learn(&log);
        }
        let is_cut = log.lines().count() >= MAX_LINES as usize || log.len() >= MAX_BYTES as usize;
        let note = if is_cut { CUT } else { "" };
        archive.text(&file, &format!("{note}{log}"))?;
    }
    Ok(())
}
