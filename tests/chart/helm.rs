//! Helm, as far as the tests need it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use support::{skip, tool};

/// The release and its namespace in all tests.
pub const RELEASE: &str = "lvp";
pub const NAMESPACE: &str = "disks";
/// The Kubernetes that is rendered for.
const KUBE_VERSION: &str = "1.33.0";

/// The chart's directory.
pub fn chart_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("helm/local-volume-provisioner")
}

/// One of the values files of these tests.
pub fn values_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart/values").join(name)
}

/// A program that renders the chart.
#[derive(Clone, Debug)]
pub struct Helm(PathBuf);

impl Helm {
    /// The one that `HELM` names, else the one that `scripts/cluster` has built, else that of the
    /// machine. Without any, the test is skipped.
    pub fn find() -> Option<Self> {
        let found = tool("HELM", "cluster/bin/helm", "helm", "version");
        if found.is_none() {
            skip("there is no helm: install it, or build it by scripts/cluster tools");
        }
        found.map(Self)
    }

    /// The program's path.
    pub fn program(&self) -> &Path {
        &self.0
    }

    /// Runs it, in a cluster if a kubeconfig is given: what it prints, or else what it complains of.
    pub fn run(&self, kubeconfig: Option<&OsStr>, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.0);
        command.args(args);
        if let Some(kubeconfig) = kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        let Output { status, stdout, stderr } =
            command.output().map_err(|error| error.to_string())?;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if status.success() { Ok(text(stdout)) } else { Err(text(stderr)) }
    }

    /// What `helm template` makes of values files and `--set` arguments, or what it says instead.
    pub fn template(&self, files: &[PathBuf], sets: &[&str]) -> Result<Objects, String> {
        self.template_as(RELEASE, NAMESPACE, files, sets)
    }

    /// Renders another release in another namespace. An image is always set, and a class unless `sets` name some.
    pub fn template_as(
        &self,
        release: &str,
        namespace: &str,
        files: &[PathBuf],
        sets: &[&str],
    ) -> Result<Objects, String> {
        let chart = chart_dir();
        let mut args = vec!["template", release, chart.to_str().unwrap()];
        args.extend(["--namespace", namespace, "--kube-version", KUBE_VERSION]);
        let names_classes = sets.iter().any(|set| set.contains("classes"));
        let mut all = vec![values_file("base.yaml")];
        all.extend((!names_classes).then(|| values_file("class.yaml")));
        all.extend_from_slice(files);
        for file in &all {
            args.extend(["--values", file.to_str().unwrap()]);
        }
        for set in sets {
            args.extend(["--set", set]);
        }
        self.run(None, &args).map(|text| Objects::parse(&text))
    }

    /// What the chart's own values with a few settings render to.
    pub fn render(&self, sets: &[&str]) -> Objects {
        self.template(&[], sets).unwrap_or_else(|error| panic!("{sets:?}: {error}"))
    }

    fn template_values(&self, values: &Value) -> Result<Objects, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "{values}").unwrap();
        self.template(&[file.path().to_owned()], &[])
    }

    /// What the chart's own values with these laid over them render to.
    pub fn render_values(&self, values: &Value) -> Objects {
        self.template_values(values).unwrap_or_else(|error| panic!("{values}: {error}"))
    }

    /// The error for values that are not accepted.
    pub fn refusal_of(&self, values: &Value) -> String {
        match self.template_values(values) {
            Err(error) => error,
            Ok(_) => panic!("{values} is accepted"),
        }
    }

    /// What one of the tests' values files renders to.
    pub fn render_file(&self, name: &str, sets: &[&str]) -> Objects {
        self.template(&[values_file(name)], sets)
            .unwrap_or_else(|error| panic!("{name} {sets:?}: {error}"))
    }

    /// What is said to settings that are not accepted.
    pub fn refusal(&self, sets: &[&str]) -> String {
        match self.template(&[], sets) {
            Err(error) => error,
            Ok(_) => panic!("{sets:?} is accepted"),
        }
    }
}

/// Rendered objects. Each has only fields that Kubernetes knows.
#[derive(Debug)]
pub struct Objects(pub Vec<Value>);

impl Objects {
    fn parse(text: &str) -> Self {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        for object in &objects {
            assert_known(object);
        }
        Self(objects)
    }

    /// The names of all objects of a kind.
    pub fn names(&self, kind: &str) -> Vec<&str> {
        let of_kind = self.0.iter().filter(|object| object["kind"] == kind);
        of_kind.map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
    }

    /// The object of a kind and name.
    pub fn get(&self, kind: &str, name: &str) -> &Value {
        let found = self
            .0
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}, only {:?}", self.names(kind)))
    }

    /// The only object of a kind.
    pub fn only(&self, kind: &str) -> &Value {
        match self.names(kind)[..] {
            [name] => self.get(kind, name),
            ref names => panic!("not one {kind} but {names:?}"),
        }
    }

    /// The specs of all pods, by the kind of their object.
    pub fn pods(&self) -> Vec<(&str, &Value)> {
        let pod = |object| Value::pointer(object, "/spec/template/spec");
        let pods = self.0.iter().filter_map(|object| pod(object).map(|pod| (object, pod)));
        pods.map(|(object, pod)| (object["kind"].as_str().unwrap(), pod)).collect()
    }

    /// The DaemonSet's pod.
    pub fn pod(&self) -> &Value {
        &self.only("DaemonSet")["spec"]["template"]["spec"]
    }

    /// The provisioner's container.
    pub fn container(&self) -> &Value {
        let containers = self.pod()["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        &containers[0]
    }

    /// The ConfigMap's data.
    pub fn config(&self) -> &Value {
        &self.only("ConfigMap")["data"]
    }

    /// A key of the ConfigMap, which holds YAML.
    pub fn setting(&self, key: &str) -> Value {
        match &self.config()[key] {
            Value::String(text) => serde_saphyr::from_str(text).unwrap(),
            other => other.clone(),
        }
    }
}

/// The entry of a list that has a name.
pub fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let items = list.as_array().unwrap().iter();
    let mut found = items.filter(|item| item["name"] == name);
    let first = found.next().unwrap_or_else(|| panic!("no {name} in {list:#}"));
    assert!(found.next().is_none(), "{name} twice in {list:#}");
    first
}

/// Asserts that all fields of an object are known to Kubernetes, and have the right types.
fn assert_known(object: &Value) {
    let kind = object["kind"].as_str().unwrap();
    let known = match kind {
        "ClusterRole" => reread::<ClusterRole>(object),
        "ClusterRoleBinding" => reread::<ClusterRoleBinding>(object),
        "ConfigMap" => reread::<ConfigMap>(object),
        "DaemonSet" => reread::<DaemonSet>(object),
        "Deployment" => reread::<Deployment>(object),
        "Job" => reread::<Job>(object),
        "NetworkPolicy" => reread::<NetworkPolicy>(object),
        "Pod" => reread::<Pod>(object),
        "PodDisruptionBudget" => reread::<PodDisruptionBudget>(object),
        "Role" => reread::<Role>(object),
        "RoleBinding" => reread::<RoleBinding>(object),
        "Service" => reread::<Service>(object),
        "ServiceAccount" => reread::<ServiceAccount>(object),
        "StorageClass" => reread::<StorageClass>(object),
        "ValidatingAdmissionPolicy" => reread::<ValidatingAdmissionPolicy>(object),
        "ValidatingAdmissionPolicyBinding" => reread::<ValidatingAdmissionPolicyBinding>(object),
        // Of the Prometheus operator.
        "PodMonitor" | "PrometheusRule" | "ServiceMonitor" => return,
        other => panic!("what is a {other}?"),
    };
    assert_within(kind, object, &known);
}

fn reread<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone())
        .unwrap_or_else(|error| panic!("{error} in {object:#}"));
    serde_json::to_value(typed).unwrap()
}

/// Asserts that nothing was lost on the way from `given` to `known`.
fn assert_within(place: &str, given: &Value, known: &Value) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (key, value) in given {
                let place = format!("{place}.{key}");
                let known =
                    known.get(key).unwrap_or_else(|| panic!("{place} is no field of Kubernetes"));
                assert_within(&place, value, known);
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            assert_eq!(given.len(), known.len(), "{place}");
            for (value, known) in given.iter().zip(known) {
                assert_within(place, value, known);
            }
        }
        _ => assert_eq!(given, known, "{place}"),
    }
}
