//! Makes and mounts filesystems, step by step as `src/cleanup/format.rs` does. A process may crash after each step.

use std::sync::Arc;
use std::time::Duration;

use local_volume_provisioner::cleanup::{CleanVolume, Failure, Obstacle};
use local_volume_provisioner::host::mark::{Mark, MarkOnDisk, MarkState};
use local_volume_provisioner::inventory::DiskContents;
use local_volume_provisioner::plan::{DiskOrder, Intake};
use local_volume_provisioner::types::VolumeMode;
use local_volume_provisioner::wipe::progress::Progress;

use crate::checks::Wipe;
use crate::host::SimHost;
use crate::made::Format;
use crate::process::elapsed;
use crate::spares::Mishap;
use crate::volume::{SimLock, SimVolume};
use crate::world::{World, pause};

/// How long a step may take, in milliseconds.
const MOMENT: u64 = 20;
const RESET: u64 = 5_000;
const MKFS: u64 = 10_000;

/// A disk that is locked until its filesystem is mounted.
struct Target {
    host: SimHost,
    at: usize,
    plugged: u32,
    _lock: SimLock,
    mark: Mark,
    path: String,
    progress: Progress,
}

impl Target {
    fn world(&self) -> &Arc<World> {
        &self.host.world
    }

    /// Waits until the disk answers.
    async fn answers(&self, longest: u64) -> Result<(), Failure> {
        pause(longest).await;
        self.world().answers(self.at).await;
        self.host.goes_on().await;
        if self.world().lock().disks[self.at].plugged != self.plugged {
            return Err(Failure::new("the disk is gone"));
        }
        if self.progress.is_cancelled() {
            return Err(Failure::new("it was cancelled"));
        }
        Ok(())
    }

    /// Writes the mark of the disk, which is in the state directory.
    async fn write_mark(&self, state: MarkState) {
        pause(MOMENT).await;
        self.host.goes_on().await;
        let mark = MarkOnDisk::Valid(Mark { state, ..self.mark.clone() });
        let (node, at) = (self.host.node, self.at);
        self.world().change(|it| it.set_mark_of_device(node, at, mark));
        self.host.effect().await;
    }

    /// Resets the disk of a volume that is cleaned, or of one whose cleanup was interrupted.
    async fn reset(&self, wipe: Option<&Wipe>) -> Result<(), Failure> {
        let (world, at) = (self.world(), self.at);
        let check = || match wipe {
            Some(wipe) => world.check_wipe(at, None, wipe),
            None => world.check_remake(self.host.node, at, &self.path),
        };
        self.write_mark(MarkState::Wiping).await;
        self.answers(MOMENT).await?;
        world.lock().disks[at].wiped_since = elapsed();
        let fails = std::mem::take(&mut world.lock().disks[at].next_wipe_fails);
        check();
        world.change(|state| {
            let mark = state.mark_as(VolumeMode::Block, self.host.node, at);
            if mark.valid().is_none_or(|it| it.state != MarkState::Wiping) {
                state.violation(&format!("disk {at} is reset, and its mark is {mark:?}"));
            }
            let disk = &mut state.disks[at];
            (disk.made.format, disk.is_wiped) = (Format::Half, true);
        });
        self.host.effect().await;
        self.answers(RESET).await?;
        if fails {
            return Err(Failure::new("an I/O error"));
        }
        check();
        world.wiped(at);
        world.change(|state| state.disks[at].made.format = Format::None);
        self.host.effect().await;
        Ok(())
    }

    /// Makes the filesystem on a blank disk, and mounts it.
    async fn make(&self) -> Result<(), Failure> {
        let (world, at) = (self.world(), self.at);
        self.answers(MOMENT).await?;
        world.change(|state| match state.contents(at) {
            DiskContents::Blank => {
                state.disks[at].made.format = Format::Half;
                Ok(())
            }
            found => Err(Failure::new(format!("it is not blank: {found:?}"))),
        })?;
        self.host.effect().await;
        self.answers(MKFS).await?;
        world.change(|state| state.made(at));
        self.host.effect().await;
        self.write_mark(MarkState::Pending).await;
        self.mount().await
    }

    async fn mount(&self) -> Result<(), Failure> {
        let (world, at, node) = (self.world(), self.at, self.host.node);
        self.answers(MOMENT).await?;
        world.change(|state| {
            let slot = state.make_directory(node, &self.path);
            if state.slots[slot].disk.is_some() {
                return Err(Failure::new("its directory is in use"));
            }
            if state.disks[at].made.format != Format::Complete {
                return Err(Failure::new("it has no filesystem"));
            }
            state.mount_made(slot, at);
            state.disks[at].is_wiped = false;
            Ok(())
        })?;
        self.host.effect().await;
        self.write_mark(MarkState::Free).await;
        Ok(())
    }

    async fn unmount(&self) -> Result<(), Failure> {
        self.answers(MOMENT).await?;
        let is_open = fastrand::u8(..8) == 0;
        self.world().change(|state| {
            let slot = state.slot(self.host.node, &self.path);
            let slot = slot.filter(|slot| state.slots[*slot].disk == Some(self.at));
            match slot {
                _ if (is_open && !state.spares.is_quiet) || state.disks[self.at].lock.is_some() => {
                    Err(Failure::new("it cannot be unmounted"))
                }
                None => Err(Failure::new("it is not mounted")),
                Some(slot) => {
                    state.unmount_made(slot);
                    Ok(())
                }
            }
        })?;
        self.host.effect().await;
        Ok(())
    }

    /// Unmounts the filesystem of a volume, and makes it again.
    async fn reformat(&self, wipe: &Wipe) -> Result<(), Failure> {
        let (world, at) = (self.world(), self.at);
        self.write_mark(MarkState::Pending).await;
        if let Err(failure) = self.unmount().await {
            self.write_mark(MarkState::Free).await;
            return Err(failure);
        }
        self.answers(MOMENT).await?;
        // A mount of a kubelet outlives the one at the entry.
        if !world.lock().disks[at].mounted_for.is_empty() {
            self.mount().await?;
            return Err(Failure::new("it is in use"));
        }
        self.reset(Some(wipe)).await?;
        self.make().await
    }
}

impl SimHost {
    /// Locks a disk without an entry that is still as planned.
    fn open_disk(&self, order: &DiskOrder, at: usize) -> Result<Target, Obstacle> {
        let unknown = |why: &str| Obstacle::Unknown(why.into());
        let state = self.world.lock();
        if state.linked(self.node, &order.link) != Some(at) {
            return Err(unknown("it is gone"));
        }
        let (disk, planned) = (&state.disks[at], &order.volume.candidate);
        let found = state.candidate_as(VolumeMode::Block, self.node, at, false);
        if found.in_use.is_some() || !disk.mounted_for.is_empty() {
            return Err(unknown("it is in use"));
        }
        let is_same = (&found.identity, found.capacity, &found.mark)
            == (&planned.identity, planned.capacity, &planned.mark);
        let is_expected = matches!(
            (order.how, state.contents(at)),
            (Intake::Make, DiskContents::Blank)
                | (Intake::Make | Intake::Mount, DiskContents::Made)
                | (Intake::Remake, _)
        );
        if !is_same || !is_expected {
            return Err(unknown("it has been exchanged, marked or written to"));
        }
        let plugged = disk.plugged;
        drop(state);
        let lock = self.lock_device(at);
        Ok(Target {
            host: self.clone(),
            at,
            plugged,
            _lock: lock.ok_or_else(|| unknown("it is locked"))?,
            mark: order.mark.clone(),
            path: order.volume.path.to_string(),
            progress: Progress::default(),
        })
    }

    fn lock_device(&self, at: usize) -> Option<SimLock> {
        let held = self.world.take_lock_of_device(at, self.process)?;
        let world = Arc::clone(&self.world);
        Some(SimLock { world, at, held })
    }

    /// Makes or mounts the filesystem of a disk. It does not end with its task.
    pub async fn take_filesystem_in(self, order: DiskOrder) -> Result<(), Obstacle> {
        let unknown = |failure: Failure| Obstacle::Unknown(failure.message);
        let (node, begun) = (self.node, elapsed());
        let Some(at) = self.world.lock().linked(node, &order.link) else {
            return Err(Obstacle::Unknown("it is gone".into()));
        };
        if let Some(why) = self.suffer(at) {
            return Err(Obstacle::Unknown(why.into()));
        }
        self.world.answers(at).await;
        self.goes_on().await;
        let target = self.open_disk(&order, at)?;
        let format = self.world.lock().disks[at].made.format;
        match (format, order.how) {
            (Format::Complete, _) => target.mount().await,
            (_, Intake::Remake) => {
                target.reset(None).await.map_err(unknown)?;
                target.make().await
            }
            _ => {
                self.world.change(|state| {
                    let mark = state.mark_as(VolumeMode::Block, node, at);
                    if mark == MarkOnDisk::Absent {
                        state.check_intake(node, at, &order, begun);
                    }
                });
                target.write_mark(MarkState::Pending).await;
                target.make().await
            }
        }
        .map_err(unknown)
    }

    /// What is to happen to a disk does, now or while its filesystem is made. Returns why it cannot be opened.
    fn suffer(&self, at: usize) -> Option<&'static str> {
        let effects = || fastrand::u64(1..6);
        let mishap = self.world.change(|state| state.begin_mishap(at, effects));
        let (world, after) = (Arc::clone(&self.world), fastrand::u64(..10_000));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(after)).await;
            world.change(|state| state.end_mishap(at, mishap));
        });
        matches!(mishap, Some(Mishap::Fails)).then_some("an I/O error")
    }
}

impl SimVolume {
    /// Cleans the volume: its filesystem is made again.
    pub async fn reformat(
        self,
        wipe: Wipe,
        mark: Option<Mark>,
        progress: Progress,
    ) -> Result<CleanVolume, Failure> {
        let (host, at, plugged) = (self.host.clone(), self.lock.at, self.plugged);
        let world = Arc::clone(&host.world);
        let lock = host.lock_device(at);
        let lock = lock.ok_or_else(|| Failure::new("the device is locked"))?;
        let mark = mark.ok_or_else(|| Failure::new("it has no mark"))?;
        world.check_begin(at, &wipe);
        if fastrand::u8(..4) == 0 && !world.lock().spares.is_quiet {
            let mut state = world.lock();
            state.crash_after = Some(state.effects + fastrand::u64(1..12));
        }
        let boot_time = host.boot_time_now();
        let of_disk = {
            let state = world.lock();
            let device = state.candidate_as(VolumeMode::Block, host.node, at, false);
            Mark {
                cluster: mark.cluster.clone(),
                class: mark.class.clone(),
                identity_hash: device.identity.hash(),
                data_left: Some(false),
                written_at: mark.written_at,
                boot_time: Some(boot_time),
                ..Mark::default()
            }
        };
        world.change(|state| state.keep_mark(host.node, at, mark.clone()));
        host.effect().await;
        let target = Target {
            host: host.clone(),
            at,
            plugged,
            _lock: lock,
            mark: of_disk,
            path: wipe.path.clone(),
            progress,
        };
        // Until then the filesystem is in use.
        drop(self.lock);
        target.reformat(&wipe).await?;
        let held = world.take_lock(at, Some(host.process));
        let held = held.ok_or_else(|| Failure::new("it is locked"))?;
        drop(target);
        let lock = SimLock { world, at, held };
        let again = Self { host, candidate: self.candidate, plugged, lock };
        again.free(Some(mark)).await
    }
}
