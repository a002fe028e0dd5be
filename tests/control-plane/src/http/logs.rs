//! The `log` subresource of pods: what their containers have written so far.

use axum::{
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use serde_json::Value;

use super::{Call, Server, target::Target};
use crate::{
    controllers::object::{items, text},
    meta,
    pods::log_file,
    status::Status,
};

/// What a container has written: nothing, if it did not run as a process.
pub(super) fn log(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let (namespace, name) = (&target.namespace, &target.name);
    let pod = server.store.get(target.resource, namespace, name)?;
    let container = container(&pod, call.query.get("container"))?;
    let status = items(&pod["status"]["containerStatuses"]).find(|s| s["name"] == container);
    let run = status.and_then(|status| status["restartCount"].as_u64());
    let logs = server.pod_logs.as_ref();
    let file = logs.map(|logs| log_file(logs, &pod, container, run.unwrap_or_default()));
    let tail = call.query.number::<usize>("tailLines")?;
    let written = file.and_then(|file| std::fs::read(file).ok());
    let written = last_lines(&written.unwrap_or_default(), tail.unwrap_or(usize::MAX));
    let kind = (CONTENT_TYPE, "text/plain; charset=utf-8");
    Ok(([kind], written).into_response())
}

fn container<'a>(pod: &'a Value, name: &str) -> Result<&'a str, Status> {
    let mut containers = items(&pod["spec"]["containers"]).map(|c| text(&c["name"]));
    let found = containers.find(|known| name.is_empty() || *known == name);
    found.ok_or_else(|| {
        let pod = meta::name(pod);
        Status::bad_request(format!("container {name} is not valid for pod {pod}"))
    })
}

/// The last lines of a text.
fn last_lines(text: &[u8], count: usize) -> Vec<u8> {
    let lines: Vec<_> = text.split_inclusive(|b| *b == b'\n').collect();
    lines[lines.len().saturating_sub(count)..].concat()
}
