//! Those who use the volumes, one after the other.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use support::Stage;
use tokio::runtime::Runtime;

use super::disk::Disk;

/// Uses one volume again and again. There is always one more claim than the volume can serve, so
/// that it is bound in the very moment in which that is possible.
pub struct Tenants {
    claims: Claims,
    class: &'static str,
    full_class: String,
    timeout: Duration,
    disk: Disk,
    stop: Arc<AtomicBool>,
    released: Sender<&'static str>,
}

impl Tenants {
    /// Lets them in, until `stop`; the thread's result is how many had the volume. Each tells
    /// `released` when it has gone.
    pub fn spawn(
        stage: &Stage,
        class: &'static str,
        disk: Disk,
        stop: &Arc<AtomicBool>,
        released: &Sender<&'static str>,
    ) -> JoinHandle<usize> {
        let tenants = Self {
            claims: Claims::of(stage),
            class,
            full_class: stage.named(class),
            timeout: 2 * stage.timeout(),
            disk,
            stop: Arc::clone(stop),
            released: released.clone(),
        };
        std::thread::Builder::new()
            .name(class.into())
            .spawn(move || tenants.run())
            .unwrap()
    }

    fn run(self) -> usize {
        let mut served = 0;
        self.ask(served);
        loop {
            let claim = format!("{}-{served}", self.class);
            self.wait_until_bound(&claim);
            assert!(
                self.disk.is_clean(),
                "{claim} was bound to a volume with a tenant's data"
            );
            if let Disk::Device(path) = &self.disk {
                let left = cleaners_of(path);
                assert!(left.is_empty(), "{claim} was bound beside {left:?}");
            }
            self.disk.write(&claim);
            let until = Instant::now() + Duration::from_millis(10);
            while Instant::now() < until {
                assert!(
                    self.disk.is_intact(&claim),
                    "{claim}'s volume was wiped while it was bound"
                );
            }
            served += 1;
            let last = self.stop.load(Ordering::Acquire);
            if !last {
                self.ask(served);
            }
            assert!(
                self.disk.is_intact(&claim),
                "{claim}'s volume was wiped while it was bound"
            );
            self.claims.delete(&claim);
            let _ = self.released.send(self.class);
            if last {
                return served;
            }
        }
    }

    fn ask(&self, number: usize) {
        let claim = json!({
            "metadata": { "name": format!("{}-{number}", self.class) },
            "spec": {
                "storageClassName": self.full_class, "volumeMode": self.disk.mode(),
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Mi" } },
            },
        });
        self.claims.create(claim);
    }

    fn wait_until_bound(&self, claim: &str) {
        let is_bound = || self.claims.is_bound(claim);
        let bound = support::until(self.timeout, Duration::from_millis(1), is_bound);
        assert!(bound.is_some(), "{claim} was never bound");
    }
}

/// The processes of an external cleaner of a device, with whatever it left behind.
pub fn cleaners_of(device: &Path) -> Vec<String> {
    let wanted = format!("LOCAL_PV_BLKDEVICE={}", device.display());
    let is_one = |process: &Path| {
        // Without an environment it is dead.
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .map(|entry| entry.path())
        .filter(|process| is_one(process))
        .map(|process| fs::read_to_string(process.join("stat")).unwrap_or_default())
        .collect()
}

/// The claims of the stage, for a thread of its own.
struct Claims {
    runtime: Runtime,
    api: Api<PersistentVolumeClaim>,
}

impl Claims {
    fn of(stage: &Stage) -> Self {
        let (runtime, client) = stage.another_client().unwrap();
        let api = Api::namespaced(client, &stage.namespace());
        Self { runtime, api }
    }

    fn create(&self, claim: Value) {
        let claim = serde_json::from_value(claim).unwrap();
        let params = PostParams::default();
        let create = self.api.create(&params, &claim);
        self.runtime.block_on(create).unwrap();
    }

    fn is_bound(&self, name: &str) -> bool {
        let claim = self.runtime.block_on(self.api.get(name)).unwrap();
        claim.status.and_then(|status| status.phase).as_deref() == Some("Bound")
    }

    fn delete(&self, name: &str) {
        let params = DeleteParams::default();
        let delete = self.api.delete(name, &params);
        self.runtime.block_on(delete).unwrap();
    }
}
