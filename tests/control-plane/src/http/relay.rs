//! A watch, passed on line by line: held back or cut as the faults say.

use std::{collections::VecDeque, io, pin::pin, sync::atomic::Ordering};

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};

use super::{Call, answer, target::Target};
use crate::faults::{Faults, Stream};

/// Lines that may wait for a slow client; the rest waits at the API server.
const BUFFERED: usize = 64;

/// One event, with what the faults have to know of it.
struct Line {
    text: Bytes,
    /// 0 for what has none, as errors.
    version: u64,
    is_bookmark: bool,
    /// Whether a hold has counted it.
    counted: bool,
}

#[derive(Default, Deserialize)]
struct Peek {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    object: Value,
}

impl Line {
    fn read(text: Bytes) -> Self {
        let Peek { r#type, object } = serde_json::from_slice(&text).unwrap_or_default();
        let version = object["metadata"]["resourceVersion"].as_str();
        Self {
            text,
            version: version.and_then(|v| v.parse().ok()).unwrap_or_default(),
            is_bookmark: r#type == "BOOKMARK",
            counted: false,
        }
    }

    /// The line as if nothing newer than `version` had happened.
    fn at_version(mut self, version: u64) -> Self {
        let mut line: Value = serde_json::from_slice(&self.text).unwrap_or_default();
        line["object"]["metadata"]["resourceVersion"] = json!(version.to_string());
        self.text = format!("{line}\n").into();
        self.version = version;
        self
    }

    fn is_held(&self, stream: &Stream) -> bool {
        stream.held_after.is_some_and(|held| self.version > held)
    }
}

/// The lines for a client, in order.
struct Relay {
    content: Body,
    /// How often watches had been cut when this one was asked for.
    cuts: u64,
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
    waiting: VecDeque<Line>,
}

/// Passes the content of a watch on.
pub(super) fn pass_on(content: Body, call: &Call, target: &Target, faults: &Faults) -> Body {
    let (lines, receiver) = channel(BUFFERED);
    let (faults, plural) = (faults.clone(), target.resource.plural);
    let relay = Relay { content, cuts: call.cuts, rest: Vec::new(), waiting: VecDeque::new() };
    tokio::spawn(async move {
        if let Err(error) = relay.run(&faults, plural, &lines).await {
            let _ = lines.send(Err(error)).await;
        }
    });
    answer::stream(receiver)
}

impl Relay {
    /// Ends when either side does; an error breaks the client's connection.
    async fn run(
        mut self,
        faults: &Faults,
        plural: &str,
        lines: &Sender<io::Result<Bytes>>,
    ) -> io::Result<()> {
        let streams = faults.streams();
        loop {
            let mut changed = pin!(streams.changed());
            changed.as_mut().enable();
            // Before every line, so that none is sent that came after a hold.
            let stream = streams.of(plural);
            if stream.cuts != self.cuts {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            if let Some(line) = self.next_line(&stream) {
                if lines.send(Ok(line.text)).await.is_err() {
                    return Ok(());
                }
                continue;
            }
            tokio::select! {
                biased;
                () = lines.closed() => return Ok(()),
                () = changed => {}
                frame = self.content.frame() => match frame {
                    Some(frame) => {
                        let frame = frame.map_err(io::Error::other)?;
                        self.take(&frame.into_data().unwrap_or_default(), &stream);
                    }
                    // The next watch begins before what is still held back, and gets it.
                    None => return Ok(()),
                },
            }
        }
    }

    /// The first line that may be sent. What is held does not hold up what is older: an initial
    /// state comes in the order of names.
    fn next_line(&mut self, stream: &Stream) -> Option<Line> {
        let held = self.waiting.iter_mut().filter(|line| line.is_held(stream));
        for line in held.filter(|line| !line.is_bookmark && !line.counted) {
            line.counted = true;
            stream.hits.fetch_add(1, Ordering::Relaxed);
        }
        let at = self.waiting.iter().position(|line| !line.is_held(stream))?;
        self.waiting.remove(at)
    }

    fn take(&mut self, bytes: &[u8], stream: &Stream) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let text: Vec<u8> = self.rest.drain(..=end).collect();
            let line = Line::read(text.into());
            self.waiting.push_back(match stream.held_after {
                // It tells of nothing but the version, and the client knows none that is newer.
                Some(held) if line.is_bookmark && line.version > held => line.at_version(held),
                _ => line,
            });
        }
    }
}
