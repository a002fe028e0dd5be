//! The simulated machine, as the provisioner sees it. Nothing of it has a thread.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, pending};
use local_volume_provisioner::cleanup::{
    BoxedVolume, CleanVolume, Cleaning, Commit, Failure, Host, KubeletUses, Lock, LockedVolume,
    Look, Marking, Obstacle, PassFacts,
};
use local_volume_provisioner::config::{Class, DiscoveryPolicy};
use local_volume_provisioner::host::host_path::HostPaths;
use local_volume_provisioner::host::mark::{Mark, MarkOnDisk, MarkState};
use local_volume_provisioner::inventory::{
    Candidate, Disks, Finding, Observation, Scanner, Skip, Taken,
};
use local_volume_provisioner::plan::{CleanOrder, MarkWrite, PvDraft, reasons};
use local_volume_provisioner::types::{HostPath, MountPath, SkipReason};
use local_volume_provisioner::view::PvView;
use local_volume_provisioner::wipe::progress::Progress;

use crate::world::{State, Wipe, World, candidate, pause};

/// The machine, for one process.
#[derive(Clone, Debug)]
pub struct SimHost {
    pub world: Arc<World>,
    pub is_alive: Arc<AtomicBool>,
}

impl SimHost {
    /// A killed process goes no further.
    async fn goes_on(&self) {
        if !self.is_alive.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }

    /// Waits until the disk at a path answers.
    async fn find(&self, path: &MountPath) -> usize {
        let path = path.to_string();
        let at = self.world.find(&path);
        self.world.answers(at).await;
        self.goes_on().await;
        at
    }

    fn inspect_disk(&self, at: usize) -> Result<Candidate, Obstacle> {
        let state = self.world.lock();
        let disk = &state.disks[at];
        if !disk.is_present {
            return Err(Obstacle::Unknown("nothing is mounted there".into()));
        }
        if self.world.shows_mounts && !disk.mounted_for.is_empty() {
            return Err(in_use("a pod"));
        }
        if disk.lock.is_some() {
            return Err(in_use("it is locked"));
        }
        Ok(candidate(at, disk, false))
    }
}

fn in_use(user: &str) -> Obstacle {
    Obstacle::InUse {
        user: user.into(),
        notify_after: Duration::from_secs(3),
    }
}

impl Disks for SimHost {
    fn scanner(&self, class: &Arc<Class>) -> Box<dyn Scanner> {
        Box::new(SimScanner {
            host: self.clone(),
            class: Arc::clone(class),
            seen: 0,
        })
    }
}

#[derive(Debug)]
struct SimScanner {
    host: SimHost,
    class: Arc<Class>,
    /// The world that the last scan has seen.
    seen: u64,
}

impl SimScanner {
    fn probe(&self, at: usize, taken: &Taken) -> Option<(String, Finding)> {
        let state = self.host.world.lock();
        let disk = state.disks.get(at)?;
        if disk.class != self.class.name {
            return None;
        }
        let path = HostPath::from_api(&disk.path).unwrap();
        let is_marked = disk.mark != MarkOnDisk::Absent;
        let reads = (self.class.discovery_policy == DiscoveryPolicy::EmptyOnly || is_marked)
            && taken.as_ref().is_some_and(|taken| !taken.contains(&path));
        let finding = if disk.hangs {
            Finding::Skipped(Skip::new(SkipReason::TimedOut, "no answer"))
        } else if disk.is_present {
            Finding::Volume(Box::new(candidate(at, disk, reads)))
        } else {
            Finding::Skipped(Skip::new(SkipReason::NotMounted, "not mounted").gone())
        };
        let name = path.child_of(&self.class.host_dir).unwrap().to_owned();
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
                (state.disks.len(), state.version)
            };
            self.seen = version;
            let entries = (0..count).filter_map(|at| self.probe(at, taken));
            Observation {
                entries: Arc::new(entries.collect()),
                pod_mounts: std::collections::BTreeMap::default(),
                complete: true,
                fault: None,
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
    fn inspect<'a>(&'a self, draft: &'a PvDraft, _: &'a PassFacts) -> Look<'a, Candidate> {
        let look = async {
            let at = self.find(&draft.mount_path).await;
            self.inspect_disk(at)
        };
        look.boxed()
    }

    fn open<'a>(&'a self, order: &'a CleanOrder, _: &'a PassFacts) -> Look<'a, BoxedVolume> {
        let open = async {
            let at = self.find(&order.mount_path).await;
            let candidate = self.inspect_disk(at)?;
            let held = self.world.take_lock(at, false);
            let held = held.ok_or_else(|| in_use("it is locked"))?;
            let lock = SimLock {
                world: Arc::clone(&self.world),
                at,
                held,
            };
            let host = self.clone();
            Ok(Box::new(SimVolume {
                host,
                candidate,
                lock,
            }) as BoxedVolume)
        };
        open.boxed()
    }

    fn mark<'a>(&'a self, write: &'a MarkWrite, _: &'a PassFacts) -> Look<'a, ()> {
        let work = async {
            let at = self.find(&write.mount_path).await;
            pause(20).await;
            self.goes_on().await;
            let mut state = self.world.lock();
            let disk = &mut state.disks[at];
            let is_same = candidate(at, disk, false).identity == write.candidate.identity;
            if !disk.is_present || !is_same || disk.mark != write.candidate.mark.on_disk {
                return Err(Obstacle::Unknown("it has changed since the scan".into()));
            }
            disk.mark = MarkOnDisk::Valid(write.mark.clone());
            Ok(())
        };
        work.boxed()
    }

    fn follow<'a>(&'a self, _: Vec<PathBuf>, _: &'a PassFacts) -> Look<'a, HostPaths> {
        std::future::ready(Ok(HostPaths::default())).boxed()
    }

    fn kubelet_uses<'a>(&'a self, pv: &'a PvView) -> BoxFuture<'a, io::Result<KubeletUses>> {
        let look = async {
            pause(20).await;
            self.goes_on().await;
            let state = self.world.lock();
            let used = state
                .disks
                .iter()
                .any(|disk| disk.mounted_for.contains(&pv.name));
            Ok(KubeletUses {
                sees_pods: true,
                would_be_seen: true,
                paths: used.then(|| "/kubelet/pods/1".into()).into_iter().collect(),
            })
        };
        look.boxed()
    }
}

#[derive(Debug)]
struct SimLock {
    world: Arc<World>,
    at: usize,
    held: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.world.unlock(self.at, self.held);
    }
}

#[derive(Debug)]
struct SimVolume {
    host: SimHost,
    candidate: Candidate,
    lock: SimLock,
}

impl SimVolume {
    async fn write(&self, mark: Option<Mark>) {
        pause(20).await;
        self.host.goes_on().await;
        if let Some(mark) = mark {
            self.host.world.lock().disks[self.lock.at].mark = MarkOnDisk::Valid(mark);
        }
    }

    /// Records that the disk is clean.
    async fn free(&self, mark: Option<Mark>) {
        let state = MarkState::Free;
        self.write(mark.map(|mark| Mark { state, ..mark })).await;
    }

    async fn wipe_it(
        self,
        wipe: Wipe,
        mark: Option<Mark>,
        progress: Progress,
    ) -> Result<CleanVolume, Failure> {
        let (world, at) = (Arc::clone(&self.host.world), self.lock.at);
        let failed = |text: &str| Failure::new(reasons::VOLUME_FAILED_DELETE, text);
        let fails = std::mem::take(&mut world.lock().disks[at].next_wipe_fails);
        for _ in 0..fastrand::u32(1..5) {
            world.check_wipe(at, Some(self.lock.held), &wipe);
            world.lock().disks[at].is_wiped = true;
            pause(if fastrand::u8(..8) == 0 {
                60_000
            } else {
                5_000
            })
            .await;
            world.answers(at).await;
            self.host.goes_on().await;
            world.lock().disks[at].is_wiped = false;
            if progress.is_cancelled() {
                return Err(failed("it was cancelled"));
            }
            if !world.lock().disks[at].is_present {
                return Err(failed("the disk is gone"));
            }
            progress.add_entry();
        }
        if fails {
            return Err(failed("an I/O error"));
        }
        world.check_wipe(at, Some(self.lock.held), &wipe);
        world.wiped(at);
        self.free(mark).await;
        Ok(CleanVolume {
            data_left: false,
            lock: Box::new(self.lock),
        })
    }
}

impl LockedVolume for SimVolume {
    fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    fn wipe<'a>(self: Box<Self>, commit: &'a Commit, progress: &'a Progress) -> Cleaning<'a> {
        let order = &commit.order;
        let wipe = Wipe {
            path: order.path.to_string(),
            pv: order.pv.name.clone(),
            pv_uid: order.pv.uid.clone(),
            identity: commit.identity().to_owned(),
        };
        // A wipe does not end with the task that waits for it.
        let wipe = tokio::spawn(self.wipe_it(wipe, commit.mark.clone(), progress.clone()));
        wipe.map(Result::unwrap).boxed()
    }

    fn verify<'a>(self: Box<Self>, commit: &'a Commit, _: &'a Progress) -> Cleaning<'a> {
        let verify = async {
            let at = self.lock.at;
            self.host.world.answers(at).await;
            self.host.goes_on().await;
            if self.host.world.lock().disks[at].data.is_some() {
                let text = "the Job has left data";
                return Err(Failure::new(reasons::VOLUME_FAILED_DELETE, text));
            }
            self.free(commit.mark.clone()).await;
            Ok(CleanVolume {
                data_left: false,
                lock: Box::new(self.lock),
            })
        };
        verify.boxed()
    }

    fn mark(self: Box<Self>, commit: &Commit, state: MarkState) -> Marking {
        let mark = commit.mark_in(state, &self.candidate.mark.on_disk);
        let write = async move {
            self.write(mark).await;
            Ok(self as BoxedVolume)
        };
        write.boxed()
    }

    fn close(self: Box<Self>) -> Lock {
        Box::new(self.lock)
    }
}
