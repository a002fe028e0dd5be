//! The disks, the configuration and the processes of the story.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Error, Result, ensure};
use support::{Program, Sandbox, bare_command};

use crate::cluster::{Cluster, NAMESPACE, NODE};
use crate::disks::{DEVICES, Disk, FILESYSTEMS, Machine};

/// The provisioner's file, which cargo puts beside this program's.
const PROVISIONER: &str = "local-volume-provisioner";

/// The parts of the story that exist from its beginning. They vanish with the process.
pub struct Fixture {
    pub sandbox: Sandbox,
    pub machine: Machine,
    pub cluster: Cluster,
    pub provisioner: Option<Program>,
    binary: PathBuf,
}

impl Fixture {
    /// Mounts the disks, writes the configuration and starts the control plane.
    pub fn create(sandbox: Sandbox) -> Result<Self> {
        let binary = std::env::current_exe()?.with_file_name(PROVISIONER);
        ensure!(binary.is_file(), "there is no {}; cargo build makes it", binary.display());
        let machine = Machine::mount(&sandbox)?;
        // As the kubelet has it on a node on which no pod uses a volume.
        sandbox.dir("kubelet/pods/of-something-else")?;
        sandbox.dir("kubelet/plugins")?;
        let config = sandbox.dir("config")?;
        fs::write(config.join("protectReleasedData"), "true\n")?;
        let fixture = Self {
            cluster: Cluster::start(&sandbox)?,
            sandbox,
            machine,
            provisioner: None,
            binary,
        };
        fs::write(config.join("storageClassMap"), fixture.storage_class_map())?;
        Ok(fixture)
    }

    /// The heart of the configuration: which directory is which class.
    pub fn storage_class_map(&self) -> String {
        let class = |name: &str| {
            let dir = self.sandbox.path().join(name);
            let mode = if name == DEVICES { "  volumeMode: Block\n" } else { "" };
            format!("{name}:\n  hostDir: {0}\n  mountDir: {0}\n{mode}", dir.display())
        };
        self.classes().into_iter().map(class).collect()
    }

    /// The classes that have a disk.
    pub fn classes(&self) -> Vec<&'static str> {
        let raw = self.machine.disks.iter().any(Disk::is_raw).then_some(DEVICES);
        [FILESYSTEMS].into_iter().chain(raw).collect()
    }

    /// What `discover` says about the disks, without any cluster.
    pub fn discover(&self) -> Result<String> {
        let output = self.command("discover").output().context("running discover")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "discover: {}\n{errors}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts the provisioner. It dies with us.
    pub fn start_provisioner(&mut self) -> Result<()> {
        let mut command = self.command("run");
        command
            .env("MY_NAMESPACE", NAMESPACE)
            .env("STATE_DIRECTORY", self.sandbox.dir("state")?)
            .env("KUBECONFIG", self.sandbox.path().join("kubeconfig"))
            .arg("--kubelet-dir")
            .arg(self.sandbox.path().join("kubelet"))
            .args(["--listen-address", "127.0.0.1:0"]);
        self.provisioner = Some(Program::start(command, self.log_file())?);
        Ok(())
    }

    /// What the provisioner answers over HTTP.
    pub fn http(&mut self, path: &str) -> Result<String> {
        let provisioner = self.provisioner.as_mut().context("the provisioner has not started")?;
        let (code, body) = provisioner.http_get(path)?;
        ensure!(code == 200, "{path} of the provisioner answers {code}: {body}");
        Ok(body)
    }

    /// What the provisioner has logged.
    pub fn log(&self) -> String {
        self.provisioner.as_ref().map(Program::log).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.sandbox.path().join("provisioner.log")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = bare_command(&self.binary);
        command
            .env("MY_NODE_NAME", NODE)
            .arg(name)
            .arg("--config")
            .arg(self.sandbox.path().join("config"));
        command
    }
}

/// What may keep us from a mount namespace: a kernel setting, the value that forbids it, and one that
/// does not.
const FORBIDDING: [(&str, &str, &str); 4] = [
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
    ("user.max_mnt_namespaces", "0", "10000"),
];

/// What to do on a machine that lets us have no mount namespace: one sentence.
pub fn forbidden(error: &Error) -> String {
    let is_set = |name: &str, value: &str| {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
    };
    let remedy = FORBIDDING.iter().find(|(name, forbids, _)| is_set(name, forbids)).map_or_else(
        || "start the container that this is with --privileged".to_owned(),
        |(name, _, allows)| format!("allow it with: sysctl -w {name}={allows}"),
    );
    let root = if nix::unistd::geteuid().is_root() { "" } else { "run this as root, or " };
    format!("this machine allows no mount namespace of our own ({error:#}); {root}{remedy}")
}
