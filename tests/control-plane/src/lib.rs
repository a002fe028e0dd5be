//! Enough of a Kubernetes control plane, in one process, to test a storage controller against.
//!
//! An API server over real HTTP on loopback that kube-rs, client-go and `kubectl` work with, and
//! the controllers around volumes: the binder, a scheduler, a pod runner, Jobs, garbage collection
//! and the protection of what is in use. It starts in milliseconds, needs nothing but this crate, and
//! can be made to fail in every way that a real one does ([`faults`]), while every request is on
//! record ([`requests`]).
//!
//! ```text
//! client ──HTTP──► http ──► admission ──► store (strategy, defaults, validation) ──► history
//!                   │ ▲                     │ subscribe                                 │
//!        faults ────┘ └──── watching ◄──────┼───────────────────────────────────────────┘
//!        requests                           ▼
//!                                      controllers
//! ```
//!
//! The faults and the record are there for a real API server, too: a [`Front`] stands before it.
//!
//! What it is not: there is no authentication, no authorization, no etcd, no custom resources,
//! and only as much validation as a storage controller can run into.
//!
//! ```
//! use std::{io::{Read, Write}, net::TcpStream};
//! use control_plane::{ControlPlane, Options, requests::Verb};
//!
//! let control_plane = ControlPlane::start(Options::default())?;
//! let address = control_plane.url().trim_start_matches("http://");
//! let mut stream = TcpStream::connect(address)?;
//! write!(stream, "GET /api/v1/namespaces/default HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK"));
//! assert_eq!(control_plane.requests().count(|r| r.verb == Verb::Get && r.name == "default"), 1);
//! # Ok::<(), anyhow::Error>(())
//! ```

mod admission;
pub mod controllers;
mod defaults;
mod deletion;
mod ephemeral;
mod event_view;
mod expand;
pub mod faults;
pub mod front;
mod garbage;
mod history;
mod host_paths;
mod http;
mod jobs;
mod kubeconfig;
pub mod meta;
mod names;
mod node;
mod patch;
mod pods;
mod protection;
mod protobuf;
mod pv_controller;
pub mod quantity;
mod recorder;
pub mod requests;
pub mod resource;
mod scheduler;
mod selectors;
pub mod status;
pub mod store;
mod strategy;
mod table;
mod validation;
mod view;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, anyhow};
use tokio::sync::oneshot;

use crate::faults::Newest;
pub use crate::{
    controllers::{ControllerOptions, NodeOptions, ProcessOptions},
    faults::Faults,
    front::Front,
    host_paths::{BadRoot, HostPaths},
    requests::Requests,
    store::Store,
};

/// How a control plane is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 (the default, on 127.0.0.1) takes a free one.
    pub listen: SocketAddr,
    /// Where to write a kubeconfig; it is removed again in the end.
    pub kubeconfig: Option<PathBuf>,
    /// A node to register at start.
    pub node: Option<NodeOptions>,
    /// How often the controllers look at everything again; 15 s, as in the real ones.
    pub resync: Duration,
    /// Offer a volume that becomes available to waiting claims at once instead of at the next
    /// resync. The real controller does not.
    pub eager_rebind: bool,
    /// The first wait after a failed container or pod of a Job, before the next try; 10 s, as in
    /// the real ones, and it doubles each time.
    pub back_off: Duration,
    /// Run the pods of Jobs as processes of this machine. Without it they do as they are told.
    pub processes: Option<ProcessOptions>,
    /// Where volumes of type `hostPath` are really recycled and deleted. Without it (the default)
    /// every such volume is refused, and nothing on this machine is touched.
    pub host_paths: Option<HostPaths>,
    /// Run the controllers; without them this is an API server alone.
    pub controllers: bool,
    /// Events kept per resource type; a watch from before them gets 410.
    pub history: usize,
    /// How often a quiet watch gets a bookmark.
    pub bookmarks: Duration,
    /// Requests with this `User-Agent` meet no fault and are not on record: those of a test, beside
    /// the program that it tests.
    pub bystander: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        let ControllerOptions {
            resync,
            eager_rebind,
            node,
            back_off,
            processes,
            host_paths,
        } = ControllerOptions::default();
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            kubeconfig: None,
            node,
            resync,
            eager_rebind,
            back_off,
            processes,
            host_paths,
            controllers: true,
            history: Store::DEFAULT_HISTORY,
            bookmarks: Duration::from_mins(1),
            bystander: None,
        }
    }
}

/// A running control plane; dropping it stops everything.
#[derive(Debug)]
pub struct ControlPlane {
    url: String,
    kubeconfig: Option<PathBuf>,
    store: Store,
    faults: Faults,
    requests: Requests,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ControlPlane {
    /// Starts it on a thread and a runtime of its own. When this returns, it answers.
    ///
    /// # Errors
    /// The address is taken, the kubeconfig cannot be written, or the node is not acceptable.
    pub fn start(options: Options) -> anyhow::Result<Self> {
        let listen = options.listen;
        let listener =
            TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let store = Store::new(options.history);
        let faults = Faults::new(Newest::new({
            let store = store.clone();
            move || store.revision()
        }));
        let requests = Requests::default();
        let server = http::Server {
            store: store.clone(),
            faults: faults.clone(),
            requests: requests.clone(),
            bookmarks: options.bookmarks,
            bystander: options.bystander,
            pod_logs: options.processes.as_ref().map(|p| p.logs.clone()),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("control-plane")
            .enable_all()
            .build()?;
        let controllers = options.controllers.then(|| ControllerOptions {
            resync: options.resync,
            eager_rebind: options.eager_rebind,
            node: options.node.clone(),
            back_off: options.back_off,
            processes: options.processes.clone(),
            host_paths: options.host_paths.clone(),
        });
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("control-plane".into())
            .spawn(move || {
                let ran = runtime.block_on(run(listener, server, controllers, &started, stopped));
                if let Err(error) = ran {
                    // Nobody listens any more if the start had succeeded.
                    let _ = started.send(Err(error));
                }
                runtime.shutdown_timeout(Duration::from_secs(1));
            })?;
        starting
            .recv()
            .map_err(|_| anyhow!("the control plane died while starting"))??;
        if let Some(path) = &options.kubeconfig {
            kubeconfig::write(path, &url)
                .with_context(|| format!("cannot write the kubeconfig {}", path.display()))?;
        }
        Ok(Self {
            url,
            kubeconfig: options.kubeconfig,
            store,
            faults,
            requests,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The text of a kubeconfig that points here.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        kubeconfig::render(&self.url)
    }

    /// What may go wrong on purpose.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What has been asked.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// The objects, past the HTTP server: no fault hits, no request is recorded.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(path) = &self.kubeconfig {
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn run(
    listener: TcpListener,
    server: http::Server,
    controllers: Option<ControllerOptions>,
    started: &mpsc::Sender<anyhow::Result<()>>,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let _controllers = match controllers {
        Some(options) => Some(controllers::spawn(server.store.clone(), options)?),
        None => None,
    };
    let _ = started.send(Ok(()));
    tokio::select! {
        never = http::serve(listener, Arc::new(server)) => match never {},
        _ = stopped => Ok(()),
    }
}
