//! The `log` subresource of pods: what their containers have written.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{
    body::Bytes,
    http::header::{CONTENT_TYPE, HeaderName},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use tokio::sync::mpsc::{Sender, channel};

use super::{Call, Server, answer, target::Target};
use crate::{
    controllers::object::{items, text},
    meta,
    pods::log_file,
    resource::PODS,
    status::Status,
    store::Store,
};

const TEXT: (HeaderName, &str) = (CONTENT_TYPE, "text/plain; charset=utf-8");
/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What a container has written: nothing, if it did not run as a process.
pub(super) fn log(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let (namespace, name) = (&target.namespace, &target.name);
    let pod = server.store.get(target.resource, namespace, name)?;
    let container = container(&pod, call.query.get("container"))?;
    let run = runs_so_far(&pod, container);
    let logs = server.pod_logs.as_ref();
    let file = logs.map(|logs| log_file(logs, &pod, container, run));
    let tail = call.query.number::<usize>("tailLines")?;
    match file {
        Some(file) if call.query.flag("follow") => {
            let followed = Followed {
                store: server.store.clone(),
                pod: Value::clone(&pod),
                container: container.to_owned(),
                run,
                file,
            };
            let (lines, receiver) = channel(16);
            tokio::spawn(followed.send(lines, tail));
            Ok(([TEXT], answer::stream(receiver)).into_response())
        }
        file => {
            let written = file.and_then(|file| std::fs::read(file).ok());
            let written = last_lines(written.unwrap_or_default(), tail);
            Ok(([TEXT], written).into_response())
        }
    }
}

fn container<'a>(pod: &'a Value, name: &str) -> Result<&'a str, Status> {
    let mut containers = items(&pod["spec"]["containers"]).map(|c| text(&c["name"]));
    let found = containers.find(|known| name.is_empty() || *known == name);
    found.ok_or_else(|| {
        let pod = meta::name(pod);
        Status::bad_request(format!("container {name} is not valid for pod {pod}"))
    })
}

/// Which run of the container it is about, counted from 0.
fn runs_so_far(pod: &Value, container: &str) -> u64 {
    let restarts = status(pod, container)["restartCount"].as_u64();
    restarts.unwrap_or_default()
}

fn status<'a>(pod: &'a Value, container: &str) -> &'a Value {
    let mut statuses = items(&pod["status"]["containerStatuses"]);
    let found = statuses.find(|status| status["name"] == container);
    found.unwrap_or(&Value::Null)
}

/// The last `lines` of a text, all without a number.
fn last_lines(text: Vec<u8>, lines: Option<usize>) -> Vec<u8> {
    let Some(lines) = lines else {
        return text;
    };
    let end = text.strip_suffix(b"\n").unwrap_or(&text).len();
    let mut breaks = text[..end]
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, b)| **b == b'\n');
    let begin = match lines {
        0 => text.len(),
        lines => breaks.nth(lines - 1).map_or(0, |(at, _)| at + 1),
    };
    text[begin..].to_vec()
}

/// A log that is read until its container has ended.
struct Followed {
    store: Store,
    pod: Value,
    container: String,
    run: u64,
    file: PathBuf,
}

impl Followed {
    async fn send(self, lines: Sender<io::Result<Bytes>>, mut tail: Option<usize>) {
        let mut position = 0;
        loop {
            // Before reading, so that nothing is missed of what it wrote last.
            let over = self.is_over();
            let written = read_from(&self.file, position).unwrap_or_default();
            position += written.len() as u64;
            let written = last_lines(written, tail.take());
            if !written.is_empty() && lines.send(Ok(written.into())).await.is_err() {
                return;
            }
            if over {
                return;
            }
            tokio::select! {
                () = lines.closed() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        let [namespace, name] = [meta::namespace(&self.pod), meta::name(&self.pod)];
        let Ok(now) = self.store.get(&PODS, namespace, name) else {
            return true;
        };
        let status = status(&now, &self.container);
        meta::uid(&now) != meta::uid(&self.pod)
            || runs_so_far(&now, &self.container) != self.run
            || !status["state"]["terminated"].is_null()
    }
}

fn read_from(file: &Path, position: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(position))?;
    let mut written = Vec::new();
    file.read_to_end(&mut written)?;
    Ok(written)
}
