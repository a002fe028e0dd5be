//! Where a stage's API comes from: the embedded control plane, or a real cluster.

mod kubelet;
mod leftovers;
mod real;

use anyhow::Result;
use control_plane::resource::NAMESPACES;
use control_plane::{ControlPlane, Faults, Options, Requests};
use hyper::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

pub use leftovers::{ID_PREFIX, namespace};
pub use real::RealCluster;

/// The environment variable that names a real cluster's kubeconfig.
const KUBECONFIG: &str = "TEST_KUBECONFIG";
/// The `User-Agent` of the tests' own requests, which only the embedded control plane gets to see
/// beside the provisioner's.
const BYSTANDER: &str = "stage";

/// An API with what is needed to disturb and to observe the provisioner's use of it.
pub enum Cluster {
    /// In this process, for this stage alone.
    Embedded(Box<ControlPlane>),
    /// Shared with other stages, and perhaps with other users.
    Real(Box<RealCluster>),
}

impl Cluster {
    /// Whether [`KUBECONFIG`] names a real one.
    pub fn is_real() -> bool {
        std::env::var_os(KUBECONFIG).is_some()
    }

    /// Starts the embedded control plane, or finds a place in the real cluster.
    pub fn start(id: &str, mut options: Options) -> Result<Self> {
        if let Some(kubeconfig) = std::env::var_os(KUBECONFIG) {
            let real = RealCluster::join(kubeconfig.as_ref(), id, &options)?;
            return Ok(Self::Real(Box::new(real)));
        }
        options.bystander = Some(BYSTANDER.to_owned());
        let control_plane = ControlPlane::start(options)?;
        let namespace = json!({ "metadata": { "name": namespace(id) } });
        control_plane.store().create(&NAMESPACES, "", namespace)?;
        Ok(Self::Embedded(Box::new(control_plane)))
    }

    /// A client for the test, whose requests are neither recorded nor disturbed.
    pub async fn client(&self) -> Result<Client> {
        let mut config = match self {
            Self::Embedded(control_plane) => {
                let kubeconfig = Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
            }
            Self::Real(real) => real.config.clone(),
        };
        let bystander = (USER_AGENT, HeaderValue::from_static(BYSTANDER));
        config.headers.push(bystander);
        Ok(Client::try_from(config)?)
    }

    /// The kubeconfig for the provisioner, whose requests are recorded and can be disturbed.
    pub fn provisioners_kubeconfig(&self) -> String {
        match self {
            Self::Embedded(control_plane) => control_plane.kubeconfig(),
            Self::Real(real) => real.front.kubeconfig(),
        }
    }

    pub fn faults(&self) -> &Faults {
        match self {
            Self::Embedded(control_plane) => control_plane.faults(),
            Self::Real(real) => real.front.faults(),
        }
    }

    pub fn requests(&self) -> &Requests {
        match self {
            Self::Embedded(control_plane) => control_plane.requests(),
            Self::Real(real) => real.front.requests(),
        }
    }
}
