//! `kill -9` at random moments of a cleanup, while somebody wants the volumes all the time.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use support::stage::{is_terminating, phase};
use support::{LoopDevice, Stage};
use tokio::runtime::Runtime;

use super::BINARY;
use super::kit::raw_class;

const KILLS: usize = 100;
/// The same in the slow tier.
const SLOW_KILLS: usize = 1000;
/// Long after any cleanup has ended.
const LATEST_KILL: u64 = 60;
/// Enough for a wipe that takes some milliseconds.
const FILES: usize = 256;
const DEVICE_SIZE: u64 = 4 << 20;

fn kills() -> usize {
    if support::slow() { SLOW_KILLS } else { KILLS }
}

/// What a tenant can see of a volume.
enum Disk {
    Filesystem(PathBuf),
    Device(PathBuf),
}

impl Disk {
    /// Where on the device a tenant writes: both ends and the middle.
    const BLOCKS: [u64; 4] = [0, 1 << 16, DEVICE_SIZE / 2, DEVICE_SIZE - 4096];

    fn write(&self, tenant: &str) {
        match self {
            Self::Filesystem(dir) => {
                for at in 0..FILES {
                    let file = Self::file(dir, at);
                    fs::create_dir_all(file.parent().unwrap()).unwrap();
                    fs::write(file, tenant).unwrap();
                }
            }
            Self::Device(path) => {
                let device = File::options().write(true).open(path).unwrap();
                for offset in Self::BLOCKS {
                    device
                        .write_all_at(tenant.repeat(16).as_bytes(), offset)
                        .unwrap();
                }
                device.sync_all().unwrap();
            }
        }
    }

    /// Whether everything that the tenant wrote is there.
    fn is_intact(&self, tenant: &str) -> bool {
        match self {
            Self::Filesystem(dir) => (0..FILES)
                .all(|at| fs::read_to_string(Self::file(dir, at)).is_ok_and(|text| text == tenant)),
            Self::Device(path) => Self::blocks(path)
                .iter()
                .all(|block| block.starts_with(tenant.as_bytes())),
        }
    }

    fn is_clean(&self) -> bool {
        match self {
            Self::Filesystem(dir) => fs::read_dir(dir).unwrap().next().is_none(),
            Self::Device(path) => Self::blocks(path).iter().flatten().all(|byte| *byte == 0),
        }
    }

    fn file(dir: &Path, number: usize) -> PathBuf {
        dir.join(format!("a{}/b/c/file-{number}", number % 8))
    }

    fn blocks(path: &Path) -> [[u8; 4096]; 4] {
        let device = File::open(path).unwrap();
        Self::BLOCKS.map(|offset| {
            let mut block = [0; 4096];
            device.read_exact_at(&mut block, offset).unwrap();
            block
        })
    }
}

/// Uses one volume again and again. There is always one more claim than the volume can serve, so
/// that it is bound in the very moment in which that is possible.
struct Tenants {
    claims: Claims,
    class: &'static str,
    full_class: String,
    patience: Duration,
    mode: &'static str,
    disk: Disk,
    stop: Arc<AtomicBool>,
    released: Sender<&'static str>,
}

impl Tenants {
    fn spawn(self) -> JoinHandle<usize> {
        std::thread::Builder::new()
            .name(self.class.into())
            .spawn(move || self.run())
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
                "{claim} was bound to a volume with somebody's data"
            );
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
                "storageClassName": self.full_class, "volumeMode": self.mode,
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Mi" } },
            },
        });
        self.claims.create(claim);
    }

    fn wait_until_bound(&self, claim: &str) {
        let deadline = Instant::now() + self.patience;
        while !self.claims.is_bound(claim) {
            assert!(Instant::now() < deadline, "{claim} was never bound");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
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

/// xorshift64*: good enough to spread kills.
struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let seed: u64 = match std::env::var("CRASH_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => SystemTime::UNIX_EPOCH
                .elapsed()
                .unwrap()
                .subsec_nanos()
                .into(),
        };
        eprintln!("to have the same delays again: CRASH_SEED={seed}");
        Self(seed | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

/// How many kills hit a cleanup before, while and after its PV was Terminating.
#[derive(Debug, Default)]
struct Hits {
    released: usize,
    terminating: usize,
    over: usize,
}

impl Hits {
    fn count(&mut self, stage: &Stage, class: &str) {
        match pv_of(stage, class) {
            Some(pv) if is_terminating(&pv) => self.terminating += 1,
            Some(pv) if phase(&pv) == "Released" => self.released += 1,
            _ => self.over += 1,
        }
    }
}

fn pv_of(stage: &Stage, class: &str) -> Option<PersistentVolume> {
    let class = stage.named(class);
    let of_class = |pv: &PersistentVolume| {
        let spec = pv.spec.as_ref();
        spec.is_some_and(|spec| spec.storage_class_name.as_ref() == Some(&class))
    };
    stage.pvs().into_iter().find(of_class)
}

/// Waits until the binder has seen that the claim of a class's volume is gone.
fn wait_until_released(stage: &Stage, class: &str) {
    stage.eventually("the volume is released", || {
        let pv = pv_of(stage, class);
        pv.is_none_or(|pv| phase(&pv) != "Bound").then_some(())
    });
}

fn kill_and_restart(stage: &Stage, random: &mut Random, releases: &Receiver<&str>) -> Hits {
    let mut hits = Hits::default();
    let mut provisioner = stage.provisioner().unwrap();
    for _ in 0..kills() {
        let class = match releases.recv_timeout(Duration::from_secs(20)) {
            Ok(class) => class,
            // A tenant has failed; who joins it learns why.
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => break,
        };
        wait_until_released(stage, class);
        std::thread::sleep(Duration::from_micros(random.below(LATEST_KILL * 1000)));
        hits.count(stage, class);
        provisioner.kill();
        provisioner = stage.provisioner().unwrap();
    }
    hits
}

#[test]
fn kill_9_at_any_moment_never_leaks_data_and_never_wipes_what_can_be_bound() {
    let set = Stage::set_with(BINARY, |options| options.eager_rebind = true);
    let Some(stage) = set else { return };
    stage.class("fs", &json!({})).unwrap();
    let dir = raw_class(&stage, &json!({}));
    let volume = stage.sandbox.tmpfs("disks/fs/vol", "size=4m").unwrap();
    let device = LoopDevice::new(stage.sandbox.path(), DEVICE_SIZE).unwrap();
    std::os::unix::fs::symlink(device.path(), dir.join("disk")).unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let (released, turns) = channel();
    let tenants = [
        ("fs", "Filesystem", Disk::Filesystem(volume.clone())),
        ("raw", "Block", Disk::Device(device.path().into())),
    ];
    let tenants = tenants.map(|(class, mode, disk)| {
        let (stop, released) = (Arc::clone(&stop), released.clone());
        Tenants {
            claims: Claims::of(&stage),
            full_class: stage.named(class),
            patience: 2 * stage.patience(),
            class,
            mode,
            disk,
            stop,
            released,
        }
        .spawn()
    });
    drop(released);
    let mut random = Random::seeded();
    let hits = kill_and_restart(&stage, &mut random, &turns);
    stop.store(true, Ordering::Release);
    let _provisioner = stage.provisioner().unwrap();
    let served = tenants.map(|tenant| {
        tenant
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let kills = kills();
    eprintln!("{kills} kills: {hits:?}; tenants served: {served:?}");
    assert!(
        hits.released > 0 && hits.terminating > 0,
        "kills hit cleanups: {hits:?}"
    );
    assert!(
        served.iter().all(|served| *served > kills / 6),
        "{served:?}"
    );

    // Nothing is left: one clean, free PV for each volume, and no file.
    stage.available(&volume, None);
    stage.available(&dir.join("disk"), None);
    stage.stays(Duration::from_millis(200), "one Available PV each", || {
        let pvs = stage.pvs();
        pvs.len() == 2 && pvs.iter().all(|pv| phase(pv) == "Available")
    });
    assert!(Disk::Filesystem(volume).is_clean());
    assert!(Disk::Device(device.path().into()).is_clean());
}
