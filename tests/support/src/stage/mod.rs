//! A whole small world for one test: disks, a cluster, and the provisioner's real binary.
//!
//! The cluster is the embedded control plane; with the environment variable `TEST_KUBECONFIG` it is
//! the real one of that kubeconfig. Stages share a real cluster with each other and with whatever
//! else is in it. So nothing has a fixed name there: [`Stage::node`], [`Stage::namespace`] and
//! [`Stage::named`] tell the names, in both clusters. The node says Ready and has no kubelet: Pods of
//! the cluster's own DaemonSets are sent there too, and wait until it is gone.

mod failure;
mod objects;
mod pods;
mod waiting;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use control_plane::{ControlPlane, Faults, NodeOptions, Options, ProcessOptions, Requests};
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::cluster::{Cluster, ID_PREFIX, namespace};
use crate::namespace::Sandbox;
use crate::program::{Program, bare_command};

pub use objects::{annotation, is_terminating, name, phase, uid};

/// Where the program is in its container image.
const IN_THE_IMAGE: &str = "/local-volume-provisioner";
/// How soon the embedded control plane tries a Job's container again. A real one takes 10 s.
const RETRY: Duration = Duration::from_millis(100);

/// Whether stages are set in a real cluster.
pub fn on_real_cluster() -> bool {
    Cluster::is_real()
}

/// Disks, a cluster, and a place for the provisioner's configuration.
///
/// All methods block: a test reads as a story. What they do to the cluster they do over HTTP.
pub struct Stage {
    /// The private mount namespace; its scratch directory holds everything else.
    pub sandbox: Sandbox,
    /// A client of the cluster, which no fault concerns.
    pub client: Client,
    cluster: Cluster,
    id: String,
    runtime: Runtime,
    binary: PathBuf,
    logs: Cell<u32>,
    timeout: Duration,
    extra_args: Vec<String>,
}

impl Stage {
    /// Sets a stage for the program at `binary`, or says why it cannot and returns `None`.
    ///
    /// There is one node, a visible kubelet directory without any volume in use, and a
    /// configuration directory with `protectReleasedData` on, as the chart has it. The embedded
    /// control plane runs the Pods of Jobs as processes that see the disks of this stage; what they
    /// write is in `job-logs` of the scratch directory.
    pub fn set(binary: &str) -> Option<Self> {
        Self::set_with(binary, |_| {})
    }

    /// Like [`Stage::set`], with changes to the control plane's options. In a real cluster only the
    /// node's labels and the binder's haste can be chosen.
    pub fn set_with(binary: &str, change: impl FnOnce(&mut Options)) -> Option<Self> {
        let id = if Cluster::is_real() {
            format!("{ID_PREFIX}{:016x}", RandomState::new().hash_one(()))
        } else {
            "1".to_owned()
        };
        let mut options = Options {
            node: Some(NodeOptions::new(named("node", &id))),
            back_off: RETRY,
            ..Options::default()
        };
        change(&mut options);
        let sandbox = Sandbox::enter()?;
        options.processes.get_or_insert_with(|| ProcessOptions {
            programs: [(IN_THE_IMAGE.into(), binary.into())].into(),
            logs: sandbox.path().join("job-logs"),
        });
        Some(Self::build(binary, sandbox, id, options).expect("setting the stage"))
    }

    fn build(binary: &str, sandbox: Sandbox, id: String, options: Options) -> Result<Self> {
        let cluster = Cluster::start(&id, options)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(cluster.client())?;
        let kubeconfig = sandbox.path().join("kubeconfig");
        fs::write(&kubeconfig, cluster.provisioners_kubeconfig())?;
        sandbox.dir("disks")?;
        sandbox.dir("kubelet/pods/of-something-else")?;
        sandbox.dir("kubelet/plugins")?;
        sandbox.dir("config")?;
        let stage = Self {
            sandbox,
            client,
            cluster,
            id,
            runtime,
            binary: binary.into(),
            logs: Cell::new(0),
            timeout: waiting::timeout(),
            extra_args: Vec::new(),
        };
        stage.configure("protectReleasedData", "true");
        Ok(stage)
    }

    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Waits for the answer to a request, which must succeed.
    pub fn request<T>(&self, answer: impl Future<Output = kube::Result<T>>) -> T {
        self.block_on(answer).expect("a request that succeeds")
    }

    /// The name that something cluster-wide has on this stage: a class, a PV made by hand, a second
    /// node. It has to have one, or it counts as foreign, and is left there in the end.
    pub fn named(&self, base: &str) -> String {
        named(base, &self.id)
    }

    /// The node that the provisioner serves.
    pub fn node(&self) -> String {
        self.named("node")
    }

    /// The namespace of the claims and Pods.
    pub fn namespace(&self) -> String {
        namespace(&self.id)
    }

    /// What may go wrong between the provisioner and the API server.
    pub fn faults(&self) -> &Faults {
        self.cluster.faults()
    }

    /// What the provisioner has asked.
    pub fn requests(&self) -> &Requests {
        self.cluster.requests()
    }

    /// The embedded control plane, if this is not a real cluster.
    pub fn embedded(&self) -> Option<&ControlPlane> {
        match &self.cluster {
            Cluster::Embedded(control_plane) => Some(control_plane),
            Cluster::Real(_) => None,
        }
    }

    /// A client for another thread, with a runtime of its own to run it on.
    pub fn another_client(&self) -> Result<(Runtime, Client)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(self.cluster.client())?;
        Ok((runtime, client))
    }

    /// Writes one key of the configuration atomically.
    pub fn configure(&self, key: &str, value: &str) {
        let new = self.sandbox.path().join("new-key");
        fs::write(&new, value).expect("writing a key");
        fs::rename(new, self.config_dir().join(key)).expect("renaming a key");
    }

    /// Configures one class over a directory `disks/<name>` (made here), with further settings of
    /// the class, and makes its StorageClass. Its full name is [`Stage::named`].
    pub fn class(&self, name: &str, settings: &Value) -> PathBuf {
        let dir = self.sandbox.dir(&format!("disks/{name}"));
        let dir = dir.expect("making a discovery directory");
        let path = self.config_dir().join("storageClassMap");
        let mut map: BTreeMap<String, Value> = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).expect("our own classes"),
            Err(_) => BTreeMap::new(),
        };
        let mut class = json!({ "hostDir": dir, "mountDir": dir });
        for (key, value) in settings.as_object().into_iter().flatten() {
            class[key] = value.clone();
        }
        map.insert(self.named(name), class);
        // JSON is YAML.
        self.configure("storageClassMap", &json!(map).to_string());
        self.storage_class(name, "Delete", "Immediate");
        dir
    }

    pub fn config_dir(&self) -> PathBuf {
        self.sandbox.path().join("config")
    }

    pub fn kubelet_dir(&self) -> PathBuf {
        self.sandbox.path().join("kubelet")
    }

    /// Adds an argument to every provisioner that is started from now on.
    pub fn add_arg(&mut self, arg: &str) {
        self.extra_args.push(arg.to_owned());
    }

    /// A command line for the program with its environment set up and no arguments yet.
    pub fn command(&self) -> std::process::Command {
        let mut command = bare_command(&self.binary);
        let state = self.sandbox.dir("state").expect("the state directory");
        command
            .env("STATE_DIRECTORY", state)
            .env("MY_NODE_NAME", self.node())
            .env("MY_NAMESPACE", self.namespace())
            // Whatever it is called: see `IN_THE_IMAGE`.
            .env("JOB_CONTAINER_IMAGE", "provisioner")
            .env("HOSTNAME", "provisioner-pod")
            .env("KUBECONFIG", self.sandbox.path().join("kubeconfig"));
        command
    }

    pub fn provisioner(&self) -> Program {
        self.provisioner_with(&[])
    }

    /// Starts the provisioner with these environment variables too.
    pub fn provisioner_with(&self, environment: &[(&str, &str)]) -> Program {
        let number = self.logs.get();
        self.logs.set(number + 1);
        let log = format!("provisioner-{number}.log");
        let command = self.provisioner_command(environment);
        Program::start(command, self.sandbox.path().join(log)).expect("starting the provisioner")
    }

    /// The command that starts the provisioner with these environment variables too.
    pub fn provisioner_command(&self, environment: &[(&str, &str)]) -> std::process::Command {
        let mut command = self.command();
        command
            .envs(environment.iter().copied())
            .arg("--config")
            .arg(self.config_dir())
            .arg("--kubelet-dir")
            .arg(self.kubelet_dir())
            .args(["--listen-address", "127.0.0.1:0", "--v=4"])
            .arg("--config-sync-period=1s")
            .args(&self.extra_args);
        command
    }
}

fn named(base: &str, id: &str) -> String {
    format!("{base}-{id}")
}
