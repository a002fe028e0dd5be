//! The local volumes that the kubelet still has mounted or mapped, by the entries below its directory.
//!
//! The API does not suffice: the containers of a force-deleted pod can outlive the Pod object. The kubelet removes
//! these entries only after it has unmounted or unmapped the volume. Its mount of a disk that it formatted is not
//! searched here: the exclusive open of the device detects it in any namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::mounts::{DeviceNumber, Mount, MountTable};
use super::{paths_in, with_path};
use crate::types::VolumeMode;

/// The directory name of the kubelet's plugin for local volumes.
const PLUGIN: &str = "kubernetes.io~local-volume";

/// What the kubelet has mounted for pods, by the names of local PVs: each filesystem, and the directory in it.
pub type PodMounts = BTreeMap<String, BTreeSet<(DeviceNumber, PathBuf)>>;

/// Whether the kubelet mounts a local volume for a pod at such a path.
pub fn is_of_local_volume(point: &Path) -> bool {
    let dir = point.parent().and_then(Path::to_str);
    dir.and_then(|dir| dir.strip_suffix(PLUGIN)).is_some_and(|dir| dir.ends_with("/volumes/"))
}

/// The kubelet's directory, `/var/lib/kubelet` on most nodes.
#[derive(Clone, Debug)]
pub struct KubeletDir {
    /// The directory itself.
    pub path: PathBuf,
    own_pod: Option<String>,
}

impl KubeletDir {
    /// The directory in our mount namespace, and the UID of our own pod, if it is known.
    pub fn new(path: impl Into<PathBuf>, own_pod: Option<String>) -> Self {
        Self { path: path.into(), own_pod }
    }

    /// Where the kubelet mounts volumes: for pods, and for plugins (CSI stages, mapped devices).
    pub fn volume_dirs(&self) -> [PathBuf; 2] {
        ["pods", "plugins"].map(|dir| self.path.join(dir))
    }

    /// All mounts below these directories.
    pub fn mounts<'a>(&self, table: &'a MountTable) -> impl Iterator<Item = &'a Mount> + use<'a> {
        // The mount table has no symbolic links.
        let dirs = self.volume_dirs().map(|dir| dir.canonicalize().unwrap_or(dir));
        let is_below = move |mount: &&Mount| {
            let mut dirs = dirs.iter();
            dirs.any(|dir| mount.point != *dir && mount.point.starts_with(dir))
        };
        table.iter().filter(is_below)
    }

    /// The pods' mounts of local PVs; none in a directory that is not that of the running kubelet.
    pub fn pod_mounts(&self, table: &MountTable) -> PodMounts {
        let mut found = PodMounts::new();
        let mut mounts = table.iter().filter(|it| is_of_local_volume(&it.point)).peekable();
        if mounts.peek().is_none() || !self.visible() {
            return found;
        }
        let pods = self.path.join("pods");
        let pods = pods.canonicalize().unwrap_or(pods);
        for mount in mounts {
            let dir = mount.point.ancestors().nth(4);
            if let Some(name) = mount.point.file_name().and_then(|name| name.to_str())
                && dir == Some(&*pods)
            {
                let of_pv = found.entry(name.to_owned()).or_default();
                of_pv.insert((mount.device, mount.root.clone()));
            }
        }
        found
    }

    /// Whether the node's pods are visible, so that an absent entry means that a volume is not in use. Without
    /// our own pod, or without any pod, it is not the directory of the running kubelet.
    pub fn visible(&self) -> bool {
        let pods = self.path.join("pods");
        match &self.own_pod {
            Some(uid) => fs::read_dir(pods.join(uid)).is_ok(),
            None => fs::read_dir(pods).is_ok_and(|mut pods| pods.next().is_some()),
        }
    }

    /// Whether the pods' uses of such volumes are visible. Raw devices also require `plugins`, which the kubelet
    /// creates when it starts; it is missing where only `pods` is mounted here.
    pub fn sees(&self, mode: VolumeMode) -> bool {
        let plugins = self.path.join("plugins");
        (mode == VolumeMode::Filesystem || fs::read_dir(plugins).is_ok()) && self.visible()
    }

    /// The kubelet's mounts and mappings of a PV; empty once it has unmounted and unmapped the volume.
    ///
    /// # Errors
    /// When a directory cannot be read, so that the mounts are unknown.
    pub fn mounts_of(&self, pv_name: &str) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for pod in paths_in(&self.path.join("pods"))? {
            for kind in ["volumes", "volumeDevices"] {
                let path = pod.join(format!("{kind}/{PLUGIN}/{pv_name}"));
                if exists(&path)? {
                    found.push(path);
                }
            }
        }
        // One entry per pod that a raw device is mapped for. The directory can outlive them.
        let mapped = format!("plugins/{PLUGIN}/volumeDevices/{pv_name}");
        let mapped = self.path.join(mapped);
        if exists(&mapped)? {
            found.extend(paths_in(&mapped)?);
        }
        Ok(found)
    }
}

/// Whether a path exists: the kubelet may remove a pod's directory while it is read. Symbolic links are not
/// followed: the target may be gone.
fn exists(path: &Path) -> io::Result<bool> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(false),
        Err(error) => Err(with_path(&error, path)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_without_our_own_pod_is_not_the_kubelets() {
        let dir = tempfile::tempdir().unwrap();
        let visible =
            |own: Option<&str>| KubeletDir::new(dir.path(), own.map(Into::into)).visible();
        assert!(!visible(None));
        fs::create_dir(dir.path().join("pods")).unwrap();
        assert!(!visible(None), "empty proves nothing");
        // What a kubelet with another directory has left here.
        fs::create_dir(dir.path().join("pods/uid-old")).unwrap();
        assert!(visible(None));
        assert!(!visible(Some("uid-ours")));
        fs::create_dir(dir.path().join("pods/uid-ours")).unwrap();
        assert!(visible(Some("uid-ours")));
    }

    #[test]
    fn pod_mounts_are_those_of_the_kubelet_in_its_own_directory() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let pods = dir.join("pods");
        let line = |id: u32, root: &str, point: &Path| {
            format!("{id} 1 8:1 {root} {} rw - ext4 /dev/sda1 rw\n", point.display())
        };
        let volume = |pod: &str, kind: &str, name: &str| pods.join(pod).join(kind).join(name);
        let local = "volumes/kubernetes.io~local-volume";
        let elsewhere = Path::new("/other/pods/uid-1").join(local).join("pv-3");
        let deeper = volume("uid-1/x", local, "pv-3");
        let table = [
            line(10, "/a", &volume("uid-1", local, "pv-1")),
            line(11, "/b", &volume("uid-2", local, "pv-1")),
            line(12, "/a", &volume("uid-1", local, "pv-2")),
            line(13, "/c", &volume("uid-1", "volumes/kubernetes.io~csi", "pv-3")),
            line(14, "/c", &volume("uid-1", "volume-subpaths", "pv-3")),
            line(15, "/c", &elsewhere),
            line(16, "/c", &deeper),
        ];
        let table = MountTable::parse(table.concat().as_bytes());
        let kubelet = KubeletDir::new(&dir, Some("uid-ours".into()));
        assert_eq!(kubelet.pod_mounts(&table), PodMounts::new());
        fs::create_dir_all(pods.join("uid-ours")).unwrap();
        let device = DeviceNumber { major: 8, minor: 1 };
        let roots = |roots: &[&str]| roots.iter().map(|it| (device, it.into())).collect();
        let wanted = [("pv-1", roots(&["/a", "/b"])), ("pv-2", roots(&["/a"]))];
        let wanted = wanted.map(|(name, roots)| (name.to_owned(), roots));
        assert_eq!(kubelet.pod_mounts(&table), PodMounts::from(wanted));
    }

    #[test]
    fn volume_is_held_while_the_kubelet_has_an_entry() {
        let dir = tempfile::tempdir().unwrap();
        let kubelet = KubeletDir::new(dir.path(), None);
        let pods = dir.path().join("pods");
        let held = |pv: &str| {
            let found = kubelet.mounts_of(pv).unwrap();
            let relative = |path: PathBuf| path.strip_prefix(dir.path()).unwrap().to_owned();
            found.into_iter().map(relative).collect::<Vec<_>>()
        };
        assert!(!kubelet.visible());
        assert!(kubelet.mounts_of("pv").is_err(), "not knowing is not the same as none");
        fs::create_dir(&pods).unwrap();
        assert!(!kubelet.visible(), "a node on which we run has a pod");
        fs::create_dir(dir.path().join("plugins")).unwrap();
        assert!(!kubelet.sees(VolumeMode::Block), "nor can its devices be trusted");
        fs::remove_dir(dir.path().join("plugins")).unwrap();

        let volume = pods.join("uid-1/volumes").join(PLUGIN).join("pv");
        fs::create_dir_all(&volume).unwrap();
        fs::create_dir_all(pods.join("uid-1/volumes/kubernetes.io~empty-dir/pv2")).unwrap();
        fs::write(pods.join("a-file"), "").unwrap();
        assert!(kubelet.visible());
        assert!(!kubelet.sees(VolumeMode::Block), "only `pods` is mounted");
        assert_eq!(held("pv"), [Path::new("pods/uid-1/volumes").join(PLUGIN).join("pv")]);
        assert_eq!(held("pv2"), [] as [PathBuf; 0]);
        fs::remove_dir(&volume).unwrap();
        assert_eq!(held("pv"), [] as [PathBuf; 0]);

        let device = pods.join("uid-2/volumeDevices").join(PLUGIN);
        fs::create_dir_all(&device).unwrap();
        symlink("/dev/does-not-exist", device.join("pv")).unwrap();
        let global = dir.path().join("plugins").join(PLUGIN).join("volumeDevices/pv");
        fs::create_dir_all(&global).unwrap();
        assert!(kubelet.sees(VolumeMode::Block));
        assert_eq!(held("pv"), [Path::new("pods/uid-2/volumeDevices").join(PLUGIN).join("pv")]);
        fs::remove_file(device.join("pv")).unwrap();
        assert_eq!(held("pv"), [] as [PathBuf; 0], "an empty directory holds nothing");
        symlink("/dev/does-not-exist", global.join("uid-2")).unwrap();
        let expected = Path::new("plugins").join(PLUGIN).join("volumeDevices/pv/uid-2");
        assert_eq!(held("pv"), [expected]);
    }
}
