//! A watch, told on line by line: held back, delayed or cut as the faults say.

use std::{collections::VecDeque, io, time::Duration};

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{Sender, channel},
    time::{Instant, sleep_until},
};

use super::{Call, answer, target::Target};
use crate::faults::{Faults, Stream};

/// Lines that may wait for a slow client; the rest waits at the API server.
const BUFFERED: usize = 64;
/// Marks the bookmark after the initial state (`meta.k8s.io`).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
const A_LONG_TIME: Duration = Duration::from_hours(1);

/// One event, with what the faults have to know of it.
struct Line {
    text: Bytes,
    /// 0 for what has none, as errors.
    version: u64,
    arrived: Instant,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Event,
    Bookmark,
    InitialEventsEnd,
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
        let metadata = &object["metadata"];
        let version = metadata["resourceVersion"].as_str().map(str::parse);
        let kind = match r#type.as_str() {
            "BOOKMARK" if metadata["annotations"][INITIAL_EVENTS_END] == "true" => {
                Kind::InitialEventsEnd
            }
            "BOOKMARK" => Kind::Bookmark,
            _ => Kind::Event,
        };
        Self {
            text,
            version: version.and_then(Result::ok).unwrap_or_default(),
            arrived: Instant::now(),
            kind,
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

    /// When it may be told; `None` while it is held back.
    fn due(&self, stream: &Stream) -> Option<Instant> {
        let held = stream.held_after.is_some_and(|held| self.version > held);
        (!held).then(|| self.arrived + stream.delay)
    }
}

/// What a client has to hear, in order.
struct Relay {
    content: Body,
    /// How often watches had been cut when this one was asked for.
    cuts: u64,
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
    untold: VecDeque<Line>,
    /// The client is still being told what is there, which no delay concerns.
    initial: bool,
}

/// Tells the content of a watch on.
pub(super) fn tell(content: Body, call: &Call, target: &Target, faults: &Faults) -> Body {
    let (lines, receiver) = channel(BUFFERED);
    let (faults, plural) = (faults.clone(), target.resource.plural);
    let relay = Relay {
        content,
        cuts: call.cuts,
        rest: Vec::new(),
        untold: VecDeque::new(),
        // A bookmark ends it.
        initial: call.query.get("sendInitialEvents") == "true",
    };
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
        let mut streams = faults.streams();
        loop {
            // Before every line, so that none is told that came after a hold.
            let stream = streams.borrow_and_update().get(plural).cloned();
            let stream = stream.unwrap_or_default();
            if stream.cuts != self.cuts {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let now = Instant::now();
            if let Some(line) = self.next_due(&stream, now) {
                if lines.send(Ok(line.text)).await.is_err() {
                    return Ok(());
                }
                continue;
            }
            let due = self.untold.iter().find_map(|line| line.due(&stream));
            tokio::select! {
                () = lines.closed() => return Ok(()),
                changed = streams.changed() => changed.map_err(io::Error::other)?,
                () = sleep_until(due.unwrap_or(now + A_LONG_TIME)) => {}
                frame = self.content.frame() => match frame {
                    Some(frame) => {
                        let frame = frame.map_err(io::Error::other)?;
                        self.take(&frame.into_data().unwrap_or_default(), &stream);
                    }
                    // What is still held back is told to the next watch, which begins before it.
                    None => return Ok(()),
                },
            }
        }
    }

    /// The first line that may be told. What is held does not hold up what is older: an initial
    /// state comes in the order of names.
    fn next_due(&mut self, stream: &Stream, now: Instant) -> Option<Line> {
        let is_due = |line: &Line| line.due(stream).is_some_and(|due| due <= now);
        let at = self.untold.iter().position(is_due)?;
        self.untold.remove(at)
    }

    fn take(&mut self, bytes: &[u8], stream: &Stream) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let text: Vec<u8> = self.rest.drain(..=end).collect();
            let mut line = Line::read(text.into());
            if self.initial {
                line.arrived -= stream.delay;
            }
            self.initial &= line.kind != Kind::InitialEventsEnd;
            self.untold.push_back(match stream.held_after {
                // It tells of nothing but the version, and the client knows none that is newer.
                Some(held) if line.kind != Kind::Event && line.version > held => {
                    line.at_version(held)
                }
                _ => line,
            });
        }
    }
}
