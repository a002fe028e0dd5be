//! Who answers, and the `kubectl` that asks.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use control_plane::{ControlPlane, NodeOptions, Options};
use tempfile::TempDir;

use crate::{normal::normal, story::trimmed};

/// The version whose words the stories have.
const KUBECTL: &str = "v1.36.";

pub struct Server {
    embedded: Option<ControlPlane>,
    /// The node's name.
    node: String,
    namespace: String,
    /// Where its commands run.
    directory: TempDir,
    path: String,
}

impl Server {
    /// With a namespace of the story's own, which is where its commands look first.
    pub fn for_story(story: &str) -> Option<Self> {
        let path = path_with_kubectl()?;
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join(".kubeconfig");
        let embedded = match env::var_os("TEST_KUBECONFIG") {
            Some(real) => {
                fs::copy(real, &kubeconfig).unwrap();
                None
            }
            None => Some(embedded(&directory.path().join(".logs"))),
        };
        if let Some(embedded) = &embedded {
            fs::write(&kubeconfig, embedded.kubeconfig()).unwrap();
        }
        let namespace = story.replace('_', "-");
        let mut server = Self {
            embedded,
            node: String::new(),
            namespace,
            directory,
            path,
        };
        server.node = server
            .sh("kubectl get nodes -o jsonpath='{.items[0].metadata.name}'")
            .1;
        let made = server.sh(
            "kubectl create namespace $NS && kubectl config set-context --current --namespace=$NS",
        );
        assert!(made.0, "{}", made.1);
        Some(server)
    }

    pub fn is_real(&self) -> bool {
        self.embedded.is_none()
    }

    pub fn write(&self, name: &str, content: &str) {
        let content = content
            .replace("$NODE", &self.node)
            .replace("$NS", &self.namespace)
            .replace("$DIR", &self.directory.path().to_string_lossy());
        fs::write(self.directory.path().join(name), content).unwrap();
    }

    /// What a command prints, on both outputs, and how it ends if that is no success.
    pub fn run(&self, command: &str) -> String {
        let (_, printed) = self.sh(&format!(
            "{command}\ncode=$?; [ $code = 0 ] || echo \"[exit $code]\""
        ));
        let directory = self.directory.path().to_string_lossy();
        trimmed(&normal(
            &printed,
            [(&directory, "DIR"), (&self.node, "NODE")],
        ))
    }

    fn sh(&self, script: &str) -> (bool, String) {
        let directory = self.directory.path();
        // What hangs is ended, and then not what was expected.
        let output = Command::new("timeout")
            .args(["60", "sh", "-c", &format!("exec 2>&1\n{script}")])
            .current_dir(directory)
            .env_clear()
            .env("PATH", &self.path)
            .env("KUBECONFIG", directory.join(".kubeconfig"))
            .env("HOME", directory)
            .env("DIR", directory)
            .env("NODE", &self.node)
            .env("NS", &self.namespace)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_real() {
            self.sh("kubectl delete namespace $NS --wait=false");
        }
    }
}

fn embedded(logs: &Path) -> ControlPlane {
    let options = Options {
        node: Some(NodeOptions::new("n1")),
        processes: Some(control_plane::ProcessOptions {
            programs: [].into(),
            logs: logs.to_owned(),
        }),
        ..Options::default()
    };
    ControlPlane::start(options).unwrap()
}

/// Where the commands are, `kubectl` among them: the one that `scripts/cluster` builds, else whatever is
/// on the path. `None`, and said, if it is none whose words are known.
pub fn path_with_kubectl() -> Option<String> {
    find_kubectl().map_err(|why| support::skip(&why)).ok()
}

fn find_kubectl() -> Result<String, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .map(Path::to_owned);
    let built: PathBuf = target.unwrap_or_default().join("cluster/bin");
    let path = format!(
        "{}:{}",
        built.display(),
        env::var("PATH").unwrap_or_default()
    );
    let version = Command::new("sh")
        .args(["-c", "kubectl version --client"])
        .env("PATH", &path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&version.stdout);
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("Client Version: "));
    match version {
        None => Err("no kubectl; scripts/cluster builds one".to_owned()),
        Some(version) if version.starts_with(KUBECTL) => Ok(path),
        Some(version) => Err(format!(
            "kubectl is {version}, and the stories have the words of {KUBECTL}x"
        )),
    }
}
