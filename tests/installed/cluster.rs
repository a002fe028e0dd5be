//! The cluster, through `kubectl`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use support::Seen;

/// The one node of `scripts/cluster`.
pub const NODE: &str = "node-real";
/// What `scripts/cluster run` gives to its commands; there is no such file elsewhere.
const KUBECONFIG: &str = "/run/cluster/admin.kubeconfig";
/// Where the provisioner is installed.
pub const SYSTEM: &str = "storage-system";
/// Where its users' pods and claims are.
pub const USERS: &str = "default";
/// How long anything may take that ought to happen soon, on a busy machine with two cores.
pub const TIMEOUT: Duration = Duration::from_mins(2);

/// A cluster with a real node, which one test at a time may change.
pub struct Cluster {
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// The cluster, cleared of what a crashed test may have left; `None`, and said so, where there
    /// is none.
    pub fn enter() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        if std::env::var_os("TEST_NODE").is_none() {
            support::skip("it needs a node with a kubelet: scripts/test --installed");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Self { _alone: alone };
        cluster.is_for_tests().unwrap();
        cluster.clear();
        Some(cluster)
    }

    /// Makes sure that this is a cluster of the tests: everything in it is going to be deleted.
    fn is_for_tests(&self) -> Result<()> {
        let config = std::env::var("KUBECONFIG").unwrap_or_default();
        let nodes = self.kubectl(&["get", "nodes", "--output=name"])?;
        if config != KUBECONFIG || nodes.trim() != format!("node/{NODE}") {
            bail!("{config:?} with {nodes:?} is not the cluster of scripts/cluster");
        }
        Ok(())
    }

    /// Removes all that tests make. Only ever asked in a cluster that exists for tests.
    pub fn clear(&self) {
        let quietly = ["--ignore-not-found", "--wait=false"];
        let users = format!("--namespace={USERS}");
        for kinds in ["statefulsets,pods", "persistentvolumeclaims"] {
            let mut args = vec!["delete", kinds, "--all", &users, "--grace-period=1"];
            args.extend(quietly);
            self.kubectl(&args).unwrap();
        }
        self.eventually("pods and claims of an earlier test are gone", || {
            let left = self.list("pods,persistentvolumeclaims", Some(USERS));
            left.is_empty()
        });
        for pv in self.pvs() {
            let none = r#"{"metadata":{"finalizers":null}}"#;
            let name = name(&pv);
            let _ = self.kubectl(&["patch", "pv", name, "--type=merge", "--patch", none]);
        }
        let mut args = vec!["delete", "persistentvolumes,storageclasses", "--all"];
        args.extend(quietly);
        self.kubectl(&args).unwrap();
        self.eventually("PVs of an earlier test are gone", || self.pvs().is_empty());
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SYSTEM },
        });
        self.apply(&namespace);
    }

    /// Runs `kubectl`; what it prints.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        run(Command::new("kubectl").args(args), "")
    }

    /// Makes or changes an object.
    pub fn apply(&self, object: &Value) {
        self.try_apply(object).unwrap();
    }

    /// Makes or changes an object, or says why the API server refused.
    pub fn try_apply(&self, object: &Value) -> Result<String> {
        self.manifests("apply", &object.to_string())
    }

    /// Runs `kubectl apply`, `replace` or `delete` on manifests; what it prints.
    pub fn manifests(&self, command: &str, manifests: &str) -> Result<String> {
        let args = command.split(' ').chain(["--filename", "-"]);
        run(Command::new("kubectl").args(args), manifests)
    }

    /// Reads an object.
    pub fn get(&self, kind: &str, name: &str, namespace: Option<&str>) -> Option<Value> {
        let namespace = format!("--namespace={}", namespace.unwrap_or_default());
        let args = ["get", kind, name, &namespace, "--ignore-not-found", "-ojson"];
        let text = self.kubectl(&args).unwrap();
        (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap())
    }

    /// Waits until there is no such object.
    pub fn is_gone(&self, kind: &str, name: &str, namespace: Option<&str>) {
        self.eventually(&format!("{kind} {name} is gone"), || {
            self.get(kind, name, namespace).is_none()
        });
    }

    /// Reads all objects of some kinds.
    pub fn list(&self, kinds: &str, namespace: Option<&str>) -> Vec<Value> {
        let namespace = match namespace {
            Some(namespace) => format!("--namespace={namespace}"),
            None => "--all-namespaces".into(),
        };
        let text = self.kubectl(&["get", kinds, &namespace, "-ojson"]).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// The PVs.
    pub fn pvs(&self) -> Vec<Value> {
        self.list("persistentvolumes", None)
    }

    /// The PVs of a class that are in a phase and not Terminating.
    pub fn pvs_in(&self, class: &str, phase: &str) -> Vec<Value> {
        let mut pvs = self.pvs();
        pvs.retain(|pv| {
            pv["spec"]["storageClassName"] == class
                && pv["status"]["phase"] == phase
                && pv["metadata"]["deletionTimestamp"].is_null()
        });
        pvs
    }

    /// Waits until an object has an event of this reason.
    pub fn event(&self, object: &Value, reason: &str) {
        let (name, uid) = (name(object), &object["metadata"]["uid"]);
        self.eventually(&format!("event {reason} of {name}"), || {
            let events = self.events(name);
            events
                .iter()
                .any(|event| event["reason"] == reason && event["involvedObject"]["uid"] == *uid)
        });
    }

    /// The events of an object of this name.
    pub fn events(&self, name: &str) -> Vec<Value> {
        let of = format!("--field-selector=involvedObject.name={name}");
        let args = ["get", "events", "--all-namespaces", &of, "-ojson"];
        let list: Value = serde_json::from_str(&self.kubectl(&args).unwrap()).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until so many volumes of a class are Available.
    pub fn available(&self, class: &str, count: usize) -> Vec<Value> {
        self.eventually(&format!("{count} Available PVs of class {class}"), || {
            let pvs = self.pvs_in(class, "Available");
            (pvs.len() == count).then_some(pvs)
        })
    }

    /// Waits until a PV is in a phase.
    pub fn in_phase(&self, pv: &Value, phase: &str) {
        self.eventually(&format!("PV {} is {phase}", name(pv)), || {
            let now = self.get("persistentvolume", name(pv), None)?;
            (now["status"]["phase"] == phase).then_some(())
        });
    }

    /// Waits until a PV was replaced by another Available one for the same path, and that is all
    /// there is for this path.
    pub fn recycled(&self, old: &Value) -> Value {
        let path = &old["spec"]["local"]["path"];
        self.eventually(&format!("{path} is offered again"), || {
            let mut pvs = self.pvs();
            pvs.retain(|pv| pv["spec"]["local"]["path"] == *path);
            let [pv] = &pvs[..] else { return None };
            let is_fresh = pv["metadata"]["uid"] != old["metadata"]["uid"]
                && pv["status"]["phase"] == "Available";
            is_fresh.then(|| pv.clone())
        })
    }

    /// The PV that a claim is bound to, once it is.
    pub fn bound(&self, claim: &str) -> Value {
        self.eventually(&format!("claim {claim} is bound"), || {
            let found = self.get("persistentvolumeclaim", claim, Some(USERS))?;
            (found["status"]["phase"] == "Bound").then_some(())?;
            self.get("persistentvolume", found["spec"]["volumeName"].as_str()?, None)
        })
    }

    /// Makes a claim.
    pub fn claim(&self, name: &str, class: &str, mode: &str) {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": USERS },
            "spec": {
                "storageClassName": class, "volumeMode": mode, "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Mi" } },
            },
        }));
    }

    /// Makes a claim, and a pod that writes `file` to its volume; the PV.
    pub fn write(&self, claim: &str, class: &str) -> Value {
        self.claim(claim, class, "Filesystem");
        let script = format!("echo data of {claim} >/data/file; sync");
        self.run_pod("writer", claim, "Filesystem", &script);
        self.bound(claim)
    }

    /// Deletes a claim, and waits until it is gone.
    pub fn delete_claim(&self, name: &str) {
        self.delete("persistentvolumeclaim", name, &[]);
    }

    /// Deletes something of the users, and waits until it is gone.
    pub fn delete(&self, kind: &str, name: &str, args: &[&str]) {
        let namespace = format!("--namespace={USERS}");
        let mut all = vec!["delete", kind, name, &namespace, "--timeout=90s"];
        all.extend(args);
        self.kubectl(&all).unwrap();
    }

    /// Deletes a pod of the provisioner's by force.
    pub fn kill_pod(&self, name: &str) {
        let force = ["--namespace", SYSTEM, "--force", "--grace-period=0"];
        let args = [&["delete", "pod", name][..], &force].concat();
        self.kubectl(&args).unwrap();
    }

    /// Makes a pod whose only container runs a shell script over the volume of a claim: a filesystem
    /// at `/data`, or a device at `/dev/data`.
    pub fn pod(&self, name: &str, claim: &str, mode: &str, script: &str) {
        let mut container = json!({
            "name": "main", "image": "test/busybox:1", "imagePullPolicy": "Never",
            "command": ["sh", "-c", script],
        });
        if mode == "Block" {
            container["volumeDevices"] = json!([{ "name": "data", "devicePath": "/dev/data" }]);
        } else {
            container["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
        }
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": USERS },
            "spec": {
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [container],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
            },
        }));
    }

    /// Waits until a pod of the users is in a phase.
    pub fn pod_in_phase(&self, name: &str, phase: &str) {
        self.eventually(&format!("pod {name} {phase}"), || {
            let pod = self.get("pod", name, Some(USERS))?;
            let found = pod["status"]["phase"].as_str().unwrap_or_default().to_owned();
            assert!(
                found != "Failed" || phase == "Failed",
                "pod {name} failed: {}",
                self.logs(name)
            );
            (found == phase).then_some(())
        });
    }

    /// Runs a pod to its end; what it printed.
    pub fn run_pod(&self, name: &str, claim: &str, mode: &str, script: &str) -> String {
        self.pod(name, claim, mode, script);
        self.pod_in_phase(name, "Succeeded");
        let said = self.logs(name);
        self.delete("pod", name, &[]);
        said
    }

    /// What a pod of the users has printed.
    pub fn logs(&self, name: &str) -> String {
        let namespace = format!("--namespace={USERS}");
        self.kubectl(&["logs", name, &namespace]).unwrap_or_default()
    }

    /// Waits until something is so.
    pub fn eventually<S: Seen>(&self, what: &str, is_so: impl FnMut() -> S) -> S::Found {
        eventually(what, is_so)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // After a failure the next test clears up, so that the state can be inspected.
        if !std::thread::panicking() {
            self.clear();
        }
    }
}

/// An object's name.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Where a PV's volume is.
pub fn path(pv: &Value) -> &Path {
    Path::new(pv["spec"]["local"]["path"].as_str().unwrap())
}

/// Waits until something is so.
pub fn eventually<S: Seen>(what: &str, is_so: impl FnMut() -> S) -> S::Found {
    support::until(TIMEOUT, Duration::from_millis(50), is_so)
        .unwrap_or_else(|| panic!("not within {TIMEOUT:?}: {what}"))
}

/// Runs a program with some input; its output, or the error that it printed.
pub fn run(command: &mut Command, input: &str) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}{}",
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}
