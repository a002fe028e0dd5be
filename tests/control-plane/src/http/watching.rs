//! `watch`: a stream of JSON lines.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{Response, body::Bytes};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{Sender, channel},
    time::{Instant, sleep_until},
};

use super::{Call, Server, answer, body::Body, read, route::Target};
use crate::{
    faults::{Faults, Stream},
    selectors::Selectors,
    status::Status,
    store::{EventKind, Shelf, Stored, Subscription, Written},
    view::{self, Format, View},
};

/// How long a watch lives if the client does not say; the real server picks 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(45);
/// Lines that may wait for a slow client; the rest waits in the store's channel.
const BUFFERED: usize = 64;

/// Everything about one watch that does not change while it runs.
struct Watch {
    view: View,
    selectors: Selectors,
    namespace: Option<String>,
    bookmarks: Option<Duration>,
    /// How often watches had been cut when this one was asked for.
    cuts: u64,
    lines: Sender<io::Result<Bytes>>,
    reset: Arc<AtomicBool>,
    /// Whether a table has told its columns: once is enough.
    columns_told: AtomicBool,
}

/// What a watch begins with.
struct Start {
    /// State to be told as ADDED.
    initial: Option<Shelf>,
    /// Whether a bookmark says that the initial state is complete.
    mark_end: bool,
    /// The version after which events are told.
    from: u64,
    subscription: Subscription,
}

/// The client is gone, or the watch was cut.
struct Closed;

pub(super) fn watch(
    server: &Arc<Server>,
    reset: &Arc<AtomicBool>,
    target: &Target,
    call: &Call,
) -> Result<Response<Body>, Status> {
    let mut selectors = read::selectors(target, call)?;
    if !target.name.is_empty() {
        selectors = selectors.and_name(&target.name);
    }
    let timeout = call.query.number("timeoutSeconds")?.filter(|s| *s > 0);
    let deadline = Instant::now() + timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let start = match start(server, target, call) {
        // Expired versions are an event, not an answer.
        Err(status) if status.code == 410 => return Ok(error_stream(&status)),
        other => other?,
    };
    let (lines, receiver) = channel(BUFFERED);
    let watch = Watch {
        view: read::view(target, call),
        selectors,
        namespace: target.list_namespace().map(str::to_owned),
        bookmarks: call
            .query
            .flag("allowWatchBookmarks")
            .then_some(server.bookmarks),
        cuts: call.cuts,
        lines,
        reset: Arc::clone(reset),
        columns_told: AtomicBool::new(false),
    };
    let plural = target.resource.plural;
    let faults = server.faults.clone();
    tokio::spawn(async move {
        let _ = watch.run(start, &faults, plural, deadline).await;
    });
    Ok(answer::stream(Body::stream(receiver)))
}

/// A watch whose version has expired, by an injected fault.
pub(super) fn expired() -> Response<Body> {
    error_stream(&Status::gone("too old resource version: injected fault"))
}

fn error_stream(status: &Status) -> Response<Body> {
    let mut line = json!({"type": "ERROR", "object": status.to_json()}).to_string();
    line.push('\n');
    answer::stream(Body::whole(line.into_bytes()))
}

fn start(server: &Server, target: &Target, call: &Call) -> Result<Start, Status> {
    let r = view::stored(target.resource);
    let version = call.query.get("resourceVersion");
    let version: u64 = match version {
        "" => 0,
        // So says the real one: it does not take this for the client's fault.
        text => text.parse().map_err(|_| {
            let why = format!("resourceVersion: Invalid value: {text:?}: invalid syntax");
            Status::unexpected(why)
        })?,
    };
    let send_initial = match call.query.get("sendInitialEvents") {
        "" => None,
        text => Some(text == "true" || text == "1"),
    };
    let matching = call.query.get("resourceVersionMatch");
    let invalid = |why: &str| Err(Status::invalid_options("ListOptions", why));
    match (send_initial, matching) {
        (None, "") | (Some(_), "NotOlderThan") => {}
        (None, _) => {
            return invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch \
                 unless sendInitialEvents is provided",
            );
        }
        (Some(_), other) => {
            const WHY: &str = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
                               resourceVersionMatch to NotOlderThan";
            let supported = format!(
                "resourceVersionMatch: Unsupported value: {other:?}: supported values: \"NotOlderThan\""
            );
            return match other {
                "" => invalid(WHY),
                _ => invalid(&format!("[{WHY}, {supported}]")),
            };
        }
    }
    let with_state = send_initial.unwrap_or(version == 0);
    if send_initial == Some(true) && version > server.store.revision() {
        // Answers as for any version of the future.
        server.store.watch(r, version)?;
    }
    // While watches are held back, a new one sees the past too.
    let held = server
        .faults
        .streams()
        .borrow()
        .get(r.plural)
        .and_then(|s| s.held_after);
    let ns = target.list_namespace();
    let (initial, from) = if with_state {
        let now = held.and_then(|held| server.store.shelf_at(r, ns, held).ok());
        let listing = now.unwrap_or_else(|| server.store.shelf(r, ns));
        let from = listing.resource_version;
        (Some(listing), from)
    } else if version == 0 {
        (None, server.store.revision())
    } else {
        (None, version)
    };
    let subscription = server.store.watch(r, from)?;
    Ok(Start {
        initial,
        mark_end: send_initial == Some(true),
        from,
        subscription,
    })
}

impl Watch {
    async fn run(
        &self,
        start: Start,
        faults: &Faults,
        plural: &str,
        deadline: Instant,
    ) -> Result<(), Closed> {
        let Start {
            initial,
            mark_end,
            from,
            subscription,
        } = start;
        if let Some(initial) = initial {
            for stored in &initial.items {
                if self.is_whole() {
                    self.send_text("ADDED", stored.text()).await?;
                    continue;
                }
                let object = stored.value();
                if self.selectors.matches(&object) {
                    self.send("ADDED", &self.view.object(&object)).await?;
                }
            }
            if mark_end && self.bookmarks.is_some() {
                self.send("BOOKMARK", &self.view.bookmark(from, true))
                    .await?;
            }
        }
        let mut streams = faults.streams();
        let mut stream = current(&streams.borrow(), plural);
        let Subscription {
            backlog,
            mut live,
            resource_version,
        } = subscription;
        // Up to here the client knows everything.
        let mut version = if backlog.is_empty() {
            resource_version
        } else {
            from
        };
        let mut untold: VecDeque<_> = backlog.into_iter().map(|e| (e, Instant::now())).collect();
        let every = self.bookmarks.unwrap_or(DEFAULT_TIMEOUT);
        let mut bookmark_at = Instant::now() + every;
        loop {
            if streams.has_changed().map_err(|_| Closed)? {
                stream = current(&streams.borrow_and_update(), plural);
            }
            if stream.cuts != self.cuts {
                return self.cut().await;
            }
            if let Some((event, _)) = untold.pop_front_if(|(e, at)| is_due(e, *at, &stream)) {
                self.tell(&event).await?;
                version = event.resource_version;
                continue;
            }
            let due = untold
                .front()
                .and_then(|(event, at)| due(event, *at, &stream));
            tokio::select! {
                () = self.lines.closed() => return Err(Closed),
                () = sleep_until(deadline) => break,
                changed = streams.changed() => {
                    changed.map_err(|_| Closed)?;
                    streams.mark_changed();
                }
                () = sleep_until(due.unwrap_or(deadline)), if due.is_some() => {}
                event = live.recv() => untold.push_back((event.ok_or(Closed)?, Instant::now())),
                () = sleep_until(bookmark_at), if untold.is_empty() => {
                    self.bookmark(version).await?;
                    bookmark_at = Instant::now() + every;
                }
            }
        }
        self.bookmark(version).await
    }

    async fn bookmark(&self, version: u64) -> Result<(), Closed> {
        if self.bookmarks.is_none() {
            return Ok(());
        }
        self.send("BOOKMARK", &self.view.bookmark(version, false))
            .await
    }

    /// Whether everything is told as it is kept: no selector, no other view.
    fn is_whole(&self) -> bool {
        self.selectors.is_empty()
            && self.view.format == Format::Full
            && view::stored(self.view.resource) == self.view.resource
    }

    /// Tells of an event what this watch may know: what stops matching is DELETED, what begins to
    /// match is ADDED.
    async fn tell(&self, event: &Written) -> Result<(), Closed> {
        let here = |object: &&Arc<Stored>| {
            let namespace = self.namespace.as_deref();
            namespace.is_none_or(|ns| ns == &*object.namespace)
        };
        let before = event.previous.as_ref().filter(here);
        let after = Some(&event.object)
            .filter(|_| event.kind != EventKind::Deleted)
            .filter(here);
        if let Some(object) = after.filter(|_| self.is_whole()) {
            let kind = if before.is_some() {
                "MODIFIED"
            } else {
                "ADDED"
            };
            return self.send_text(kind, object.text()).await;
        }
        let matching = |stored: &Arc<Stored>| {
            let object = stored.value();
            self.selectors.matches(&object).then_some(object)
        };
        match (before.and_then(matching), after.and_then(matching)) {
            (None, None) => Ok(()),
            (None, Some(object)) => self.send("ADDED", &self.view.object(&object)).await,
            (Some(_), Some(object)) => self.send("MODIFIED", &self.view.object(&object)).await,
            (Some(last), None) => {
                // Its last state that matched, under the version of the change.
                let mut last = Arc::unwrap_or_clone(last);
                last["metadata"]["resourceVersion"] = json!(event.resource_version.to_string());
                self.send("DELETED", &self.view.object(&last)).await
            }
        }
    }

    async fn send_text(&self, kind: &str, object: &str) -> Result<(), Closed> {
        let line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
        self.lines.send(Ok(line.into())).await.map_err(|_| Closed)
    }

    async fn send(&self, kind: &str, object: &Value) -> Result<(), Closed> {
        #[derive(serde::Serialize)]
        struct Line<'a> {
            r#type: &'a str,
            object: &'a Value,
        }
        let mut without_columns;
        let mut object = object;
        if object["columnDefinitions"].is_array() && self.columns_told.swap(true, Ordering::Relaxed)
        {
            without_columns = object.clone();
            without_columns["columnDefinitions"].take();
            object = &without_columns;
        }
        let mut line = serde_json::to_vec(&Line {
            r#type: kind,
            object,
        })
        .map_err(|_| Closed)?;
        line.push(b'\n');
        self.lines.send(Ok(line.into())).await.map_err(|_| Closed)
    }

    /// Breaks the connection in the middle of the stream.
    async fn cut(&self) -> Result<(), Closed> {
        self.reset.store(true, Ordering::Relaxed);
        let _ = self
            .lines
            .send(Err(io::ErrorKind::ConnectionReset.into()))
            .await;
        Err(Closed)
    }
}

fn current(streams: &crate::faults::Streams, plural: &str) -> Stream {
    streams.get(plural).cloned().unwrap_or_default()
}

/// When an event that arrived `at` may be told; `None` while it is held back.
fn due(event: &Written, at: Instant, stream: &Stream) -> Option<Instant> {
    let held = stream
        .held_after
        .is_some_and(|version| event.resource_version > version);
    (!held).then(|| at + stream.delay)
}

fn is_due(event: &Written, at: Instant, stream: &Stream) -> bool {
    due(event, at, stream).is_some_and(|due| stream.delay.is_zero() || due <= Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::CONFIG_MAPS;

    /// Each event lags by itself: those before it do not add to its wait.
    #[test]
    fn when_an_event_may_be_told() {
        let minute = Duration::from_mins(1);
        let event = |version| Written {
            kind: EventKind::Added,
            resource: &CONFIG_MAPS,
            object: Arc::new(Stored::new(&json!({"metadata": {"name": "a"}}))),
            previous: None,
            resource_version: version,
        };
        let stream = |delay, held_after| Stream {
            held_after,
            delay,
            ..Stream::default()
        };
        let at = Instant::now();
        let later = at + Duration::from_secs(1);
        for (version, arrived, stream, expected) in [
            (1, at, stream(Duration::ZERO, None), Some(at)),
            (1, at, stream(minute, None), Some(at + minute)),
            (2, at, stream(minute, None), Some(at + minute)),
            (3, later, stream(minute, None), Some(later + minute)),
            (1, at, stream(minute, Some(1)), Some(at + minute)),
            (2, at, stream(minute, Some(1)), None),
        ] {
            assert_eq!(
                due(&event(version), arrived, &stream),
                expected,
                "{stream:?}"
            );
        }
    }
}
