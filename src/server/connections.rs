//! The connections of an HTTP server: few, and none that stands still within a request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use futures::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep};

/// More than probes, scrapes and operators use. Each costs a descriptor, which cleaning needs too.
pub const MOST: usize = 64;
/// How long a request may take to arrive, and a response to be received.
const PATIENCE: Duration = Duration::from_secs(5);

/// Accepts connections. For one too many, the oldest idle one is closed, or else the oldest, so that a probe finds a place.
#[derive(Debug)]
pub struct Connections {
    listener: TcpListener,
    open: VecDeque<Place>,
}

#[derive(Debug)]
struct Place {
    keep: oneshot::Sender<Infallible>,
    is_busy: Arc<AtomicBool>,
}

impl Connections {
    /// The connections that a listener accepts.
    pub fn of(listener: TcpListener) -> Self {
        let open = VecDeque::new();
        Self { listener, open }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Those that were accepted before are served first.
        yield_now().await;
        let (stream, from) = Listener::accept(&mut self.listener).await;
        self.open.retain(|it| !it.keep.is_closed());
        if self.open.len() >= MOST {
            let is_idle = |it: &Place| !it.is_busy.load(Ordering::Relaxed);
            let oldest = self.open.iter().position(is_idle).unwrap_or(0);
            self.open.remove(oldest);
        }
        let (keep, kept) = oneshot::channel();
        // Until it has answered once.
        let is_busy = Arc::new(AtomicBool::new(true));
        self.open.push_back(Place { keep, is_busy: Arc::clone(&is_busy) });
        let connection = Connection {
            stream,
            kept,
            is_busy,
            is_evicted: false,
            deadline: None,
            has_written: false,
        };
        (connection, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails when its place is taken, or when a request or a response stands still.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    kept: oneshot::Receiver<Infallible>,
    is_busy: Arc<AtomicBool>,
    is_evicted: bool,
    /// For the rest of the request that has begun, or for the next bytes of its response.
    deadline: Option<Pin<Box<Sleep>>>,
    has_written: bool,
}

impl Connection {
    /// Whether it has to end; otherwise wakes the task when it has to.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_evicted = self.is_evicted || self.kept.poll_unpin(cx).is_ready();
        if self.is_evicted {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let deadline = self.deadline.as_mut();
        if deadline.is_some_and(|at| at.poll_unpin(cx).is_ready()) {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        if into.filled().len() > before && self.deadline.is_none() {
            self.deadline = Some(Box::pin(sleep(PATIENCE)));
            self.is_busy.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.deadline = Some(Box::pin(sleep(PATIENCE)));
        self.has_written = true;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The whole response is with the kernel.
        if std::mem::take(&mut self.has_written) {
            self.deadline = None;
            self.is_busy.store(false, Ordering::Relaxed);
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Longer than what the kernel buffers.
    const LENGTH: usize = 64 << 20;

    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let routes = Router::new()
            .route("/", get(async || "ok"))
            .route("/long", get(async || "x".repeat(LENGTH)));
        tokio::spawn(async { axum::serve(Connections::of(listener), routes).await });
        at
    }

    async fn sent(at: SocketAddr, text: &str) -> TcpStream {
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(text.as_bytes()).await.unwrap();
        client
    }

    async fn answer(client: &mut TcpStream) -> io::Result<usize> {
        client.read(&mut [0; 1024]).await
    }

    #[tokio::test]
    async fn the_oldest_connection_gives_its_place() {
        let at = server().await;
        let mut clients = Vec::new();
        for _ in 0..=MOST {
            let mut client = sent(at, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert!(answer(&mut client).await.unwrap() > 0);
            clients.push(client);
        }
        let [first, second, ..] = &mut clients[..] else { unreachable!() };
        assert!(matches!(answer(first).await, Ok(0) | Err(_)));
        second.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(answer(second).await.unwrap() > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_stands_still_ends_and_an_idle_connection_does_not() {
        let at = server().await;
        let mut idle = sent(at, "").await;
        let mut half = sent(at, "GET / HTTP/1.1\r\nHo").await;
        assert!(matches!(answer(&mut half).await, Ok(0) | Err(_)));
        for _ in 0..2 {
            sleep(10 * PATIENCE).await;
            idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            assert!(answer(&mut idle).await.unwrap() > 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_is_not_received_ends() {
        let at = server().await;
        let mut client = sent(at, "GET /long HTTP/1.1\r\nHost: a\r\n\r\n").await;
        // Until the first bytes are there, the server has not begun.
        assert!(answer(&mut client).await.unwrap() > 0);
        sleep(2 * PATIENCE).await;
        let mut rest = Vec::new();
        let read = client.read_to_end(&mut rest).await;
        assert!(read.is_err() || rest.len() < LENGTH / 2, "{read:?}");
    }
}
