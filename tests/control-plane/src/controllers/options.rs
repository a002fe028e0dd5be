//! How the controllers are set up.

use std::time::Duration;

use super::{NodeOptions, ProcessOptions};
use crate::host_paths::HostPaths;

/// How the controllers behave.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// How often every claim, volume and pod is looked at again; 15 s, as in the real controller.
    pub resync: Duration,
    /// Whether a volume that becomes available is offered to a waiting claim at once. The real
    /// controller leaves that to the next resync, and so does this one by default.
    pub eager_rebind: bool,
    /// The node to register at start, if any.
    pub node: Option<NodeOptions>,
    /// The wait before a container that failed is started for the third time, or a pod of a Job
    /// that failed is replaced; it doubles with each further failure.
    pub back_off: Duration,
    /// How the pods of Jobs run as processes; without it their annotations decide.
    pub processes: Option<ProcessOptions>,
    /// Where volumes of type `hostPath` are really recycled and deleted; without it every such
    /// volume is refused, and nothing on this machine is touched.
    pub host_paths: Option<HostPaths>,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            resync: Duration::from_secs(15),
            eager_rebind: false,
            node: None,
            back_off: Duration::from_secs(10),
            processes: None,
            host_paths: None,
        }
    }
}
