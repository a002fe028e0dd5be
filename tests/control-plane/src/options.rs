//! How a control plane is set up.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use crate::{ControllerOptions, HostPaths, NodeOptions, ProcessOptions, Store};

/// How a control plane is set up. The defaults are those of a real cluster, but for a free port on
/// loopback and no node; a test often wants a node, and shorter periods:
///
/// ```
/// use std::time::Duration;
/// use control_plane::{ControlPlane, NodeOptions, Options};
///
/// let control_plane = ControlPlane::start(Options {
///     node: Some(NodeOptions::new("node-1")),
///     resync: Duration::from_millis(500),
///     back_off: Duration::from_millis(100),
///     ..Options::default()
/// })?;
/// # Ok::<(), control_plane::StartError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 (the default, on 127.0.0.1) takes a free one. There is neither TLS nor
    /// authentication, so an address that others reach gives them everything.
    pub listen: SocketAddr,
    /// Where to write a kubeconfig; it is removed again in the end, unless it was changed
    /// since. A file that is there already is replaced only if it is empty or was left by a
    /// control plane that was killed. None by default.
    pub kubeconfig: Option<PathBuf>,
    /// A node to register at start; none by default, and then no pod is scheduled.
    pub node: Option<NodeOptions>,
    /// How often the controllers look at everything again; 15 s, as in the real ones.
    pub resync: Duration,
    /// Offer a volume that becomes available to waiting claims at once instead of at the next
    /// resync. The real controller does not, so this is off by default.
    pub eager_rebind: bool,
    /// The first wait after a failed container or pod of a Job, before the next try; 10 s, as in
    /// the real ones, and it doubles each time.
    pub back_off: Duration,
    /// Run the pods of Jobs as processes of this machine. Without it (the default) their
    /// annotations decide.
    pub processes: Option<ProcessOptions>,
    /// Where volumes of type `hostPath` are really recycled and deleted. Without it (the default)
    /// every such volume is refused, and nothing on this machine is touched.
    pub host_paths: Option<HostPaths>,
    /// Run the controllers (the default); without them this is an API server alone. They can be
    /// started, ended and started again later: [`controllers::spawn`](crate::controllers::spawn).
    pub controllers: bool,
    /// Events kept per resource type, [`Store::DEFAULT_HISTORY`] by default; a watch from before them
    /// gets 410.
    pub history: usize,
    /// How often a quiet watch gets a bookmark, if it wants any; every minute by default, as from the
    /// real one.
    pub bookmarks: Duration,
    /// Requests with this `User-Agent` meet no fault and are not on record: those of a test, beside
    /// the program that it tests. None by default.
    pub bystander: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        let ControllerOptions { resync, eager_rebind, node, back_off, processes, host_paths } =
            ControllerOptions::default();
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

impl Options {
    /// What of it is for the controllers.
    pub(crate) fn of_controllers(&self) -> ControllerOptions {
        ControllerOptions {
            resync: self.resync,
            eager_rebind: self.eager_rebind,
            node: self.node.clone(),
            back_off: self.back_off,
            processes: self.processes.clone(),
            host_paths: self.host_paths.clone(),
        }
    }
}
