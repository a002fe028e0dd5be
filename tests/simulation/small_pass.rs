//! What a pass does in the small world.

use std::collections::BTreeMap;
use std::sync::Arc;

use local_volume_provisioner::host::mark::{Mark, MarkOnDisk, MarkState};
use local_volume_provisioner::inventory::{Candidate, Volume};
use local_volume_provisioner::names::{
    ANNOTATION_IDENTITY, ANNOTATION_OFFER, ANNOTATION_USED, FINALIZER,
};
use local_volume_provisioner::plan::verdict::may_clean;
use local_volume_provisioner::plan::{
    Action, Agreement, CleanOrder, MarkWrite, Occupied, Patch, PvDraft, PvLocation, Withdrawal,
    agreement, mark_of, plan,
};
use local_volume_provisioner::view::{Phase, PvView};
use serde_json::from_value;

use crate::small_key::free;
use crate::small_state::{CLUSTER, Small};

/// The durable effects of a process, until it crashes.
struct Effects {
    done: usize,
    limit: usize,
}

/// The process has crashed.
struct Crashed;

impl Effects {
    /// Fails if the process crashes before the next one.
    fn next(&mut self) -> Result<(), Crashed> {
        if self.done == self.limit {
            return Err(Crashed);
        }
        self.done += 1;
        Ok(())
    }
}

impl Small {
    /// Runs a pass whose process crashes after this number of effects. Returns how many there were.
    pub fn pass(&self, limit: usize) -> (Self, usize) {
        let mut next = self.clone();
        let mut effects = Effects { done: 0, limit };
        if next.apply(&mut effects).is_err() {
            next.forget();
        }
        (next, effects.done)
    }

    fn apply(&mut self, effects: &mut Effects) -> Result<(), Crashed> {
        let plan = plan(self.settings(), &self.snapshot());
        for action in plan.actions {
            match action {
                Action::Create(draft) => self.create(*draft, effects)?,
                Action::Patch(patch) => self.patch(patch, effects)?,
                Action::Withdraw(withdrawal) => self.withdraw(withdrawal, effects)?,
                Action::Clean(order) => self.clean(&order, &plan.occupied, effects)?,
                Action::WriteMark(write) => self.write_mark(&write, effects)?,
                Action::FindPv(search) => {
                    for disk in &mut self.disks {
                        disk.is_searched |= disk.mark.digest() == search.mark;
                    }
                }
                // Each cleanup ends in its pass.
                Action::Track(_) | Action::Forget(_) => {}
                other => panic!("the small world has no {other:?}"),
            }
        }
        for pv in self.pvs.values().filter(|pv| pv.had_no_tenant()) {
            if let Some(disk) = self.at(pv) {
                self.judged.insert(pv.uid.clone(), disk);
            }
        }
        Ok(())
    }

    /// The disk at a path, if it is still the one that the scan found.
    fn found(&self, path: &str, candidate: &Candidate) -> Option<usize> {
        let at = self.at_path(path)?;
        let now = self.candidate(at);
        let is_same = now.identity == candidate.identity;
        (is_same && now.mark.on_disk == candidate.mark.on_disk).then_some(at)
    }

    fn write_mark(&mut self, write: &MarkWrite, effects: &mut Effects) -> Result<(), Crashed> {
        if let Some(at) = self.found(write.volume.path.as_str(), &write.volume.candidate) {
            effects.next()?;
            self.disks[at].set_mark(MarkOnDisk::Valid(write.mark.clone()));
        }
        Ok(())
    }

    fn create(&mut self, draft: PvDraft, effects: &mut Effects) -> Result<(), Crashed> {
        let before = draft.volume.candidate.mark.on_disk.valid().map(|it| it.token.clone());
        let mut pv = PvView::from_api(&from_value(draft.object).unwrap());
        if let Some(mut write) = draft.mark {
            // The digest of a time is another one in each world.
            if Some(&write.mark.token) != before.as_ref() {
                write.mark.token = self.free_token();
            }
            pv.offer = Some(write.mark.token.clone());
            self.write_mark(&write, effects)?;
        }
        effects.next()?;
        (pv.phase, pv.uid) = (Phase::Available, self.free_uid());
        let at = self.at(&pv).unwrap();
        let disk = &self.disks[at];
        if let Some(data) = disk.data.as_ref().filter(|_| !disk.is_forged) {
            self.fault = Some(format!("{} is offered with the data of {data}", pv.name));
        }
        let other = self.pvs.insert(pv.name.clone(), pv);
        assert!(other.is_none(), "a PV is created twice");
        Ok(())
    }

    fn patch(&mut self, patch: Patch, effects: &mut Effects) -> Result<(), Crashed> {
        if let Some(write) = &patch.mark {
            self.write_mark(write, effects)?;
        }
        effects.next()?;
        let pv = self.pvs.get_mut(&patch.pv.name).unwrap();
        for (key, value) in patch.annotations {
            match key {
                ANNOTATION_IDENTITY => pv.identity = value,
                ANNOTATION_USED => {
                    (pv.used, pv.use_is_unverified) = (true, value.as_deref() != Some("true"));
                }
                ANNOTATION_OFFER => pv.offer = value,
                other => panic!("the small world has no {other}"),
            }
        }
        if let Some(finalizers) = patch.finalizers {
            pv.finalizers = finalizers;
        }
        Ok(())
    }

    fn withdraw(&mut self, withdrawal: Withdrawal, effects: &mut Effects) -> Result<(), Crashed> {
        effects.next()?;
        let pv = self.pvs.get_mut(&withdrawal.pv.name).unwrap();
        pv.deleting = true;
        if let Some(finalizers) = withdrawal.finalizers {
            pv.finalizers = finalizers;
        }
        self.settle(&withdrawal.pv.name);
        Ok(())
    }

    /// Passes the gate, and wipes the volume.
    fn clean(
        &mut self,
        order: &CleanOrder,
        occupied: &Occupied,
        effects: &mut Effects,
    ) -> Result<(), Crashed> {
        let name = &order.pv.name;
        let Some(at) = self.found(order.volume.path.as_str(), &order.volume.candidate) else {
            return Ok(());
        };
        let (candidate, settings) = (self.candidate(at), self.settings());
        let (class, entry) = (&order.volume.class, &order.volume.entry);
        let volume = Arc::new(Volume::new(class, entry, candidate.clone()));
        let location = PvLocation::Volume(&volume);
        let snapshot = self.snapshot();
        let node = snapshot.node.as_ref().unwrap();
        let Some(mut pv) = self.pvs.get(name).cloned() else {
            let path = &order.volume.path;
            self.fault = Some(format!("{path} is wiped without a PV or a consent"));
            return Ok(());
        };
        let Ok(permission) = may_clean(&pv, settings, node, &location, occupied) else {
            return Ok(());
        };
        if let Agreement::Mismatch(_) = agreement(&pv, CLUSTER, &candidate, snapshot.date) {
            return Ok(());
        }
        effects.next()?;
        if !pv.has_finalizer() {
            pv.finalizers.push(FINALIZER.into());
        }
        pv.identity = Some(permission.identity);
        self.pvs.insert(name.clone(), pv.clone());
        effects.next()?;
        pv.deleting = true;
        // Another release is that of another claim.
        pv.release = pv.claim.as_ref().map(|it| it.name.clone());
        self.pvs.insert(name.clone(), pv.clone());
        let mark = mark_of(&pv, CLUSTER, &candidate, MarkState::Wiping, snapshot.date);
        let release = pv.release.clone();
        let mark = Mark { release, ..mark };
        let found = candidate.mark.on_disk.valid();
        let is_clean = found.is_some_and(|it| {
            it.state == MarkState::Free && it.pv_uid == pv.uid && it.release == pv.release
        });
        if !is_clean {
            effects.next()?;
            self.disks[at].set_mark(MarkOnDisk::Valid(mark.clone()));
            effects.next()?;
            self.wipe(at, &pv);
            effects.next()?;
            let state = MarkState::Free;
            self.disks[at].set_mark(MarkOnDisk::Valid(Mark { state, ..mark }));
        }
        effects.next()?;
        self.remove(name);
        Ok(())
    }

    fn wipe(&mut self, at: usize, pv: &PvView) {
        let disk = &mut self.disks[at];
        let claim = pv.claim.as_ref().map(|it| &it.name);
        let other = disk.data.as_ref().filter(|it| Some(*it) != claim);
        if let Some(data) = other.filter(|_| !disk.is_forged) {
            let name = &pv.name;
            self.fault = Some(format!("the data of {data} is wiped for {name} of {claim:?}"));
        }
        (disk.data, disk.is_forged) = (None, false);
    }

    fn all_pvs(&self) -> impl Iterator<Item = &PvView> {
        let backup = self.backup.iter().flat_map(BTreeMap::values);
        self.pvs.values().chain(backup)
    }

    fn free_uid(&self) -> String {
        let marks = self.disks.iter().filter_map(|it| Some(it.mark.valid()?.pv_uid.as_str()));
        let ended = self.ended.iter().map(|it| it.1.as_str());
        let pvs = self.all_pvs().map(|pv| pv.uid.as_str());
        free("uid", pvs.chain(marks).chain(ended))
    }

    fn free_token(&self) -> String {
        let marks = self.disks.iter().filter_map(|it| Some(it.mark.valid()?.token.as_str()));
        let ended = self.ended.iter().map(|it| it.0.as_str());
        let pvs = self.all_pvs().filter_map(|pv| pv.offer.as_deref());
        free("offer", pvs.chain(marks).chain(ended))
    }
}
