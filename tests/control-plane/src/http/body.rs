//! The body of an answer: all at once, or a stream; either counts what it sends.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

pub(crate) struct Body {
    content: Content,
    sent: Arc<AtomicU64>,
}

enum Content {
    Whole(Option<Bytes>),
    /// An error in the stream breaks the connection.
    Stream(Receiver<io::Result<Bytes>>),
}

impl Body {
    pub(super) fn whole(bytes: Vec<u8>) -> Self {
        Self {
            content: Content::Whole(Some(bytes.into())),
            sent: Arc::default(),
        }
    }

    pub(super) fn stream(receiver: Receiver<io::Result<Bytes>>) -> Self {
        Self {
            content: Content::Stream(receiver),
            sent: Arc::default(),
        }
    }

    pub(super) fn count_into(&mut self, counter: Arc<AtomicU64>) {
        self.sent = counter;
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match &mut self.content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Content::Stream(receiver) => receiver.poll_recv(context),
        };
        next.map(|chunk| {
            chunk.map(|bytes| {
                let bytes = bytes?;
                self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                Ok(Frame::data(bytes))
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Content::Stream(_) => SizeHint::default(),
        }
    }
}
