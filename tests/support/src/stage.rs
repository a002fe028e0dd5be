//! A whole small world for one test: disks, a control plane, and the provisioner's real binary.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use control_plane::{ControlPlane, NodeOptions, Options};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::namespace::Sandbox;
use crate::program::{Program, bare_command};

/// The node that the provisioner serves.
pub const NODE: &str = "node-1";
/// The namespace of the claims and Pods.
pub const NAMESPACE: &str = "default";
/// How long anything may take that ought to happen at once.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Disks, a control plane, and a place for the provisioner's configuration.
///
/// All methods block: a test reads as a story. What they do to the cluster they do over HTTP.
pub struct Stage {
    /// The private mount namespace; its scratch directory holds everything else.
    pub sandbox: Sandbox,
    /// The control plane, for faults and recorded requests.
    pub control_plane: ControlPlane,
    /// A client of it.
    pub client: Client,
    runtime: Runtime,
    binary: PathBuf,
    logs: Cell<u32>,
    extra_args: Vec<String>,
}

impl Stage {
    /// Sets a stage for the program at `binary`, or says why it cannot and returns `None`.
    ///
    /// There is one node ([`NODE`]), a visible kubelet directory without any volume in use, and a
    /// configuration directory with `protectReleasedData` on, as the chart has it.
    ///
    /// # Panics
    /// When the machine allows it and it still cannot be set up.
    #[must_use]
    pub fn set(binary: &str) -> Option<Self> {
        Self::set_with(binary, |_| {})
    }

    /// Like [`Stage::set`], with changes to the control plane's options.
    ///
    /// # Panics
    /// When the machine allows it and it still cannot be set up.
    #[must_use]
    #[allow(
        clippy::expect_used,
        reason = "a test that cannot be set up has failed"
    )]
    pub fn set_with(binary: &str, change: impl FnOnce(&mut Options)) -> Option<Self> {
        let sandbox = Sandbox::enter()?;
        Some(Self::build(binary, sandbox, change).expect("setting the stage"))
    }

    fn build(binary: &str, sandbox: Sandbox, change: impl FnOnce(&mut Options)) -> Result<Self> {
        let mut options = Options {
            node: Some(NodeOptions::new(NODE)),
            ..Options::default()
        };
        change(&mut options);
        let control_plane = ControlPlane::start(options)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let kubeconfig = sandbox.path().join("kubeconfig");
        fs::write(&kubeconfig, control_plane.kubeconfig())?;
        let client = runtime.block_on(async {
            let kubeconfig = Kubeconfig::from_yaml(&control_plane.kubeconfig())?;
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        sandbox.dir("disks")?;
        sandbox.dir("kubelet/pods")?;
        sandbox.dir("kubelet/plugins")?;
        sandbox.dir("config")?;
        let stage = Self {
            sandbox,
            control_plane,
            client,
            runtime,
            binary: binary.into(),
            logs: Cell::new(0),
            extra_args: Vec::new(),
        };
        stage.configure("protectReleasedData", "true")?;
        Ok(stage)
    }

    /// Runs a future to its end.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    // === the provisioner ===

    /// Writes one key of the configuration.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn configure(&self, key: &str, value: &str) -> Result<()> {
        let path = self.config_dir().join(key);
        fs::write(&path, value).with_context(|| format!("writing {}", path.display()))
    }

    /// Configures one class over a directory `disks/<name>` (made here), with further settings of
    /// the class, and makes its StorageClass.
    ///
    /// # Errors
    /// When one of these cannot be made.
    pub fn class(&self, name: &str, settings: &Value) -> Result<PathBuf> {
        let dir = self.sandbox.dir(&format!("disks/{name}"))?;
        let path = self.config_dir().join("storageClassMap");
        let mut map: BTreeMap<String, Value> = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(_) => BTreeMap::new(),
        };
        let mut class = json!({ "hostDir": dir, "mountDir": dir });
        for (key, value) in settings.as_object().into_iter().flatten() {
            class[key] = value.clone();
        }
        map.insert(name.to_owned(), class);
        // JSON is YAML.
        self.configure("storageClassMap", &serde_json::to_string_pretty(&map)?)?;
        self.storage_class(name, "Delete", "Immediate")?;
        Ok(dir)
    }

    /// Makes a StorageClass.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn storage_class(&self, name: &str, policy: &str, binding: &str) -> Result<()> {
        let class: StorageClass = serde_json::from_value(json!({
            "metadata": { "name": name },
            "provisioner": "kubernetes.io/no-provisioner",
            "reclaimPolicy": policy,
            "volumeBindingMode": binding,
        }))?;
        let api: Api<StorageClass> = Api::all(self.client.clone());
        self.block_on(api.create(&PostParams::default(), &class))
            .context("making a StorageClass")?;
        Ok(())
    }

    /// The configuration directory.
    #[must_use]
    pub fn config_dir(&self) -> PathBuf {
        self.sandbox.path().join("config")
    }

    /// The kubelet's directory.
    #[must_use]
    pub fn kubelet_dir(&self) -> PathBuf {
        self.sandbox.path().join("kubelet")
    }

    /// Adds an argument to every provisioner that is started from now on.
    pub fn add_arg(&mut self, arg: &str) {
        self.extra_args.push(arg.to_owned());
    }

    /// A command line for the program with its environment set up and no arguments yet.
    #[must_use]
    pub fn command(&self) -> std::process::Command {
        let mut command = bare_command(&self.binary);
        command
            .env("MY_NODE_NAME", NODE)
            .env("MY_NAMESPACE", NAMESPACE)
            .env("HOSTNAME", "provisioner-pod")
            .env("KUBECONFIG", self.sandbox.path().join("kubeconfig"));
        command
    }

    /// Starts the provisioner.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn provisioner(&self) -> Result<Program> {
        let mut command = self.command();
        command
            .arg("--config")
            .arg(self.config_dir())
            .arg("--kubelet-dir")
            .arg(self.kubelet_dir())
            .args(["--listen-address", "127.0.0.1:0", "--v=4"])
            .args(&self.extra_args);
        let number = self.logs.get();
        self.logs.set(number + 1);
        Program::start(
            command,
            self.sandbox
                .path()
                .join(format!("provisioner-{number}.log")),
        )
    }

    // === the cluster ===

    /// The PVs, all of them.
    ///
    /// # Panics
    /// When the API server does not answer.
    #[must_use]
    #[allow(
        clippy::expect_used,
        reason = "a broken control plane is a failed test"
    )]
    pub fn pvs(&self) -> Vec<PersistentVolume> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        self.block_on(api.list(&ListParams::default()))
            .expect("listing PVs")
            .items
    }

    /// The PVs for a path.
    #[must_use]
    pub fn pvs_at(&self, path: &Path) -> Vec<PersistentVolume> {
        let at = |pv: &PersistentVolume| {
            let local = pv.spec.as_ref().and_then(|spec| spec.local.as_ref());
            local.is_some_and(|local| Path::new(&local.path) == path)
        };
        self.pvs().into_iter().filter(at).collect()
    }

    /// Reads a PV.
    ///
    /// # Panics
    /// When the API server does not answer.
    #[must_use]
    #[allow(
        clippy::expect_used,
        reason = "a broken control plane is a failed test"
    )]
    pub fn pv(&self, name: &str) -> Option<PersistentVolume> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        self.block_on(api.get_opt(name)).expect("reading a PV")
    }

    /// Waits for an Available PV for a path, other than the one with the UID `not`.
    ///
    /// # Panics
    /// When there is none in time.
    pub fn available(&self, path: &Path, not: Option<&str>) -> PersistentVolume {
        self.eventually(&format!("an Available PV for {}", path.display()), || {
            self.pvs_at(path).into_iter().find(|pv| {
                phase(pv) == "Available" && pv.metadata.uid.as_deref() != not && !is_terminating(pv)
            })
        })
    }

    /// Waits until a PV is in a phase.
    ///
    /// # Panics
    /// When it is not in time.
    pub fn in_phase(&self, name: &str, wanted: &str) -> PersistentVolume {
        self.eventually(&format!("PV {name} {wanted}"), || {
            self.pv(name).filter(|pv| phase(pv) == wanted)
        })
    }

    /// Makes any object of the core types that tests need.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn create_pv(&self, pv: Value) -> Result<PersistentVolume> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        Ok(self.block_on(api.create(&PostParams::default(), &serde_json::from_value(pv)?))?)
    }

    /// Merges a patch into a PV.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn patch_pv(&self, name: &str, patch: &Value) -> Result<PersistentVolume> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        Ok(self.block_on(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)))?)
    }

    /// Merges a patch into a PV's status.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn patch_pv_status(&self, name: &str, patch: &Value) -> Result<PersistentVolume> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        Ok(self.block_on(api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)))?)
    }

    /// Deletes a PV, without waiting for it to go.
    ///
    /// # Errors
    /// When the API server refuses.
    pub fn delete_pv(&self, name: &str) -> Result<()> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        self.block_on(api.delete(name, &DeleteParams::default()))?;
        Ok(())
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Makes a claim of one class; with `volume`, for that PV.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn claim(&self, name: &str, class: &str, volume: Option<&str>) -> Result<()> {
        self.claim_in_mode(name, class, volume, "Filesystem")
    }

    /// Makes a claim with a volume mode.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn claim_in_mode(
        &self,
        name: &str,
        class: &str,
        volume: Option<&str>,
        mode: &str,
    ) -> Result<()> {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "storageClassName": class,
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": mode,
                "volumeName": volume,
                "resources": { "requests": { "storage": "1Mi" } },
            },
        }))?;
        self.block_on(self.claims().create(&PostParams::default(), &claim))?;
        Ok(())
    }

    /// Makes a claim for the PV of a path and waits until both are bound; returns the PV.
    ///
    /// # Panics
    /// When it is not bound in time.
    #[allow(
        clippy::expect_used,
        reason = "a claim that cannot be made is a failed test"
    )]
    pub fn bind(&self, claim: &str, path: &Path) -> PersistentVolume {
        let pv = self.available(path, None);
        let spec = pv.spec.clone().unwrap_or_default();
        let class = spec.storage_class_name.unwrap_or_default();
        let mode = spec.volume_mode.unwrap_or_else(|| "Filesystem".into());
        self.claim_in_mode(claim, &class, Some(&name(&pv)), &mode)
            .expect("making a claim");
        self.in_phase(&name(&pv), "Bound")
    }

    /// Makes a claim for the PV of a directory, as [`Stage::bind`] does, and writes a file `secret`
    /// into it once the provisioner has noted that the volume is used.
    ///
    /// # Panics
    /// When any of this does not happen.
    #[allow(
        clippy::expect_used,
        reason = "a file that cannot be written is a failed test"
    )]
    pub fn occupy(&self, claim: &str, path: &Path) -> PersistentVolume {
        let bound = self.bind(claim, path);
        let pv = self.eventually(&format!("PV {} is marked as used", name(&bound)), || {
            let pv = self.pv(&name(&bound))?;
            (annotation(&pv, "local-volume-provisioner/used") == Some("true")).then_some(pv)
        });
        fs::write(path.join("secret"), claim).expect("writing into the volume");
        pv
    }

    /// Deletes a claim, without waiting for it to go.
    ///
    /// # Panics
    /// When the API server refuses.
    #[allow(
        clippy::expect_used,
        reason = "a broken control plane is a failed test"
    )]
    pub fn delete_claim(&self, name: &str) {
        self.block_on(self.claims().delete(name, &DeleteParams::default()))
            .expect("deleting a claim");
    }

    /// Makes a Pod on [`NODE`] that uses a claim.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn pod(&self, name: &str, claim: &str) -> Result<()> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "nodeName": NODE,
                "containers": [{ "name": "c", "image": "none" }],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }],
            },
        }))?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        self.block_on(api.create(&PostParams::default(), &pod))?;
        Ok(())
    }

    /// The events with a reason, as their texts.
    ///
    /// # Panics
    /// When the API server does not answer.
    #[must_use]
    #[allow(
        clippy::expect_used,
        reason = "a broken control plane is a failed test"
    )]
    pub fn events(&self, reason: &str) -> Vec<String> {
        let api: Api<Event> = Api::all(self.client.clone());
        let events = self
            .block_on(api.list(&ListParams::default()))
            .expect("listing events");
        let wanted = events
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason));
        wanted
            .map(|event| event.message.unwrap_or_default())
            .collect()
    }

    /// Waits for an event with a reason and some text in it.
    ///
    /// # Panics
    /// When there is none in time.
    pub fn event(&self, reason: &str, text: &str) -> String {
        self.eventually(&format!("an event {reason} with {text:?}"), || {
            self.events(reason)
                .into_iter()
                .find(|message| message.contains(text))
        })
    }

    /// Waits until something is so.
    ///
    /// # Panics
    /// When it is not within [`PATIENCE`].
    pub fn eventually<T>(&self, what: &str, is_so: impl FnMut() -> Option<T>) -> T {
        self.within(PATIENCE, what, is_so)
    }

    /// Waits until something is so.
    ///
    /// # Panics
    /// When it is not within `limit`.
    pub fn within<T>(
        &self,
        limit: Duration,
        what: &str,
        mut is_so: impl FnMut() -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(value) = is_so() {
                return value;
            }
            assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asserts that something stays so for a while.
    ///
    /// # Panics
    /// As soon as it is not so.
    pub fn stays(&self, lasting: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + lasting;
        while Instant::now() < deadline {
            assert!(is_so(), "no longer so: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A PV's name.
#[must_use]
pub fn name(pv: &PersistentVolume) -> String {
    pv.metadata.name.clone().unwrap_or_default()
}

/// A PV's UID.
#[must_use]
pub fn uid(pv: &PersistentVolume) -> String {
    pv.metadata.uid.clone().unwrap_or_default()
}

/// A PV's phase.
#[must_use]
pub fn phase(pv: &PersistentVolume) -> String {
    pv.status
        .as_ref()
        .and_then(|status| status.phase.clone())
        .unwrap_or_default()
}

/// Whether a PV is being deleted.
#[must_use]
pub fn is_terminating(pv: &PersistentVolume) -> bool {
    pv.metadata.deletion_timestamp.is_some()
}

/// The value of an annotation.
#[must_use]
pub fn annotation<'a>(pv: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    pv.metadata
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
}
