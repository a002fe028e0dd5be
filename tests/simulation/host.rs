//! The simulated machine, as the provisioner sees it. Nothing of it has a thread.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use local_volume_provisioner::cleanup::{
    BoxedVolume, Host, KubeletUses, Look, Obstacle, PassFacts,
};
use local_volume_provisioner::config::{Class, DiscoveryPolicy};
use local_volume_provisioner::host::boot::BootTime;
use local_volume_provisioner::host::host_path::HostPaths;
use local_volume_provisioner::host::mark::MarkOnDisk;
use local_volume_provisioner::inventory::{
    Candidate, Disks, Finding, Observation, Scanner, Skip, Taken, Volume,
};
use local_volume_provisioner::plan::{
    CleanOrder, DiskOrder, Intake, LinkOrder, MarkWrite, PvDraft,
};
use local_volume_provisioner::types::{HostPath, MountPath, SkipReason};
use local_volume_provisioner::view::PvView;

use crate::process::elapsed;
use crate::spares::Seen;
use crate::volume::{SimLock, SimVolume};
use crate::world::{CLASSES, State, World, pause};

/// A machine, for one process.
#[derive(Clone, Debug)]
pub struct SimHost {
    pub world: Arc<World>,
    pub node: usize,
    /// The number of the process.
    pub process: u64,
    pub is_alive: Arc<AtomicBool>,
}

impl SimHost {
    pub fn boot_time_now(&self) -> BootTime {
        let boot = self.world.lock().boot_of(self.node);
        BootTime { boot_id: format!("boot-{boot}-of-{}", self.node), seconds: elapsed().as_secs() }
    }

    /// A killed process goes no further.
    pub async fn goes_on(&self) {
        if !self.is_alive.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }

    /// After a durable effect, which may be the last one of the process.
    pub async fn effect(&self) {
        if self.world.count_effect() {
            self.world.lock().bindings.serving.remove(&self.process);
            self.is_alive.store(false, Ordering::Relaxed);
        }
        self.goes_on().await;
    }

    /// The disk at a path, once it answers.
    async fn find(&self, path: &MountPath) -> Result<usize, Obstacle> {
        let disk = {
            let state = self.world.lock();
            let slot = state.slot(self.node, &path.to_string());
            let slot = slot.expect("only entries are looked at");
            state.slots[slot].disk
        };
        if let Some(disk) = disk {
            self.world.answers(disk).await;
        }
        self.goes_on().await;
        disk.ok_or_else(|| Obstacle::Unknown("nothing is mounted there".into()))
    }

    /// Changes what belongs to a volume, unless it or its mark has changed since the scan.
    pub async fn change_unchanged(
        &self,
        volume: &Volume,
        change: impl FnOnce(&mut State, usize) -> Result<(), Obstacle>,
    ) -> Result<(), Obstacle> {
        let at = self.find(&volume.mount_path).await?;
        pause(20).await;
        self.goes_on().await;
        {
            let mut state = self.world.lock();
            let is_there = state.slot_of(self.node, at).is_some();
            let found = state.candidate(self.node, at, false);
            let is_same = found.identity == volume.candidate.identity
                && found.mark.on_disk == volume.candidate.mark.on_disk;
            if !is_there || !is_same {
                return Err(Obstacle::Unknown("it has changed since the scan".into()));
            }
            change(&mut state, at)?;
        }
        self.effect().await;
        Ok(())
    }

    fn inspect_disk(&self, at: usize) -> Result<Candidate, Obstacle> {
        let state = self.world.lock();
        if state.slot_of(self.node, at).is_none() {
            return Err(Obstacle::Unknown("nothing is mounted there".into()));
        }
        let disk = &state.disks[at];
        let here = |(node, _): &(usize, String)| *node == self.node;
        if self.world.shows_mounts && disk.mounted_for.iter().any(here) {
            return Err(in_use("a pod"));
        }
        if disk.lock.is_some() {
            return Err(in_use("it is locked"));
        }
        Ok(state.candidate(self.node, at, false))
    }
}

fn in_use(user: &str) -> Obstacle {
    Obstacle::InUse { user: user.into(), notify_after: Duration::from_secs(3) }
}

impl Disks for SimHost {
    fn scanner(&self, class: &Arc<Class>) -> Box<dyn Scanner> {
        Box::new(SimScanner {
            host: self.clone(),
            class: Arc::clone(class),
            seen: 0,
            spares: Seen::new(),
        })
    }
}

#[derive(Debug)]
struct SimScanner {
    host: SimHost,
    class: Arc<Class>,
    /// The world that the last scan has seen.
    seen: u64,
    spares: Seen,
}

impl SimScanner {
    fn probe(&self, slot: usize, taken: &Taken) -> Option<(String, Finding)> {
        let state = self.host.world.lock();
        let slot = state.slots.get(slot)?;
        if slot.node != self.host.node || CLASSES[slot.class] != self.class.name {
            return None;
        }
        let path = HostPath::from_api(&slot.path).unwrap();
        let name = path.child_of(&self.class.host_dir)?.to_owned();
        let is_mounted = self.class.mount_dir.join(&name).as_path() == Path::new(&slot.path);
        is_mounted.then_some(())?;
        let finding = if let Some(at) = slot.disk {
            let is_marked = state.mark(slot.node, at) != MarkOnDisk::Absent;
            let reads = (self.class.discovery_policy == DiscoveryPolicy::EmptyOnly || is_marked)
                && taken.as_ref().is_some_and(|taken| !taken.contains(&path));
            if state.disks[at].hangs {
                Finding::Skipped(Skip::new(SkipReason::TimedOut, "no answer"))
            } else {
                let found = state.candidate(slot.node, at, reads);
                Finding::Volume(Arc::new(Volume::new(&self.class, &name, found)))
            }
        } else {
            Finding::Skipped(Skip::new(SkipReason::NotMounted, "not mounted").gone())
        };
        Some((name, finding))
    }
}

impl Scanner for SimScanner {
    fn scan<'a>(&'a mut self, taken: &'a Taken) -> BoxFuture<'a, Observation> {
        let scan = async move {
            pause(30).await;
            self.host.goes_on().await;
            let (count, version) = {
                let state = self.host.world.lock();
                (state.slots.len(), state.version)
            };
            self.seen = version;
            let disks = {
                let (state, spares) = (self.host.world.lock(), &mut self.spares);
                state.survey(self.host.node, &self.class, spares)
            };
            let entries = (0..count).filter_map(|slot| self.probe(slot, taken));
            Observation {
                entries: Arc::new(entries.collect()),
                pod_mounts: BTreeMap::default(),
                complete: true,
                fault: None,
                disks_fault: disks.as_ref().err().cloned(),
                disks: Arc::new(disks.unwrap_or_default()),
            }
        };
        scan.boxed()
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        let seen = self.seen;
        let changed = move |state: &State| state.version != seen;
        self.host.world.until(changed).boxed()
    }
}

impl Host for SimHost {
    fn boot_time(&self) -> io::Result<BootTime> {
        Ok(self.boot_time_now())
    }

    fn state_directory(&self) -> Option<String> {
        Some(format!("directory-of-{}", self.node))
    }

    fn has_doubt(&self) -> bool {
        false
    }

    fn doubt_marks(&self, _pvs_differ: bool) {}

    fn inspect<'a>(&'a self, draft: &'a PvDraft, _: &'a PassFacts) -> Look<'a, Candidate> {
        let look = async {
            let at = self.find(&draft.volume.mount_path).await?;
            self.inspect_disk(at)
        };
        look.boxed()
    }

    fn open<'a>(&'a self, order: &'a CleanOrder, _: &'a PassFacts) -> Look<'a, BoxedVolume> {
        let open = async {
            let at = self.find(&order.volume.mount_path).await?;
            let candidate = self.inspect_disk(at)?;
            let held = self.world.take_lock(at, Some(self.process));
            let held = held.ok_or_else(|| in_use("it is locked"))?;
            let plugged = self.world.lock().disks[at].plugged;
            let lock = SimLock { world: Arc::clone(&self.world), at, held };
            let host = self.clone();
            Ok(Box::new(SimVolume { host, candidate, plugged, lock }) as BoxedVolume)
        };
        open.boxed()
    }

    fn mark<'a>(&'a self, write: &'a MarkWrite, _: &'a PassFacts) -> Look<'a, ()> {
        let work = self.change_unchanged(&write.volume, |state, at| {
            let mark = MarkOnDisk::Valid(write.mark.clone());
            state.set_mark(self.node, at, mark);
            Ok(())
        });
        work.boxed()
    }

    fn links(&self) -> Result<BTreeMap<String, String>, String> {
        Ok(self.world.lock().bindings.links_of(self.node))
    }

    fn link<'a>(&'a self, order: &'a LinkOrder, _: &'a PassFacts) -> Look<'a, ()> {
        self.make_link(order).boxed()
    }

    fn take_in<'a>(&'a self, order: &'a DiskOrder, _: &'a PassFacts) -> Look<'a, ()> {
        // A thread does not end with the task that waits for it.
        let (host, order) = (self.clone(), order.clone());
        let work = match order.how {
            Intake::Link => tokio::spawn(host.take_disk_in(order)),
            _ => tokio::spawn(host.take_filesystem_in(order)),
        };
        work.map(Result::unwrap).boxed()
    }

    fn unlink(&self, token: &str) -> Result<bool, String> {
        let is_alive = self.is_alive.load(Ordering::Relaxed);
        Ok(is_alive && self.world.lock().bindings.unlink(self.node, token))
    }

    fn follow<'a>(&'a self, _: Vec<PathBuf>, _: &'a PassFacts) -> Look<'a, HostPaths> {
        std::future::ready(Ok(HostPaths::default())).boxed()
    }

    fn kubelet_uses<'a>(&'a self, pv: &'a PvView) -> Look<'a, KubeletUses> {
        let look = async {
            pause(20).await;
            self.goes_on().await;
            let state = self.world.lock();
            let here = (self.node, pv.name.clone());
            let used = state.disks.iter().any(|disk| disk.mounted_for.contains(&here));
            Ok(KubeletUses {
                sees_pods: true,
                would_be_seen: true,
                paths: used.then(|| "/kubelet/pods/1".into()).into_iter().collect(),
            })
        };
        look.boxed()
    }
}
