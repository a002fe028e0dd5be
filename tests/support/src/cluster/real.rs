//! A place for one stage in a real cluster.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use control_plane::front::{Answering, Front, Upstream};
use control_plane::{NodeOptions, Options};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::{kubelet, leftovers};

/// How long the removal of what a stage has made may take.
const SWEEPING: Duration = Duration::from_secs(30);

/// One stage's share of a real cluster: everything in it has a name that ends in the stage's id, or
/// lies in the stage's namespace. It is removed with this.
pub struct RealCluster {
    /// What the provisioner talks to.
    pub front: Front,
    /// How to reach the cluster without it.
    pub config: Config,
    id: String,
    client: Client,
    kubelet: OnceLock<JoinHandle<()>>,
    runtime: Runtime,
}

impl RealCluster {
    /// Joins the cluster of a kubeconfig, and removes what dead test processes left in it.
    pub fn join(kubeconfig: &Path, id: &str, options: &Options) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("real-cluster")
            .enable_all()
            .build()?;
        let of_whom = || format!("the cluster of {}", kubeconfig.display());
        let (config, client) = runtime
            .block_on(async {
                let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
                let config =
                    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                        .await?;
                let client = Client::try_from(config.clone())?;
                anyhow::Ok((config, client))
            })
            .with_context(of_whom)?;
        let upstream = {
            let _entered = runtime.enter();
            // What goes wrong behind the front is for the provisioner to see.
            let mut plain = config.clone();
            plain.default_retry = false;
            Arc::new(ThroughClient(Client::try_from(plain)?))
        };
        let cluster = Self {
            front: Front::start(runtime.handle(), upstream)?,
            config,
            id: id.to_owned(),
            client,
            kubelet: OnceLock::new(),
            runtime,
        };
        cluster
            .runtime
            .block_on(async {
                let now = leftovers::claim_namespace(&cluster.client, id).await?;
                leftovers::sweep_abandoned(&cluster.client, now).await
            })
            .with_context(of_whom)?;
        if let Some(node) = &options.node {
            cluster.register(node)?;
        }
        Ok(cluster)
    }

    /// Registers a node that has no kubelet, as if it had a good one.
    fn register(&self, node: &NodeOptions) -> Result<()> {
        self.runtime.block_on(kubelet::register(&self.client, node))
    }

    /// From now on the pods on the stage's node run.
    pub fn run_pods(&self) {
        self.kubelet.get_or_init(|| {
            let task = kubelet::run(self.client.clone(), self.id.clone());
            self.runtime.spawn(task)
        });
    }
}

impl Drop for RealCluster {
    fn drop(&mut self) {
        if let Some(task) = self.kubelet.get() {
            task.abort();
        }
        let sweeping = async {
            tokio::time::timeout(SWEEPING, leftovers::sweep(&self.client, &self.id)).await
        };
        match self.runtime.block_on(sweeping) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("{} is not all removed: {error:#}", self.id),
            Err(_) => eprintln!("{} is not all removed within {SWEEPING:?}", self.id),
        }
    }
}

/// The API server, reached as a kubeconfig says.
struct ThroughClient(Client);

impl Upstream for ThroughClient {
    fn ask(&self, request: hyper::Request<Bytes>) -> Answering {
        let client = self.0.clone();
        Box::pin(async move {
            let answer = client.send(request.map(Body::from)).await;
            let answer = answer.map_err(io::Error::other)?;
            Ok(answer.map(|body| body.map_err(io::Error::other).boxed_unsync()))
        })
    }
}
