//! Several nodes see one disk, or disks with one name.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use control_plane::requests::Verb;
use control_plane::store::{DeleteOptions, EventKind, Part};
use control_plane::{InProcess, NodeOptions, Options, resource};
use local_volume_provisioner::config::{Loaded, from_files};
use local_volume_provisioner::host::identity::GlobalIdentity;
use local_volume_provisioner::names::LABEL_IDENTITY_HASH;
use local_volume_provisioner::types::{SkipReason, VolumeMode};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::process::{self, Log, Process};
use crate::run::{create_classes, create_nodes, in_virtual_time};
use crate::world::{Disk, NODES, Slot, World};

const SEEDS: u64 = 40;
const SETTLED: Duration = Duration::from_mins(1);

/// Nodes that see one disk.
struct Cluster {
    api: InProcess,
    world: Arc<World>,
    loaded: Loaded,
    log: Log,
    /// The PVs that were created.
    created: Arc<Mutex<Vec<Arc<Value>>>>,
}

impl Cluster {
    fn new(nodes: usize, is_unique: bool) -> Self {
        process::start_clock();
        let api = InProcess::start(&Options {
            node: Some(NodeOptions::new(NODES[0])),
            ..Options::default()
        });
        let api = api.unwrap();
        create_classes(&api);
        create_nodes(&api, nodes);
        let store = api.store();
        let global = GlobalIdentity { hash: "0".repeat(32), is_unique, is_shared: false };
        let disk = Disk::new(VolumeMode::Block, 1, global);
        let slots = (0..nodes).map(|node| Slot::new(node, 1, 0, Some(0)));
        let world = World::new(store.clone(), vec![disk], slots.collect());
        let class = "c1: {hostDir: /mnt/c1, mountDir: /mnt/c1, volumeMode: Block}";
        let loaded = from_files(&[("storageClassMap".to_owned(), class.to_owned())].into());
        let created: Arc<Mutex<Vec<Arc<Value>>>> = Arc::default();
        let (mut events, seen) = (store.subscribe(), Arc::clone(&created));
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                if event.kind == EventKind::Added && event.resource.kind == "PersistentVolume" {
                    seen.lock().unwrap().push(event.object);
                }
            }
        });
        Self { world, loaded: loaded.unwrap(), log: Log::default(), created, api }
    }

    fn start(&self, at: usize) -> Process {
        let (service, world) = (self.api.service(), &self.world);
        Process::start(service, at, world, &self.loaded, &self.log)
    }

    /// The names of all PVs.
    fn pvs(&self) -> Vec<String> {
        let pvs = self.world.pvs();
        pvs.iter().map(|pv| text(pv, "name")).collect()
    }

    /// The kind and name of what has the event `VolumeDuplicate`.
    fn reported(&self) -> Vec<(String, String)> {
        let events = self.api.store().list(&resource::EVENTS, None).items;
        let about = events.iter().filter(|it| it["reason"] == "VolumeDuplicate");
        let about = about.map(|event| {
            let part = |key: &str| event["involvedObject"][key].as_str().unwrap_or_default();
            (part("kind").to_owned(), part("name").to_owned())
        });
        about.collect()
    }

    /// Claims a volume, and waits until it is bound and the provisioner has seen it.
    async fn claim(&self, name: &str) {
        let claim = json!({
            "metadata": { "name": name },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "c1",
                "volumeMode": "Block",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        let claims = &resource::PERSISTENT_VOLUME_CLAIMS;
        self.api.store().create(claims, "default", claim).unwrap();
        sleep(SETTLED).await;
        let claim = self.api.store().get(claims, "default", name).unwrap();
        assert_eq!(claim["status"]["phase"], "Bound", "{claim}");
    }
}

fn text(object: &Value, key: &str) -> String {
    object["metadata"][key].as_str().unwrap().to_owned()
}

/// Why a process does not offer its disk.
fn skipped(process: &Process) -> Option<SkipReason> {
    let pass = process.pass.borrow();
    let class = pass.classes.iter().find(|class| class.name == "c1");
    class.unwrap().volumes[0].reason
}

fn in_worlds(story: impl AsyncFn()) {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        in_virtual_time(seed, story());
    }
}

#[test]
fn two_nodes_that_offer_a_disk_at_once_leave_the_older_pv() {
    in_worlds(async || {
        let cluster = Cluster::new(2, true);
        let creations = cluster.api.faults().on(Verb::Create);
        let late = creations.resource("persistentvolumes").times(2);
        let late = late.latency(Duration::from_secs(5));
        let mut processes: Vec<_> = (0..2).map(|at| Some(cluster.start(at))).collect();
        sleep(SETTLED).await;
        assert_eq!(late.hits(), 2);
        let created = cluster.created.lock().unwrap().clone();
        let older =
            created.iter().min_by_key(|pv| (text(pv, "creationTimestamp"), text(pv, "uid")));
        let older = older.unwrap();
        assert_eq!(created.len(), 2);
        assert_eq!(cluster.pvs(), [text(older, "name")]);
        let owner = older["metadata"]["labels"]["kubernetes.io/hostname"].as_str();
        let owner = NODES.iter().position(|name| Some(*name) == owner).unwrap();
        let other = processes[1 - owner].take().unwrap();
        assert_eq!(skipped(&other), Some(SkipReason::IdentityOnOtherPV));
        assert!(!cluster.reported().contains(&("PersistentVolume".into(), text(older, "name"))));

        let before = cluster.log.lines().len();
        sleep(Duration::from_hours(1)).await;
        let lines = cluster.log.lines();
        let lists = lines[before..].iter().filter(|line| line.contains("identity-hash"));
        let lists = lists.count();
        assert!((1..16).contains(&lists), "{lists} lists in an hour");
        assert_eq!(cluster.pvs(), [text(older, "name")]);

        // The disk moves.
        processes[owner].take().unwrap().kill().await;
        let (store, options) = (cluster.api.store(), DeleteOptions::default());
        let name = text(older, "name");
        let deleted = store.delete(&resource::PERSISTENT_VOLUMES, "", &name, &options);
        deleted.unwrap();
        sleep(Duration::from_mins(12)).await;
        let pvs = cluster.pvs();
        assert!(pvs.len() == 1 && pvs[0] != name, "{pvs:?}");
        assert_eq!(skipped(&other), None);
    });
}

#[test]
fn three_nodes_offer_their_disks_if_a_cloud_gives_all_one_name() {
    in_worlds(async || {
        let cluster = Cluster::new(3, false);
        let _processes: Vec<_> = (0..3).map(|at| cluster.start(at)).collect();
        sleep(SETTLED).await;
        assert_eq!(cluster.pvs().len(), 3);
        let reported = cluster.reported();
        assert!(!reported.is_empty());
        assert!(reported.iter().all(|(kind, _)| kind != "PersistentVolume"), "{reported:?}");
        let before = cluster.log.lines().len();
        sleep(Duration::from_hours(1)).await;
        let lines = cluster.log.lines();
        let mut lists = lines[before..].iter().filter(|line| line.contains("identity-hash"));
        assert_eq!(lists.next(), None);
        assert_eq!(cluster.created.lock().unwrap().len(), 3);
    });
}

/// The PVs of earlier versions have no label until their own provisioner is upgraded.
#[test]
fn used_pvs_of_one_disk_are_both_reported_after_an_upgrade() {
    in_worlds(async || {
        let cluster = Cluster::new(2, true);
        let first = cluster.start(0);
        sleep(SETTLED).await;
        cluster.claim("claim-1").await;
        first.kill().await;
        let (store, pvs) = (cluster.api.store(), &resource::PERSISTENT_VOLUMES);
        let unlabelled = store.modify(pvs, "", &cluster.pvs()[0], Part::Main, |pv| {
            let mut pv = pv.clone();
            let labels = pv["metadata"]["labels"].as_object_mut().unwrap();
            labels.remove(LABEL_IDENTITY_HASH).unwrap();
            Ok(pv)
        });
        unlabelled.unwrap();
        let _second = cluster.start(1);
        sleep(SETTLED).await;
        cluster.claim("claim-2").await;
        assert_eq!(cluster.reported(), []);

        let _first = cluster.start(0);
        sleep(Duration::from_mins(90)).await;
        let mut reported = cluster.reported();
        reported.sort();
        reported.dedup();
        let of_pvs = cluster.pvs().into_iter();
        let of_pvs: Vec<_> = of_pvs.map(|pv| ("PersistentVolume".to_owned(), pv)).collect();
        assert_eq!(reported, of_pvs);
        assert_eq!(cluster.created.lock().unwrap().len(), 2);
    });
}
