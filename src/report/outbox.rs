//! The events on their way.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::Event;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::writer::{Failure, Writer};
use super::{BACKLOG, Message};
use crate::metrics::Metrics;

/// For how long an event is tried again: an API server that is replaced is back by then.
const PATIENCE: Duration = Duration::from_mins(5);
/// The first pause before that and the longest; each is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Writes one event after the other. What fails is tried again later, rather twice than not at all, and
/// keeps no other waiting: some are refused for their namespaces only.
pub(super) struct Outbox {
    writer: Writer,
    later: Vec<Waiting>,
    metrics: Arc<Metrics>,
}

/// An event that was not written so far.
struct Waiting {
    event: Box<(Event, ObjectReference)>,
    since: Instant,
    pause: Duration,
    due: Instant,
}

impl Outbox {
    pub(super) fn new(writer: Writer, metrics: Arc<Metrics>) -> Self {
        Self {
            writer,
            later: Vec::new(),
            metrics,
        }
    }

    /// Runs until nobody can send any more.
    pub(super) async fn serve(mut self, mut receive: mpsc::Receiver<Message>) {
        loop {
            let next = self.later.iter().map(|waiting| waiting.due).min();
            let due = async {
                match next {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => self.try_again(Instant::now()).await,
                message = receive.recv() => match message {
                    None => return,
                    Some(Message::Event(event)) => {
                        let now = Instant::now();
                        let pause = PAUSES.0;
                        self.attempt(Waiting { event, since: now, pause, due: now }).await;
                    }
                    Some(Message::Flush(done)) => {
                        let all = self.later.iter().map(|waiting| waiting.due).max();
                        self.try_again(all.unwrap_or_else(Instant::now)).await;
                        let _ = done.send(());
                    }
                },
            }
        }
    }

    /// Tries what is due by then.
    async fn try_again(&mut self, by: Instant) {
        let due: Vec<_> = self
            .later
            .extract_if(.., |waiting| waiting.due <= by)
            .collect();
        for waiting in due {
            self.attempt(waiting).await;
        }
    }

    async fn attempt(&mut self, mut waiting: Waiting) {
        let (event, about) = &*waiting.event;
        let Err(failure) = self.writer.write(event, about).await else {
            return;
        };
        let is_over = waiting.since.elapsed() >= PATIENCE || self.later.len() >= BACKLOG;
        if failure == Failure::Lasting || is_over {
            self.metrics.events_failed_total.inc();
            return;
        }
        waiting.due = Instant::now() + waiting.pause;
        waiting.pause = (waiting.pause * 2).min(PAUSES.1);
        self.later.push(waiting);
    }
}
