//! A link for the kubelet is made only while the volume and its mark are as they were seen.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use local_volume_provisioner::cleanup::{Host, LocalHost, PassFacts};
use local_volume_provisioner::config::{Config, from_files};
use local_volume_provisioner::host::access::Access;
use local_volume_provisioner::host::kubelet::KubeletDir;
use local_volume_provisioner::host::link::LinkDir;
use local_volume_provisioner::host::lock::VolumeLock;
use local_volume_provisioner::host::mark::{Mark, MarkState, StateDir};
use local_volume_provisioner::host::mounts::MountTable;
use local_volume_provisioner::inventory::{Disks, Volume};
use local_volume_provisioner::names::LINK_DIR;
use local_volume_provisioner::plan::{LinkOrder, MarkWrite};
use local_volume_provisioner::view::PvView;
use serde_json::json;
use support::{LoopDevice, Sandbox, sandbox};

use crate::volumes::{formatted, open, umount};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A machine with the classes `fast` and `raw`, whose directories have other paths on the host.
struct Node {
    host: LocalHost,
    config: Arc<Config>,
    links: PathBuf,
}

impl Node {
    fn new(sandbox: &Sandbox) -> Self {
        let classes = "fast: {hostDir: /host/fast, mountDir: /mnt/fast, binding: disk}\n\
            raw: {hostDir: /host/raw, mountDir: /mnt/raw, volumeMode: Block, binding: disk}";
        let files = [("storageClassMap".to_owned(), classes.to_owned())].into();
        let loaded = from_files(&files).unwrap();
        assert_eq!(loaded.faults, []);
        for class in ["fast", "raw"] {
            sandbox.dir(class).unwrap();
        }
        let links = sandbox.path().join("links");
        let dir = LinkDir::open(&links).unwrap();
        Self { host: Self::host(sandbox, Ok(dir)), config: Arc::new(loaded.config), links }
    }

    fn host(sandbox: &Sandbox, links: Result<LinkDir, String>) -> LocalHost {
        let state = sandbox.dir("state").unwrap();
        let state = StateDir::open(&state, false, &MountTable::default()).unwrap();
        let kubelet = KubeletDir::new(sandbox.path().join("kubelet"), None);
        LocalHost::new(kubelet, state, links)
    }

    fn facts(&self) -> PassFacts {
        PassFacts::new(Arc::clone(&self.config))
    }

    /// The volume of a class, as a scan finds it.
    async fn scan(&self, class: &str) -> Arc<Volume> {
        let mut scanner = self.host.scanner(&self.config.classes[class]);
        let observation = scanner.scan(&None).await;
        let volume = observation.volumes().next().cloned();
        volume.unwrap_or_else(|| panic!("{observation:?}"))
    }

    async fn mark(&self, volume: &Arc<Volume>, state: MarkState) {
        let mark = Mark {
            cluster: "cluster".into(),
            pv_uid: "uid".into(),
            token: TOKEN.into(),
            state,
            identity_hash: volume.candidate.identity.hash(),
            class: volume.class.name.clone(),
            written_at: Timestamp::now(),
            ..Mark::default()
        };
        let volume = Arc::clone(volume);
        let write = MarkWrite { volume, mark, resets_root: false };
        self.host.mark(&write, &self.facts()).await.unwrap();
    }

    /// The order for a used volume.
    async fn order(&self, class: &str) -> LinkOrder {
        self.mark(&self.scan(class).await, MarkState::Used).await;
        let pv = json!({
            "metadata": { "name": "pv", "uid": "uid" },
            "spec": { "local": { "path": format!("{LINK_DIR}/{TOKEN}") } },
        });
        LinkOrder {
            pv: PvView::from_api(&serde_json::from_value(pv).unwrap()),
            volume: self.scan(class).await,
            epoch: 0,
        }
    }

    /// Why the link is not made.
    async fn refusal(&self, order: &LinkOrder) -> String {
        let made = self.host.link(order, &self.facts()).await;
        assert_eq!(self.host.links().unwrap(), [].into());
        made.unwrap_err().to_string()
    }
}

/// A filesystem at this path.
fn mounted(sandbox: &Sandbox, name: &str) -> LoopDevice {
    let device = formatted(sandbox, "ext4").unwrap();
    sandbox.mount(device.path(), "ext4", name).unwrap();
    device
}

#[tokio::test]
async fn link_leads_to_the_path_of_the_volume_on_the_host() {
    let sandbox = sandbox!("mkfs.ext4");
    let node = Node::new(&sandbox);
    let _fs = mounted(&sandbox, "fast/a");
    let raw = LoopDevice::new(sandbox.path(), 4 << 20).unwrap();
    symlink(raw.path(), sandbox.path().join("raw/a")).unwrap();
    for (class, target) in [("fast", "/host/fast/a"), ("raw", "/host/raw/a")] {
        let order = node.order(class).await;
        for _ in 0..2 {
            node.host.link(&order, &node.facts()).await.unwrap();
            let link = fs::read_link(node.links.join(TOKEN)).unwrap();
            assert_eq!(link, Path::new(target));
            let links = [(TOKEN.to_owned(), target.to_owned())];
            assert_eq!(node.host.links().unwrap(), links.into());
        }
        for _ in 0..2 {
            node.host.unlink(TOKEN).unwrap();
            assert_eq!(fs::read_dir(&node.links).unwrap().count(), 0);
        }
    }
}

#[tokio::test]
async fn link_is_not_made_to_a_volume_that_has_changed_since_the_scan() {
    let changed = "has changed since the last scan";
    let sandbox = sandbox!("mkfs.ext4");
    let node = Node::new(&sandbox);
    let path = sandbox.path().join("fast/a");
    let _fs = mounted(&sandbox, "fast/a");
    let order = node.order("fast").await;

    let other = mounted(&sandbox, "fast/a");
    let why = node.refusal(&order).await;
    assert!(why.contains(changed), "another filesystem: {why}");
    umount(&sandbox, &path);
    drop(other);

    node.mark(&order.volume, MarkState::Wiping).await;
    let why = node.refusal(&order).await;
    assert!(why.contains(changed), "another mark: {why}");

    let order = node.order("fast").await;
    let root = open(&path).unwrap();
    let lock = VolumeLock::acquire(root.as_fd(), &path, Access::Clean).unwrap();
    drop(root);
    let why = node.refusal(&order).await;
    assert!(why.contains("is in use"), "a cleaner has it: {why}");
    drop(lock);

    umount(&sandbox, &path);
    let why = node.refusal(&order).await;
    assert!(why.contains("not a valid mount point"), "not mounted: {why}");
}

#[tokio::test]
async fn link_is_not_made_to_another_device_at_the_path() {
    let sandbox = sandbox!();
    let node = Node::new(&sandbox);
    let [first, second] = [(); 2].map(|()| LoopDevice::new(sandbox.path(), 4 << 20).unwrap());
    let entry = sandbox.path().join("raw/a");
    symlink(first.path(), &entry).unwrap();
    let order = node.order("raw").await;
    fs::remove_file(&entry).unwrap();
    assert!(!node.refusal(&order).await.is_empty(), "no device");
    symlink(second.path(), &entry).unwrap();
    let why = node.refusal(&order).await;
    assert!(why.contains("has changed since"), "another device: {why}");
}

#[tokio::test]
async fn missing_directory_of_links_is_the_reason_for_each_link() {
    let sandbox = sandbox!("mkfs.ext4");
    let node = Node::new(&sandbox);
    let _fs = mounted(&sandbox, "fast/a");
    let order = node.order("fast").await;
    let host = Node::host(&sandbox, Err("it is not mounted".into()));
    let why = host.link(&order, &node.facts()).await.unwrap_err();
    assert_eq!(why.to_string(), "it is not mounted");
    assert_eq!(host.links().unwrap_err(), "it is not mounted");
    // There is none that it could remove.
    host.unlink(TOKEN).unwrap();
    fs::remove_dir(&node.links).unwrap();
    let deleted = node.host.link(&order, &node.facts()).await.unwrap_err();
    assert!(deleted.to_string().contains("links"), "{deleted}");
    assert!(node.host.links().is_err());
}
