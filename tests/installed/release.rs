//! The provisioner, installed with Helm.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};
use support::passes::{TwoPasses, is_at_rest, volumes, wake};

use crate::cluster::{Cluster, SYSTEM, eventually, name, run};
use crate::disks::{Disks, MIB};

pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/helm/local-volume-provisioner");
/// The image that `scripts/cluster image` makes of this checkout.
pub const IMAGE: &str = "docker.io/library/local-volume-provisioner:test";
/// The release, and with `fullnameOverride` every object of it.
pub const NAME: &str = "local-volumes";

/// The default `terminationMessagePath`. The runtime creates this file in the node's `/dev` if the container mounts that.
/// A file that an earlier pod left would hide that it cannot be created where `/dev` is mounted read-only.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// A version of the chart, with its image.
pub struct Version {
    pub chart: String,
    pub image: String,
}

impl Version {
    /// That of this checkout.
    pub fn this() -> Self {
        Self { chart: CHART.into(), image: IMAGE.into() }
    }

    /// The former one, which `scripts/test --upgrade` exports and builds.
    pub fn former() -> Option<Self> {
        let chart = std::env::var("TEST_FORMER_CHART");
        let image = std::env::var("TEST_FORMER_IMAGE");
        let (Ok(chart), Ok(image)) = (chart, image) else {
            support::skip("it needs a former version: scripts/test --upgrade");
            return None;
        };
        Some(Self { chart, image })
    }
}

/// An installed release; uninstalled with this.
pub struct Release<'a> {
    cluster: &'a Cluster,
    name: &'static str,
    chart: String,
    values: Value,
    installed: String,
    /// The pods of an earlier release, which may still report their end, without its role.
    former_pods: Vec<String>,
    may_be_forbidden: bool,
    gone: bool,
}

impl<'a> Release<'a> {
    /// Installs the chart with these classes and other values, and waits until the pods are ready.
    pub fn install(cluster: &'a Cluster, classes: Value, values: Value) -> Self {
        Self::named(NAME, cluster, classes, values)
    }

    /// Installs it with another name.
    pub fn named(name: &'static str, cluster: &'a Cluster, classes: Value, values: Value) -> Self {
        Self::of(&Version::this(), name, cluster, classes, values)
    }

    /// Installs a version with a name.
    pub fn of(
        version: &Version,
        name: &'static str,
        cluster: &'a Cluster,
        classes: Value,
        values: Value,
    ) -> Self {
        // A crashed test's.
        let _ = helm(&["uninstall", name, "--no-hooks", "--wait", "--ignore-not-found"], "");
        let _ = fs::remove_file(TERMINATION_LOG);
        assert!(!Path::new(TERMINATION_LOG).exists());
        let pods = cluster.list("pods", Some(SYSTEM));
        let mut release = Self {
            cluster,
            name,
            chart: version.chart.clone(),
            values: all_values(name, classes, values),
            installed: now(),
            former_pods: pods.iter().map(|pod| crate::cluster::name(pod).to_owned()).collect(),
            may_be_forbidden: false,
            gone: false,
        };
        release.values["image"] = json!(version.image);
        release.deploy().unwrap();
        release
    }

    /// Deploys a version in its place, with other classes.
    pub fn redeploy(&mut self, version: &Version, classes: Value) {
        self.chart.clone_from(&version.chart);
        self.values["image"] = json!(version.image);
        self.values["classes"] = classes;
        self.deploy().unwrap();
    }

    /// Installs the chart with one class with these settings.
    pub fn over(cluster: &'a Cluster, disks: &Disks, name: &str, settings: Value) -> Self {
        let classes = json!([class(name, &disks.class(name), settings)]);
        Self::install(cluster, classes, json!({}))
    }

    /// A release with one class of this number of disks, which are offered.
    pub fn with_disks(
        cluster: &'a Cluster,
        name: &str,
        count: usize,
        values: Value,
    ) -> (Disks, Self) {
        let mut disks = Disks::new(name);
        for number in 0..count {
            disks.filesystem(name, &format!("disk-{number}"), "ext4", 32 * MIB);
        }
        let classes = json!([class(name, &disks.class(name), json!({}))]);
        let release = Self::install(cluster, classes, values);
        cluster.available(name, count);
        (disks, release)
    }

    fn deploy(&self) -> Result<String> {
        let options = ["--values=-", "--wait", "--timeout=2m"];
        let args = [&["upgrade", "--install", self.name, &self.chart][..], &options].concat();
        let deployed = helm(&args, &self.values.to_string());
        if deployed.is_err() {
            let pods = self.cluster.kubectl(&["describe", "pods", "--namespace", SYSTEM]);
            eprintln!("{}", pods.unwrap_or_default());
            eprintln!("{}", self.logs());
        }
        deployed
    }

    /// This test removes permissions.
    pub fn expects_forbidden(&mut self) {
        self.may_be_forbidden = true;
    }

    /// Uninstalls it as users do; the output of Helm. A minute of this is the absence that the hook waits for.
    pub fn uninstall(mut self) -> Result<String> {
        let said = helm(&["uninstall", self.name, "--wait", "--timeout=3m"], "");
        self.gone = said.is_ok();
        said
    }

    /// Another client has uninstalled it.
    pub fn was_uninstalled(mut self) {
        self.gone = true;
    }

    /// Uninstalls it, and leaves the finalizers on.
    pub fn uninstall_without_hooks(mut self) {
        helm(&["uninstall", self.name, "--no-hooks", "--wait"], "").unwrap();
        self.gone = true;
    }

    /// What was asked with our service accounts and refused, since the installation.
    fn forbidden(&self) -> Vec<String> {
        let Some(log) = std::env::var_os("TEST_AUDIT_LOG") else {
            return Vec::new();
        };
        let log = fs::read_to_string(log).unwrap();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let account = format!("system:serviceaccount:{SYSTEM}:{}", self.name);
        lines
            .filter(|line| {
                let user = line["user"]["username"].as_str().unwrap_or_default();
                let at = line["requestReceivedTimestamp"].as_str().unwrap_or_default();
                user.starts_with(&account)
                    && at >= self.installed.as_str()
                    && line["responseStatus"]["code"] == 403
            })
            .filter(|line| {
                let pod = &line["user"]["extra"]["authentication.kubernetes.io/pod-name"][0];
                !self.former_pods.iter().any(|it| pod == it)
            })
            .map(|line| {
                format!(
                    "{} {}: {}",
                    line["verb"], line["requestURI"], line["responseStatus"]["message"]
                )
            })
            .collect()
    }

    /// The provisioner's pods.
    pub fn pods(&self) -> Vec<Value> {
        let mut pods = self.cluster.list("pods", Some(SYSTEM));
        pods.retain(|pod| {
            let owner = &pod["metadata"]["ownerReferences"][0];
            owner["kind"] == "DaemonSet" && owner["name"] == self.name
        });
        pods
    }

    /// The provisioner's one pod, when it is ready.
    pub fn pod(&self) -> Value {
        eventually("the provisioner's pod is ready", || {
            let pods = self.pods();
            let [pod] = &pods[..] else { return None };
            let conditions = pod["status"]["conditions"].as_array()?;
            let ready = conditions
                .iter()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
            (ready && pod["metadata"]["deletionTimestamp"].is_null()).then(|| pod.clone())
        })
    }

    /// What the provisioner's pods have logged.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for pod in self.pods() {
            let args = ["logs", name(&pod), "--namespace", SYSTEM];
            all += &self.cluster.kubectl(&args).unwrap_or_default();
        }
        all
    }

    /// A page of the provisioner's HTTP server.
    pub fn http(&self, path: &str) -> String {
        let answer = || self.http_of(&self.pod(), path).ok();
        self.cluster.eventually(&format!("an answer to {path}"), answer)
    }

    fn http_of(&self, pod: &Value, path: &str) -> Result<String> {
        let pods = format!("/api/v1/namespaces/{SYSTEM}/pods");
        let proxy = format!("{pods}/{}:8080/proxy{path}", name(pod));
        self.cluster.kubectl(&["get", "--raw", &proxy])
    }

    /// Asserts that something is so after the provisioner has made two whole passes over all PVs as they are
    /// now, and no cleanup runs.
    pub fn still(&self, what: &str, is_so: impl FnOnce() -> bool) {
        let mut passes = TwoPasses::default();
        eventually("two passes that see all PVs", || {
            self.wake();
            // It need not be ready: while the kubelet hangs, no pod of the node is.
            let pods = self.pods();
            let [pod] = &pods[..] else { return None };
            let body = self.http_of(pod, "/status").ok()?;
            let pvs = self.cluster.pvs();
            let version = |pv: &Value| pv["metadata"]["resourceVersion"].as_str()?.parse().ok();
            let newest = || pvs.iter().filter_map(version).max().unwrap_or(0);
            let status = passes.ended(&body, newest)?;
            let is_there = |volume: &Value| {
                let pv = volume["pv"].as_str();
                pv.is_none_or(|pv| pvs.iter().any(|it| name(it) == pv))
            };
            (is_at_rest(&status) && volumes(&status).all(is_there)).then_some(())
        });
        assert!(is_so(), "no longer so: {what}");
    }

    /// Wakes the provisioner in all discovery directories.
    fn wake(&self) {
        for class in self.values["classes"].as_array().into_iter().flatten() {
            wake(Path::new(class["hostDir"].as_str().unwrap()));
        }
    }

    /// The provisioner's process on the node.
    pub fn process(&self) -> procfs::process::Process {
        let uid = self.pod()["metadata"]["uid"].as_str().unwrap().to_owned();
        eventually("the provisioner's process", || {
            procfs::process::all_processes().ok()?.flatten().find(|process| {
                let is_ours = process.cmdline().is_ok_and(|words| {
                    words.first().is_some_and(|word| word == "/local-volume-provisioner")
                });
                let groups = process.cgroups().map(|groups| groups.0).unwrap_or_default();
                is_ours && groups.iter().any(|group| group.pathname.contains(&uid))
            })
        })
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.may_be_forbidden {
            let forbidden = self.forbidden();
            assert!(forbidden.is_empty(), "the chart's role lacks: {forbidden:?}");
        }
        if self.gone {
            return;
        }
        if std::thread::panicking() {
            eprintln!("=== what the provisioner logged\n{}", self.logs());
            let pvs = self.cluster.kubectl(&["get", "pv,pvc,pods", "-A", "-owide"]);
            eprintln!("=== what is there\n{}", pvs.unwrap_or_default());
        }
        let _ = helm(&["uninstall", self.name, "--no-hooks", "--wait", "--timeout=1m"], "");
    }
}

/// The values of an installation with these classes and other values.
fn all_values(name: &str, classes: Value, values: Value) -> Value {
    let mut all = json!({
        "fullnameOverride": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "minReadySeconds": 0,
    });
    merge(&mut all, values);
    all["classes"] = classes;
    all
}

/// What `helm template` makes of these classes, values and arguments.
pub fn render(classes: Value, values: Value, args: &[&str]) -> String {
    let args = [&["template", NAME, CHART, "--values=-"], args].concat();
    helm(&args, &all_values(NAME, classes, values).to_string()).unwrap()
}

/// A class over a directory, as the chart's values have it.
pub fn class(name: &str, dir: &Path, more: Value) -> Value {
    let mut class = json!({
        "name": name, "hostDir": dir, "mountDir": format!("/mnt/{name}"), "storageClass": true,
    });
    merge(&mut class, more);
    class
}

/// Runs Helm in the provisioner's namespace.
pub fn helm(args: &[&str], input: &str) -> Result<String> {
    run(Command::new("helm").args(args).args(["--namespace", SYSTEM]), input)
}

/// Lays values over others, as Helm does.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The time, as the audit log writes it.
fn now() -> String {
    jiff::Timestamp::now().to_string()
}
