//! `watch`: a stream of JSON lines.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{body::Bytes, response::Response};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{Sender, channel},
    time::{Instant, sleep_until},
};

use super::{Call, Server, answer, read, relay, target::Target};
use crate::{
    faults::Faults,
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
    lines: Sender<io::Result<Bytes>>,
    /// Whether a table has been sent with its columns: once is enough.
    columns_sent: AtomicBool,
}

/// What a watch begins with.
struct Start {
    /// State to be sent as ADDED.
    initial: Option<Shelf>,
    /// Whether a bookmark says that the initial state is complete.
    mark_end: bool,
    /// The version after which events are sent.
    from: u64,
    subscription: Subscription,
}

/// The client is gone.
struct Closed;

pub(super) fn watch(
    server: &Server,
    faults: &Faults,
    target: &Target,
    call: &Call,
) -> Result<Response, Status> {
    let mut selectors = read::selectors(target, call)?;
    if !target.name.is_empty() {
        selectors = selectors.and_name(&target.name);
    }
    let timeout = call.query.number("timeoutSeconds")?.filter(|s| *s > 0);
    let deadline = Instant::now() + timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let start = match start(server, faults, target, call) {
        // Expired versions are an event, not an answer.
        Err(status) if status.code == 410 => return Ok(error_stream(&status)),
        other => other?,
    };
    let (lines, receiver) = channel(BUFFERED);
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let watch = Watch {
        view: read::view(target, call),
        selectors,
        namespace: target.list_namespace().map(str::to_owned),
        bookmarks: bookmarks.then_some(server.bookmarks),
        lines,
        columns_sent: AtomicBool::new(false),
    };
    tokio::spawn(async move {
        let _ = watch.run(start, deadline).await;
    });
    let body = relay::pass_on(answer::stream(receiver), call, target, faults);
    Ok(answer::bytes_of_json(200, body))
}

/// A watch whose version has expired, by an injected fault.
pub(super) fn expired() -> Response {
    error_stream(&Status::gone("too old resource version: injected fault"))
}

fn error_stream(status: &Status) -> Response {
    let mut line = json!({"type": "ERROR", "object": status.to_json()}).to_string();
    line.push('\n');
    answer::bytes_of_json(200, line)
}

fn start(server: &Server, faults: &Faults, target: &Target, call: &Call) -> Result<Start, Status> {
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
    let with_state = send_initial.unwrap_or(version == 0);
    if send_initial == Some(true) && version > server.store.revision() {
        // Answers as for any version of the future.
        server.store.watch(r, version)?;
    }
    // While watches are held back, a new one sees the past too.
    let held = faults.stream_of(r.plural).held_after;
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
    Ok(Start { initial, mark_end: send_initial == Some(true), from, subscription })
}

impl Watch {
    async fn run(&self, start: Start, deadline: Instant) -> Result<(), Closed> {
        let Start { initial, mark_end, from, subscription } = start;
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
                self.send("BOOKMARK", &self.view.bookmark(from, true)).await?;
            }
        }
        let Subscription { backlog, mut live, resource_version } = subscription;
        for event in &backlog {
            self.send_event(event).await?;
        }
        // Up to here the client knows everything.
        let mut version = resource_version;
        let every = self.bookmarks.unwrap_or(DEFAULT_TIMEOUT);
        let mut bookmark_at = Instant::now() + every;
        loop {
            tokio::select! {
                biased;
                () = self.lines.closed() => return Err(Closed),
                () = sleep_until(deadline) => break,
                event = live.recv() => {
                    let event = event.ok_or(Closed)?;
                    self.send_event(&event).await?;
                    version = event.resource_version;
                }
                () = sleep_until(bookmark_at) => {
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
        self.send("BOOKMARK", &self.view.bookmark(version, false)).await
    }

    /// Whether everything is sent as it is stored: no selector, no other view.
    fn is_whole(&self) -> bool {
        self.selectors.is_empty()
            && self.view.format == Format::Full
            && view::stored(self.view.resource) == self.view.resource
    }

    /// Sends of an event what this watch may show: what stops matching is DELETED, what begins to
    /// match is ADDED.
    async fn send_event(&self, event: &Written) -> Result<(), Closed> {
        let here = |object: &&Arc<Stored>| {
            let namespace = self.namespace.as_deref();
            namespace.is_none_or(|ns| ns == &*object.namespace)
        };
        let before = event.previous.as_ref().filter(here);
        let after = Some(&event.object).filter(|_| event.kind != EventKind::Deleted).filter(here);
        if let Some(object) = after.filter(|_| self.is_whole()) {
            let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
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
        if object["columnDefinitions"].is_array() && self.columns_sent.swap(true, Ordering::Relaxed)
        {
            without_columns = object.clone();
            without_columns["columnDefinitions"].take();
            object = &without_columns;
        }
        let mut line = serde_json::to_vec(&Line { r#type: kind, object }).map_err(|_| Closed)?;
        line.push(b'\n');
        self.lines.send(Ok(line.into())).await.map_err(|_| Closed)
    }
}
