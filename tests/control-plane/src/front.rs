//! The same faults and the same record of requests in front of another API server: a real one.
//!
//! ```text
//! client ──HTTP──► front ──(its credentials, its TLS)──► API server
//! ```
//!
//! A client that is pointed here talks to the cluster behind it and cannot tell. What a test says
//! about [`Faults`] and [`Requests`] is meant for this client alone: other clients of the
//! cluster do not come through here.
//!
//! How the API server is reached, and with whose rights, is an [`Upstream`]'s business, so that
//! this crate needs no Kubernetes client and no TLS.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    pin::Pin,
    sync::{Arc, mpsc},
};

use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::Bytes;
use serde_json::Value;
use tokio::{runtime::Handle, task::JoinHandle};

use crate::{
    Faults, Requests,
    faults::{MustHit, Newest},
    http::{self, Gate, upstream},
    kubeconfig,
};

/// An answer on its way.
pub type Answering = Pin<Box<dyn Future<Output = io::Result<hyper::Response<Content>>> + Send>>;
/// The body of an answer; that of a watch comes bit by bit.
pub type Content = UnsyncBoxBody<Bytes, io::Error>;

/// Another API server.
pub trait Upstream: Send + Sync + 'static {
    /// Asks it. The request's URI is a path with a query, its headers are those that matter for
    /// the answer; address and credentials are still to be added.
    fn ask(&self, request: hyper::Request<Bytes>) -> Answering;
}

/// An HTTP server on loopback in front of another API server; dropping it ends it.
#[derive(Debug)]
pub struct Front {
    url: String,
    faults: Faults,
    requests: Requests,
    serving: JoinHandle<()>,
    _must_hit: MustHit,
}

impl Front {
    /// Starts it on a runtime of the caller's.
    ///
    /// [`Faults::hold_watches`] asks the API server for its newest version and waits for the
    /// answer, so that runtime must be another one than a test waits on, or have another thread.
    pub fn start(runtime: &Handle, upstream: Arc<dyn Upstream>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let newest = {
            let (runtime, upstream) = (runtime.clone(), Arc::clone(&upstream));
            Newest::new(move || newest(&runtime, Arc::clone(&upstream)))
        };
        let (faults, requests) = (Faults::new(newest), Requests::default());
        let gate = Gate { faults: faults.clone(), requests: requests.clone(), bystander: None };
        let service = upstream::service(upstream, gate);
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let serving = runtime.spawn(async move { match http::serve(listener, service).await {} });
        Ok(Self { url, _must_hit: MustHit(faults.clone()), faults, requests, serving })
    }

    /// The text of a kubeconfig that points here.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::render(&self.url)
    }

    /// What may go wrong on purpose.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What has been asked through here.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The newest version of all, as any consistent list tells it. Without an answer there is nothing to
/// go on with: a test that takes any other version for it shows nothing.
fn newest(runtime: &Handle, upstream: Arc<dyn Upstream>) -> u64 {
    let (tell, version) = mpsc::channel();
    runtime.spawn(async move {
        let _ = tell.send(list_version(&*upstream).await);
    });
    match version.recv().map_err(io::Error::other).flatten() {
        Ok(version) => version,
        Err(error) => panic!("the API server does not tell its newest version: {error}"),
    }
}

async fn list_version(upstream: &dyn Upstream) -> io::Result<u64> {
    let list = hyper::Request::get("/api/v1/namespaces?limit=1").body(Bytes::new());
    let answer = upstream.ask(list.map_err(io::Error::other)?).await?;
    let list: Value = serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?;
    let version = list["metadata"]["resourceVersion"].as_str();
    let version = version.and_then(|version| version.parse().ok());
    version.ok_or_else(|| io::Error::other(format!("it answers {list}")))
}
