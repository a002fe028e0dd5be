//! DaemonSets of other projects that ship the Go provisioner, converted by the commands of `docs/upgrade.md`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::cluster::{name, path};
use crate::disks::entries;
use crate::operations::procedure::{Procedure, UPGRADE};
use crate::release::IMAGE;
use crate::{Cluster, Disks, disks::MIB};

const SECTION: &str = "Convert a DaemonSet of another project";
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What a project has installed, and what the conversion adds; gone with this.
struct Project<'a> {
    cluster: &'a Cluster,
    manifests: String,
    daemon_set: Value,
}

impl<'a> Project<'a> {
    /// Installs the equivalent of a project's manifests. Their image cannot be pulled here.
    fn install(cluster: &'a Cluster, project: &str, dir: &Path, device: &str) -> Self {
        let file = format!("{ROOT}/tests/chart/projects/{project}.yaml");
        let manifests = fs::read_to_string(file).unwrap();
        let manifests = manifests
            .replace("CLASS", project)
            .replace("DIRECTORY", dir.to_str().unwrap())
            .replace("DEVICE", device);
        let objects: Vec<Value> = serde_saphyr::from_multiple(&manifests).unwrap();
        let mut sets = objects.into_iter().filter(|it| it["kind"] == "DaemonSet");
        let installed = Self { cluster, manifests, daemon_set: sets.next().unwrap() };
        cluster.manifests("apply", &installed.manifests).unwrap();
        installed
    }

    fn namespace(&self) -> &str {
        self.daemon_set["metadata"]["namespace"].as_str().unwrap()
    }

    /// Follows the page.
    fn convert(&self) {
        let mut page = Procedure::titled(&UPGRADE, SECTION);
        symlink(Path::new(ROOT).join("deploy"), page.dir().join("deploy")).unwrap();
        let pod = &self.daemon_set["spec"]["template"]["spec"];
        page.set("NAMESPACE", self.namespace());
        page.set("DAEMONSET", name(&self.daemon_set));
        page.set("ACCOUNT", pod["serviceAccountName"].as_str().unwrap());
        page.set("IMAGE", IMAGE);
        page.follow("sed -e");
        page.follow("rollout status");
        page.was_followed();
    }
}

impl Drop for Project<'_> {
    fn drop(&mut self) {
        let namespace = format!("--namespace={}", self.namespace());
        let converted = "local-volume-provisioner-converted";
        let (set, roles) = (name(&self.daemon_set), format!("{ROOT}/deploy/convert/rbac.yaml"));
        // The DaemonSet first, so that its pods do not add the finalizer again.
        for what in [
            &["daemonset", set, &namespace, "--cascade=foreground"][..],
            &["rolebinding", &format!("{converted}-jobs"), &namespace],
            &["clusterrolebinding", converted],
            &["--filename", &roles],
        ] {
            let args = [&["delete", "--ignore-not-found"], what].concat();
            let _ = self.cluster.kubectl(&args);
        }
        let _ = self.cluster.manifests("delete --ignore-not-found", &self.manifests);
    }
}

#[test]
fn daemon_sets_of_other_projects_are_converted_and_recycle_a_volume() {
    let cluster = or_skip!(Cluster::enter());
    for project in ["tidb", "aerospike", "aks", "kubespray", "go-chart"] {
        println!("--- {project}");
        cluster.apply(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": project },
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
        }));
        let mut disks = Disks::new(project);
        // Azure's class discovers in /dev itself.
        let device = (project == "aks").then(|| disks.spare(32 * MIB));
        if device.is_none() {
            disks.filesystem(project, "disk", "ext4", 32 * MIB);
        }
        let device = device.as_ref().and_then(|it| it.path().file_name());
        let device = device.map_or("", |it| it.to_str().unwrap());
        let installed = Project::install(&cluster, project, &disks.class(project), device);
        installed.convert();
        cluster.available(project, 1);
        let pv = cluster.write(project, project);
        let is_filesystem = path(&pv).is_dir();
        assert_eq!(is_filesystem, project != "aks");
        if is_filesystem {
            assert_eq!(entries(path(&pv)), ["file"]);
        }
        cluster.delete_claim(project);
        cluster.recycled(&pv);
        if is_filesystem {
            assert!(entries(path(&pv)).is_empty());
        }
        drop(installed);
        cluster.clear();
    }
}
