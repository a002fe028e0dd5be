//! The `log` subresource of pods: what their containers have written.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use hyper::{Response, body::Bytes};
use serde_json::Value;
use tokio::sync::mpsc::{Sender, channel};

use super::{Call, Server, answer, body::Body, route::Target};
use crate::{
    controllers::object::{items, text},
    meta,
    pods::log_file,
    resource::PODS,
    status::Status,
    store::Store,
};

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What a container has written: nothing, if it did not run as a process.
pub(super) fn log(server: &Server, target: &Target, call: &Call) -> Result<Response<Body>, Status> {
    for parameter in ["timestamps", "sinceSeconds", "sinceTime"] {
        if !matches!(call.query.get(parameter), "" | "false") {
            return Err(Status::bad_request(format!(
                "{parameter}: when a line was written is not kept here"
            )));
        }
    }
    let pod = server
        .store
        .get(target.resource, &target.namespace, &target.name)?;
    let container = container(&pod, call.query.get("container"))?;
    let run = run(&pod, container, call.query.flag("previous"))?;
    let file = server
        .pod_logs
        .as_ref()
        .map(|logs| log_file(logs, &pod, container, run));
    let tail = call.query.number::<usize>("tailLines")?;
    let limit = call.query.number::<usize>("limitBytes")?;
    match file {
        Some(file) if call.query.flag("follow") => {
            let followed = Followed {
                store: server.store.clone(),
                pod: Value::clone(&pod),
                container: container.to_owned(),
                run,
                file,
            };
            Ok(answer::text_stream(followed.stream(tail)))
        }
        file => {
            let written = file.and_then(|file| std::fs::read(file).ok());
            let mut written = last_lines(written.unwrap_or_default(), tail);
            written.truncate(limit.unwrap_or(usize::MAX));
            Ok(answer::text(&String::from_utf8_lossy(&written)))
        }
    }
}

fn container<'a>(pod: &'a Value, name: &str) -> Result<&'a str, Status> {
    let containers: Vec<_> = items(&pod["spec"]["containers"])
        .map(|container| text(&container["name"]))
        .collect();
    match (name, containers.as_slice()) {
        ("", [only]) => Ok(only),
        ("", several) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            meta::name(pod),
            several.join(" ")
        ))),
        (name, all) => all
            .iter()
            .find(|known| **known == name)
            .copied()
            .ok_or_else(|| {
                let pod = meta::name(pod);
                Status::bad_request(format!("container {name} is not valid for pod {pod}"))
            }),
    }
}

/// Which run of the container it is about, counted from 0.
fn run(pod: &Value, container: &str, previous: bool) -> Result<u64, Status> {
    let restarts = status(pod, container)["restartCount"].as_u64();
    let restarts = restarts.unwrap_or_default();
    if !previous {
        return Ok(restarts);
    }
    restarts.checked_sub(1).ok_or_else(|| {
        let pod = meta::name(pod);
        Status::bad_request(format!(
            "previous terminated container {container:?} in pod {pod:?} not found"
        ))
    })
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
    fn stream(self, tail: Option<usize>) -> Body {
        let (lines, receiver) = channel(16);
        tokio::spawn(async move { self.send(lines, tail).await });
        Body::stream(receiver)
    }

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
            || status["restartCount"].as_u64().unwrap_or_default() != self.run
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines() {
        for (text, lines, expected) in [
            ("a\nb\nc\n", None, "a\nb\nc\n"),
            ("a\nb\nc\n", Some(0), ""),
            ("a\nb\nc\n", Some(1), "c\n"),
            ("a\nb\nc\n", Some(2), "b\nc\n"),
            ("a\nb\nc\n", Some(9), "a\nb\nc\n"),
            ("a\nb\nc", Some(1), "c"),
            ("", Some(1), ""),
            ("\n", Some(1), "\n"),
        ] {
            let kept = last_lines(text.into(), lines);
            assert_eq!(kept, expected.as_bytes(), "{text:?} {lines:?}");
        }
    }
}
