//! The logs of provisioners: the last part of each.

use std::io;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;

use super::archive::Archive;
use super::objects::{Reader, container};
use crate::cluster::{ApiError, Cluster};
use crate::cmd::status::show::{list, text};

/// The last lines of a log, and the bytes of these from the first one.
const MAX_LINES: u32 = 20_000;
const MAX_BYTES: u32 = 10 << 20;
/// The first line of a log that was cut.
const CUT: &str = "(The log is longer: here are its last 20000 lines, and of these the first 10 MiB. --since selects newer ones.)\n";
/// The number of logs that are read at the same time.
const CONCURRENCY: usize = 4;

/// Adds the logs of these pods, and those of their containers before a restart.
pub(super) async fn add(
    reader: &mut Reader<'_>,
    own_pods: &[Value],
    since: Option<Duration>,
    archive: &mut Archive<'_>,
) -> io::Result<()> {
    let cluster = reader.cluster;
    let logs = own_pods.iter().flat_map(|pod| [(pod, false), (pod, true)]);
    let wanted = logs.filter(|(pod, previous)| !previous || is_restarted(pod));
    let mut logs = stream::iter(wanted)
        .map(|(pod, previous)| read(cluster, pod, previous, since))
        .buffered(CONCURRENCY);
    while let Some((file, log)) = logs.next().await {
        let Some(log) = reader.require(&file, log) else {
            continue;
        };
        if let Some(names) = &mut archive.names {
            names.learn(&log);
        }
        let is_cut = log.lines().count() >= MAX_LINES as usize || log.len() >= MAX_BYTES as usize;
        let note = if is_cut { CUT } else { "" };
        archive.add(&file, format!("{note}{log}").into())?;
    }
    Ok(())
}

/// The name of the file, and the log.
async fn read(
    cluster: &Cluster,
    pod: &Value,
    previous: bool,
    since: Option<Duration>,
) -> (String, Result<String, ApiError>) {
    let [namespace, name] = ["namespace", "name"].map(|key| text(&pod["metadata"], key));
    let params = LogParams {
        container: container(&pod["spec"]).map(|it| text(it, "name").to_owned()),
        since_seconds: since.and_then(|it| it.as_secs().max(1).try_into().ok()),
        tail_lines: Some(MAX_LINES.into()),
        limit_bytes: Some(MAX_BYTES.into()),
        previous,
        ..LogParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let log = cluster.limited("pods/log", "get", pods.logs(name, &params));
    let end = if previous { "previous.log" } else { "log" };
    (format!("logs/{namespace}_{name}.{end}"), log.await)
}

fn is_restarted(pod: &Value) -> bool {
    let container = container(&pod["spec"]).map(|it| &it["name"]);
    let mut statuses = list(&pod["status"], "containerStatuses");
    statuses.any(|it| Some(&it["name"]) == container && it["restartCount"].as_u64() > Some(0))
}
