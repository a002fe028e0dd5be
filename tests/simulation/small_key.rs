//! What two equal states of the small world have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write};
use std::sync::LazyLock;

use local_volume_provisioner::host::mark::{Mark, MarkOnDisk};
use local_volume_provisioner::view::PvView;

use crate::small_state::{DISKS, Small, is_own, path};

/// The texts and hashes of the identities of the disks.
static IDENTITIES: LazyLock<[(String, String); DISKS]> = LazyLock::new(|| {
    let state = Small::new();
    [0, 1].map(|disk| {
        let identity = state.candidate(disk).identity;
        (identity.text.clone(), identity.hash())
    })
});

/// A text that is equal for equal states. Names are numbered as they come, disks and slots in an order.
#[derive(Debug)]
struct Key<'a> {
    state: &'a Small,
    disks: [usize; DISKS],
    slots: [usize; DISKS],
    names: Vec<&'a str>,
    text: String,
}

/// All that decides what follows. States are equal if their disks, slots, claims, UIDs or offers have other names.
pub fn key(state: &Small) -> String {
    let orders = [[0, 1], [1, 0]];
    let keys = orders.map(|disks| {
        orders.map(|slots| {
            let (names, text) = (Vec::new(), String::new());
            let mut key = Key { state, disks, slots, names, text };
            key.write();
            key.text
        })
    });
    keys.into_iter().flatten().min().unwrap()
}

impl<'a> Key<'a> {
    fn add(&mut self, what: impl Debug) {
        write!(self.text, "{what:?};").unwrap();
    }

    fn name(&mut self, name: Option<&'a str>) {
        let at = name.map(|name| {
            let name = name.trim_start_matches("default/");
            let known = self.names.iter().position(|it| *it == name);
            known.unwrap_or_else(|| {
                self.names.push(name);
                self.names.len() - 1
            })
        });
        self.add(at);
    }

    fn write(&mut self) {
        let state = self.state;
        let place = |disk: &usize| self.disks.iter().position(|it| it == disk);
        let plugged = self.slots.map(|slot| state.slots[slot].as_ref().and_then(place));
        self.add((plugged, state.has_class));
        for disk in self.disks {
            let disk = &state.disks[disk];
            self.add((disk.is_forged, disk.is_searched));
            self.name(disk.data.as_deref());
            match &disk.mark {
                MarkOnDisk::Valid(mark) => self.mark(mark),
                other => self.add(other),
            }
        }
        self.pvs(&state.pvs);
        if let Some(backup) = &state.backup {
            self.pvs(backup);
        }
        for (offer, uid) in &state.ended {
            // What no disk has is forgotten.
            if self.names.contains(&offer.as_str()) {
                self.name(Some(offer));
                self.name(Some(uid));
            }
        }
        self.add(&state.fault);
    }

    fn mark(&mut self, mark: &'a Mark) {
        let is_of = |disk: &usize| IDENTITIES[*disk].1 == mark.identity_hash;
        let disk = self.disks.iter().position(is_of);
        self.add((mark.state, disk, is_own(mark)));
        for name in
            [Some(&mark.pv_uid), Some(&mark.token), mark.claim.as_ref(), mark.release.as_ref()]
        {
            self.name(name.map(String::as_str));
        }
    }

    fn pvs(&mut self, pvs: &'a BTreeMap<String, PvView>) {
        for slot in self.slots {
            let mut all = pvs.values();
            let Some(pv) = all.find(|pv| pv.path().is_some_and(|it| it.as_str() == path(slot)))
            else {
                self.add("none");
                continue;
            };
            let recorded = |disk: &usize| pv.identity.as_ref() == Some(&IDENTITIES[*disk].0);
            let disk = self.disks.iter().position(recorded);
            let judged = self.state.judged.get(&pv.uid);
            let judged = self.disks.iter().position(|it| Some(it) == judged);
            self.add((
                disk,
                judged,
                pv.phase,
                (pv.used, pv.use_is_unverified),
                pv.deleting,
                pv.has_finalizer(),
            ));
            let claim = pv.claim.as_ref().map(|it| it.name.as_str());
            for name in [Some(pv.uid.as_str()), pv.offer.as_deref(), claim] {
                self.name(name);
            }
        }
    }
}

/// The first name of this kind that nothing has.
pub fn free<'a>(kind: &str, used: impl Iterator<Item = &'a str>) -> String {
    let used: BTreeSet<_> = used.collect();
    let mut names = (1..).map(|at| format!("{kind}-{at}"));
    names.find(|name| !used.contains(name.as_str())).unwrap()
}
