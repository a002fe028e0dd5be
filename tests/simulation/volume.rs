//! An open and locked volume of a simulated machine, and its wipe.

use std::sync::Arc;

use futures::FutureExt;
use local_volume_provisioner::cleanup::{
    BoxedVolume, CleanVolume, Cleaning, Commit, Failure, Lock, LockedVolume, Marking,
};
use local_volume_provisioner::host::mark::{Mark, MarkOnDisk, MarkState};
use local_volume_provisioner::inventory::Candidate;
use local_volume_provisioner::wipe::progress::Progress;

use crate::checks::Wipe;
use crate::host::SimHost;
use crate::world::{Lock as DiskLock, World, pause};

#[derive(Debug)]
pub struct SimLock {
    pub world: Arc<World>,
    pub at: usize,
    pub held: DiskLock,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.world.unlock(self.at, self.held);
    }
}

#[derive(Debug)]
pub struct SimVolume {
    pub host: SimHost,
    pub candidate: Candidate,
    /// What was opened is gone when the disk was pulled since.
    pub plugged: u32,
    pub lock: SimLock,
}

impl SimVolume {
    fn is_there(&self) -> bool {
        self.host.world.lock().disks[self.lock.at].plugged == self.plugged
    }

    async fn write(&self, mark: Option<Mark>) -> Result<(), Failure> {
        pause(20).await;
        self.host.goes_on().await;
        if !self.is_there() {
            return Err(Failure::new("the disk is gone"));
        }
        if let Some(mark) = mark {
            let (node, at, mark) = (self.host.node, self.lock.at, MarkOnDisk::Valid(mark));
            self.host.world.lock().set_mark(node, at, mark);
            self.host.effect().await;
        }
        Ok(())
    }

    /// Records that the disk is clean.
    pub async fn free(self, mark: Option<Mark>) -> Result<CleanVolume, Failure> {
        let (state, data_left) = (MarkState::Free, Some(false));
        let free = |mark| Mark { state, data_left, ..mark };
        self.write(mark.map(free)).await?;
        Ok(CleanVolume { data_left: false, lock: Box::new(self.lock) })
    }

    async fn wipe_it(
        self,
        wipe: Wipe,
        mark: Option<Mark>,
        progress: Progress,
    ) -> Result<CleanVolume, Failure> {
        let (world, at) = (Arc::clone(&self.host.world), self.lock.at);
        let fails = std::mem::take(&mut world.lock().disks[at].next_wipe_fails);
        world.check_begin(at, &wipe);
        for _ in 0..fastrand::u32(1..5) {
            world.check_wipe(at, Some(self.lock.held), &wipe);
            world.lock().disks[at].is_wiped = true;
            pause(if fastrand::u8(..8) == 0 { 60_000 } else { 5_000 }).await;
            world.answers(at).await;
            self.host.effect().await;
            world.lock().disks[at].is_wiped = false;
            if progress.is_cancelled() {
                return Err(Failure::new("it was cancelled"));
            }
            if !self.is_there() {
                return Err(Failure::new("the disk is gone"));
            }
            progress.add_entry();
        }
        if fails {
            return Err(Failure::new("an I/O error"));
        }
        world.check_wipe(at, Some(self.lock.held), &wipe);
        world.wiped(at);
        self.host.effect().await;
        self.free(mark).await
    }
}

impl LockedVolume for SimVolume {
    fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    fn wipe<'a>(self: Box<Self>, commit: &'a Commit, progress: &'a Progress) -> Cleaning<'a> {
        let order = &commit.order;
        let wipe = Wipe {
            node: self.host.node,
            is_orphan: order.orphan_on.is_some(),
            path: order.volume.path.to_string(),
            pv: order.pv.name.clone(),
            pv_uid: order.pv.uid.clone(),
            identity: commit.identity().to_owned(),
        };
        // A wipe does not end with the task that waits for it.
        let (mark, progress) = (commit.mark.clone(), progress.clone());
        let wipe = match &*order.method.to_string() {
            "reformat" => tokio::spawn(self.reformat(wipe, mark, progress)),
            _ => tokio::spawn(self.wipe_it(wipe, mark, progress)),
        };
        wipe.map(Result::unwrap).boxed()
    }

    fn verify<'a>(self: Box<Self>, commit: &'a Commit, _: &'a Progress) -> Cleaning<'a> {
        let verify = async {
            let at = self.lock.at;
            self.host.world.answers(at).await;
            self.host.goes_on().await;
            if self.host.world.lock().disks[at].data.is_some() {
                return Err(Failure::new("the Job has left data"));
            }
            self.free(commit.mark.clone()).await
        };
        verify.boxed()
    }

    fn mark(self: Box<Self>, commit: &Commit, state: MarkState) -> Marking {
        let mark = commit.mark_in(state, &self.candidate.mark.on_disk);
        let is_orphan = commit.order.orphan_on.is_some();
        let write = async move {
            if let Some(mark) = mark.as_ref().filter(|it| it.state == MarkState::Wiping) {
                let (node, at) = (self.host.node, self.lock.at);
                self.host.world.check_wiping(node, at, mark, is_orphan);
            }
            self.write(mark).await?;
            Ok(self as BoxedVolume)
        };
        write.boxed()
    }

    fn close(self: Box<Self>) -> Lock {
        Box::new(self.lock)
    }
}
