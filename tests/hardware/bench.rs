//! A cluster whose one node is a virtual machine.

use std::cell::{Cell, RefCell};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::Api;
use serde_json::{Value, json};
use support::passes::volumes;
use support::stage::{name, uid};
use support::{Stage, bare_command};

use crate::disk::{Disk, MIB, Place};
use crate::vm::Vm;

/// What would take a moment elsewhere takes its time in an emulated machine, and failed cleanups
/// are tried again after 10 and 20 s.
const TIMEOUT: Duration = Duration::from_mins(4);
/// Between two passes and scans, of which each keeps an emulated machine with 48 disks busy for a moment.
const PERIOD: &str = "5s";
const BINARY: &str = env!("CARGO_BIN_EXE_local-volume-provisioner");

/// Where the disk with the state directory is plugged in.
const STATE: Place = Place::Scsi(63);

/// The cluster, the machine, and its disks.
pub struct Bench {
    pub stage: Stage,
    files: PathBuf,
    images: PathBuf,
    /// The disk with the state directory.
    pub state: Disk,
    /// Whether volumes have marks: they cost an emulated machine with many disks much of its processor.
    pub has_marks: bool,
    vm: RefCell<Option<Vm>>,
    starts: Cell<u32>,
    /// The port of this machine that leads to the HTTP server of the provisioner.
    http: Cell<u16>,
}

impl Bench {
    /// Everything but the machine's power.
    pub fn set() -> Option<Self> {
        let files = Vm::files()?;
        let mut stage = Stage::set(BINARY)?;
        stage.set_timeout(TIMEOUT);
        // Seen from the machine, the host's loopback has another address.
        let path = stage.sandbox.path().join("kubeconfig");
        let kubeconfig = fs::read_to_string(&path).unwrap().replace("127.0.0.1", "10.0.2.2");
        fs::write(&path, kubeconfig).unwrap();
        let images = stage.sandbox.dir("images").unwrap();
        let state_disk = Disk::new(&images, "state", 16 * MIB);
        state_disk.format("ext4");
        stage.sandbox.dir("state").unwrap();
        Some(Self {
            stage,
            files,
            images,
            state: state_disk,
            has_marks: false,
            vm: RefCell::new(None),
            starts: Cell::new(0),
            http: Cell::new(0),
        })
    }

    /// A new disk, full of a tenant's data.
    pub fn disk(&self, name: &str, size: u64) -> Disk {
        let disk = self.empty_disk(name, size);
        disk.fill();
        disk
    }

    /// A new disk, from the factory.
    pub fn empty_disk(&self, name: &str, size: u64) -> Disk {
        Disk::new(&self.images, name, size)
    }

    /// A class of raw devices with these settings; its directory.
    pub fn raw_class(&self, name: &str, settings: &Value) -> PathBuf {
        let mut settings = settings.clone();
        settings["volumeMode"] = json!("Block");
        self.stage.class(name, &settings)
    }

    /// Switches the machine on, and starts the provisioner in it.
    pub fn power_on(&self, disks: &[(&Disk, Place)]) {
        self.boot(disks);
        self.start_provisioner();
    }

    /// Switches the machine on, and mounts the state directory.
    pub fn boot(&self, disks: &[(&Disk, Place)]) {
        self.starts.set(self.starts.get() + 1);
        let share = self.stage.sandbox.path();
        let disks = [disks, &[(&self.state, STATE)]].concat();
        // QEMU takes no listener, so the port is free again for the moment until it listens.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let http = free.local_addr().unwrap().port();
        drop(free);
        self.http.set(http);
        let vm = Vm::start(&self.files, share, self.starts.get(), &disks, http).unwrap();
        self.vm.replace(Some(vm));
        let (device, share) = (STATE.path(), share.display());
        self.run(&format!("mount -t ext4 {} {share}/state", device.display()));
    }

    /// Starts the provisioner in the machine.
    pub fn start_provisioner(&self) {
        self.start_provisioner_on(&self.stage.node());
    }

    /// The same, if the machine is the node of this name.
    pub fn start_provisioner_on(&self, node: &str) {
        let (stage, number) = (&self.stage, self.starts.get());
        let share = stage.sandbox.path().display();
        let marks = self.has_marks.then(|| format!("{share}/state"));
        let marks = marks.unwrap_or_default();
        self.run(&format!(
            "MY_NODE_NAME={node} MY_NAMESPACE={} KUBECONFIG={share}/kubeconfig STATE_DIRECTORY={marks} local-volume-provisioner \
             --config {share}/config --kubelet-dir {share}/kubelet --listen-address :8080 \
             --discovery-period {PERIOD} --v=4 >{share}/provisioner-{number}.log 2>&1 &",
            stage.namespace(),
        ));
    }

    /// Creates the Pod by which the commands of operators find the provisioner of a node.
    pub fn provisioner_pod(&self, node: &str) {
        let stage = &self.stage;
        let pods: Api<Pod> = Api::namespaced(stage.client.clone(), "kube-system");
        let container = json!({
            "name": "provisioner", "image": "none",
            "env": [{ "name": "JOB_CONTAINER_IMAGE", "value": "none" }],
            "ports": [{ "containerPort": self.http.get() }],
        });
        let pod = json!({
            "metadata": { "name": "provisioner" },
            "spec": { "nodeName": node, "containers": [container] },
        });
        stage.create(&pods, pod);
        stage.eventually("the Pod has an address", || {
            stage.request(pods.get("provisioner")).status?.pod_ip
        });
    }

    /// Runs a command of operators on this machine.
    pub fn as_operator(&self, args: &[&str]) -> (Option<i32>, String) {
        let path = self.stage.sandbox.path().join("kubeconfig");
        let seen_from_vm = fs::read_to_string(path).unwrap();
        let here = self.stage.sandbox.path().join("kubeconfig-of-operator");
        fs::write(&here, seen_from_vm.replace("10.0.2.2", "127.0.0.1")).unwrap();
        let output = bare_command(BINARY).env("KUBECONFIG", here).args(args).output();
        let output = output.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }

    /// Cuts the machine's power.
    pub fn cut_power(&self) {
        if let Some(vm) = self.vm.take() {
            vm.cut_power();
        }
    }

    /// The commands of [`Vm`] to the machine.
    pub fn with_vm<T>(&self, act: impl FnOnce(&mut Vm) -> anyhow::Result<T>) -> T {
        let done = act(self.vm.borrow_mut().as_mut().unwrap());
        // Without the backtrace, which hides what follows.
        done.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Runs a line of shell in the machine.
    pub fn run(&self, line: &str) -> String {
        self.with_vm(|vm| vm.run(line))
    }

    /// The process id of the provisioner; fails when it does not run.
    pub fn provisioner(&self) -> String {
        self.run("pidof local-volume-provisioner").trim().to_owned()
    }

    /// Waits until a PV's volume is offered by a new PV.
    pub fn offered_again(&self, path: &Path, old: &PersistentVolume) -> PersistentVolume {
        self.stage.available(path, Some(&uid(old)))
    }

    /// Waits until `/status` shows an entry as skipped for this reason; it has no PV then.
    pub fn skipped(&self, path: &Path, reason: &str) {
        let what = format!("{} skipped as {reason}", path.display());
        self.stage.eventually(&what, || {
            let status: Value = serde_json::from_str(&self.status()?).unwrap();
            let is_skipped = |volume: &Value| {
                volume["path"].as_str().map(Path::new) == Some(path) && volume["reason"] == reason
            };
            volumes(&status).any(is_skipped).then_some(())
        });
        assert!(self.stage.pvs_at(path).is_empty());
    }

    /// `None`: a request failed, and the provisioner runs.
    pub fn status(&self) -> Option<String> {
        let read = |vm: &mut Vm| Ok(vm.run("wget -qO- http://127.0.0.1:8080/status"));
        let read = self.with_vm(read);
        if let Err(why) = &read {
            eprintln!("{why:#}; the provisioner is process {}", self.provisioner());
        }
        read.ok()
    }

    /// Whether a PV is still the same object.
    pub fn is_kept(&self, pv: &PersistentVolume) -> bool {
        let now = self.stage.pv(&name(pv));
        now.is_some_and(|now| uid(&now) == uid(pv))
    }

    /// Asserts that a PV is still the same object after a whole pass of the provisioner.
    pub fn stays(&self, pv: &PersistentVolume) {
        let process = self.provisioner();
        self.stage.passes(|| self.status());
        assert_eq!(self.provisioner(), process, "the provisioner lives");
        assert!(self.is_kept(pv), "the PV is not kept");
    }

    /// What the provisioner has logged since the machine was first switched on.
    pub fn log(&self) -> String {
        let logs = (1..=self.starts.get()).map(|number| {
            let file = self.stage.sandbox.path().join(format!("provisioner-{number}.log"));
            fs::read_to_string(file).unwrap_or_default()
        });
        logs.collect::<Vec<_>>().join("--- power on ---\n")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the provisioner's log ---\n{}---", self.log());
        }
    }
}
