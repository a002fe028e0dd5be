//! Enough of a Kubernetes control plane, in one process, to test a storage controller against.
//!
//! An API server over real HTTP on loopback that kube-rs, client-go and `kubectl` work with, and
//! the controllers around volumes: the binder, a scheduler, a pod runner, Jobs, garbage collection
//! and the protection of what is in use. It starts in milliseconds, needs nothing but this crate, and
//! can be made to fail in every way that a real one does ([`faults`]), while every request is on
//! record ([`requests`]).
//!
//! ```text
//! client ──HTTP──► gate ──► http ──► admission ──► store (strategy, defaults, validation) ──► history
//!                   ▲         ▲                      │ subscribe                               │
//!        faults ────┘         └──── watching ◄───────┼─────────────────────────────────────────┘
//!        requests                                    ▼
//!                                               controllers
//! ```
//!
//! The faults and the record are there for a real API server, too: a [`Front`] stands before it. And it
//! all works without HTTP, within the runtime and on the clock of a test: [`InProcess`].
//!
//! # A first test
//!
//! Any client is pointed at [`ControlPlane::url`], or at [`ControlPlane::kubeconfig`]. With kube-rs:
//!
//! ```
//! use control_plane::{ControlPlane, Options};
//! use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
//! use kube::{Api, Client, Config, runtime::wait::await_condition};
//! use serde_json::{from_value, json};
//!
//! # #[tokio::main]
//! # async fn main() -> anyhow::Result<()> {
//! let control_plane = ControlPlane::start(Options::default())?;
//! let client = Client::try_from(Config::new(control_plane.url().parse()?))?;
//!
//! let volumes: Api<PersistentVolume> = Api::all(client.clone());
//! volumes.create(&Default::default(), &from_value(json!({
//!     "metadata": {"name": "disk"},
//!     "spec": {
//!         "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
//!         "storageClassName": "fast", "hostPath": {"path": "/nowhere"},
//!     },
//! }))?).await?;
//! let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client);
//! claims.create(&Default::default(), &from_value(json!({
//!     "metadata": {"name": "data"},
//!     "spec": {
//!         "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
//!         "resources": {"requests": {"storage": "1Gi"}},
//!     },
//! }))?).await?;
//!
//! let is_bound = |claim: Option<&PersistentVolumeClaim>| {
//!     claim.and_then(|c| c.status.as_ref()).is_some_and(|s| s.phase.as_deref() == Some("Bound"))
//! };
//! let claim = await_condition(claims, "data", is_bound).await?;
//! assert_eq!(claim.unwrap().spec.unwrap().volume_name.as_deref(), Some("disk"));
//! # Ok(())
//! # }
//! ```
//!
//! What is served, and what is not, docs/develop/control-plane.md says. Where it is not what
//! kube-controller-manager and kube-scheduler do with volumes, it is wrong: scenarios are compared with a
//! real Kubernetes 1.37.

#![allow(
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    reason = "only tests use it"
)]

mod admission;
pub mod clock;
pub mod controllers;
mod defaults;
mod deletion;
mod event_view;
pub mod faults;
pub mod front;
mod garbage;
mod history;
mod host_paths;
mod http;
mod in_process;
mod jobs;
mod kubeconfig;
pub mod meta;
mod names;
mod node;
mod options;
mod patch;
mod pods;
mod protection;
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
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    ops::Deref,
    path::PathBuf,
    sync::mpsc,
    thread::JoinHandle,
    time::Duration,
};

use tokio::sync::oneshot;

use crate::status::Status;
pub use crate::{
    controllers::{ControllerOptions, NodeOptions, ProcessOptions},
    faults::Faults,
    front::Front,
    host_paths::{BadRoot, HostPaths},
    http::{Reset, Service},
    in_process::InProcess,
    options::Options,
    requests::Requests,
    store::Store,
};

/// The minor version of Kubernetes 1 whose behaviour this follows.
const MINOR_VERSION: &str = "37";

/// What it calls itself where clients look for a version of Kubernetes.
fn version() -> String {
    format!("v1.{MINOR_VERSION}.0+control-plane")
}

/// A running control plane; dropping it stops everything.
///
/// Many can run side by side in one process: each has its own port, its own thread and its own
/// objects, and starts within milliseconds, so that every test can have one.
///
/// ```
/// # use control_plane::{ControlPlane, Options};
/// let [one, other] = [(); 2].map(|()| ControlPlane::start(Options::default()).unwrap());
/// assert_ne!(one.url(), other.url());
/// ```
#[derive(Debug)]
pub struct ControlPlane {
    url: String,
    kubeconfig: Option<PathBuf>,
    inner: InProcess,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why a control plane does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken, or none of this machine.
    #[error("cannot listen on {address}")]
    Listen {
        /// [`Options::listen`].
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// The kubeconfig cannot be written, or something is there that is not from here
    /// (of the kind `AlreadyExists`).
    #[error("cannot write the kubeconfig {}", path.display())]
    Kubeconfig {
        /// [`Options::kubeconfig`].
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The API server refuses the node.
    #[error("cannot register the node")]
    Node {
        /// In the words of the API.
        source: Status,
    },
    /// There is no thread or runtime to be had.
    #[error("cannot start a thread of its own")]
    Thread(#[source] io::Error),
}

impl ControlPlane {
    /// Starts it on a thread and a runtime of its own. When this returns, it answers.
    ///
    /// ```
    /// use control_plane::{ControlPlane, Options, StartError};
    ///
    /// let first = ControlPlane::start(Options::default())?;
    /// let taken = first.url().trim_start_matches("http://").parse().unwrap();
    /// let second = ControlPlane::start(Options { listen: taken, ..Options::default() });
    /// assert!(matches!(second, Err(StartError::Listen { address, .. }) if address == taken));
    /// # Ok::<(), StartError>(())
    /// ```
    pub fn start(options: Options) -> Result<Self, StartError> {
        let address = options.listen;
        let listener = TcpListener::bind(address);
        let bound = listener.and_then(|listener| {
            listener.set_nonblocking(true)?;
            let url = url_of(listener.local_addr()?);
            Ok((listener, url))
        });
        let (listener, url) = bound.map_err(|source| StartError::Listen { address, source })?;
        let inner = InProcess::without_controllers(&options);
        let (store, service) = (inner.store().clone(), inner.service());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("control-plane")
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let controllers = options.controllers.then(|| options.of_controllers());
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("control-plane".into())
            .spawn(move || {
                let ran =
                    runtime.block_on(run(listener, store, service, controllers, &started, stopped));
                if let Err(error) = ran {
                    // After a successful start the receiver is gone.
                    let _ = started.send(Err(error));
                }
                runtime.shutdown_timeout(Duration::from_secs(1));
            })
            .map_err(StartError::Thread)?;
        let mut control_plane =
            Self { url, kubeconfig: None, inner, stop: Some(stop), thread: Some(thread) };
        let died = |_| StartError::Thread(io::Error::other("it died at once"));
        starting.recv().map_err(died)??;
        if let Some(path) = options.kubeconfig {
            kubeconfig::write(&path, &control_plane.url).map_err(|source| {
                let path = path.clone();
                StartError::Kubeconfig { path, source }
            })?;
            control_plane.kubeconfig = Some(path);
        }
        Ok(control_plane)
    }

    /// Where it answers: `http://127.0.0.1:<port>`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The text of a kubeconfig that points here.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::render(&self.url)
    }
}

/// Its faults, its requests and its store.
impl Deref for ControlPlane {
    type Target = InProcess;

    fn deref(&self) -> &InProcess {
        &self.inner
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
            kubeconfig::remove(path, &self.url);
        }
    }
}

/// Where clients of this machine find what listens there: "all addresses" is none that one can ask.
fn url_of(mut address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    format!("http://{address}")
}

async fn run(
    listener: TcpListener,
    store: Store,
    service: Service,
    controllers: Option<ControllerOptions>,
    started: &mpsc::Sender<Result<(), StartError>>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), StartError> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(StartError::Thread)?;
    let controllers = controllers.map(|options| controllers::spawn(store, options));
    let controllers = controllers.transpose();
    let _controllers = controllers.map_err(|source| StartError::Node { source })?;
    let _ = started.send(Ok(()));
    tokio::select! {
        never = http::serve(listener, service) => match never {},
        _ = stopped => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::url_of;

    #[test]
    fn clients_are_sent_to_an_address_that_there_is() {
        for (listens, url) in [
            ("127.0.0.1:80", "http://127.0.0.1:80"),
            ("192.0.2.1:80", "http://192.0.2.1:80"),
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            ("[::]:80", "http://[::1]:80"),
        ] {
            assert_eq!(url_of(listens.parse().unwrap()), url);
        }
    }
}
