//! DiscoverLocalVolumes: which entries of the discovery directories become PVs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::Class;
use crate::inventory::{Candidate, Entry, Finding, Observation, Skip};
use crate::names::{
    ANNOTATION_IDENTITY, ANNOTATION_PROVISIONED_BY, LABEL_HOSTNAME, provisioner_name, pv_name,
    pv_name_on_collision,
};
use crate::quantity;
use crate::types::{HostPath, SkipReason};
use crate::view::{Ownership, PvView, ReclaimPolicy, StorageClassView};

use super::eligible::may_be_offered;
use super::{
    About, Action, ClassReport, Occupant, Planner, PvDraft, Refusal, VolumeReport, VolumeState,
    reasons,
};

/// The number of entries that one event names.
const MAX_NAMED: usize = 5;

/// Names the first of some entries, and how many more there are.
pub(super) fn some_of(entries: &[&str]) -> String {
    let named = entries[..entries.len().min(MAX_NAMED)].join(", ");
    match entries.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

impl<'a> Planner<'a> {
    /// Reports the entries of each class and the PVs without an entry, and creates the missing PVs.
    pub(super) fn discover_local_volumes(&mut self) {
        let settings = self.settings;
        for (name, class) in &settings.config.classes {
            let report = match self.snapshot.observed.get(name) {
                Some(observation) => self.class(class, observation),
                None => ClassReport {
                    name: name.clone(),
                    ready: false,
                    faults: vec!["its directory has not been looked at yet".into()],
                    volumes: Vec::new(),
                },
            };
            self.add(report);
        }
        for (name, faults) in &settings.faulty {
            self.notice(
                About::Pod,
                reasons::CLASS_INVALID,
                format!("class {name:?} is switched off: {}", faults.join("; ")),
            );
            self.add(ClassReport {
                name: name.clone(),
                ready: false,
                faults: faults.clone(),
                volumes: Vec::new(),
            });
        }
        self.add_pvs_without_entry();
    }

    fn add(&mut self, report: ClassReport) {
        if !report.ready {
            let why = match report.faults.first() {
                Some(fault) => format!("class {:?}: {fault}", report.name),
                None => format!(
                    "class {:?}: not all of its volumes have PVs yet",
                    report.name
                ),
            };
            self.plan.not_ready.push(why);
        }
        self.plan.classes.push(report);
    }

    fn class(&mut self, class: &'a Arc<Class>, observation: &'a Observation) -> ClassReport {
        let mut faults: Vec<String> = observation.fault.iter().cloned().collect();
        let storage_class = match self.storage_class(class) {
            Ok(storage_class) => Some(storage_class),
            Err(skip) => {
                faults.push(skip.detail);
                None
            }
        };
        let volumes: Vec<_> = observation
            .entries
            .iter()
            .map(|entry| self.entry(class, storage_class, observation.complete, entry))
            .collect();
        self.report_contents(class, &volumes);
        let hindered =
            |volume: &VolumeReport| volume.state == VolumeState::Creating || volume.is_unreadable();
        let ready = faults.is_empty() && !volumes.iter().any(hindered);
        ClassReport {
            name: class.name.clone(),
            ready,
            faults,
            volumes,
        }
    }

    /// Reports the volumes of a class that are not offered because they hold data, all in one event.
    fn report_contents(&mut self, class: &Class, volumes: &[VolumeReport]) {
        let not_empty = |volume: &&VolumeReport| volume.reason == Some(SkipReason::NotEmpty);
        let entries: Vec<_> = volumes
            .iter()
            .filter(not_empty)
            .map(|it| it.entry.as_str())
            .collect();
        if entries.is_empty() {
            return;
        }
        let message = format!(
            "class {:?} offers empty volumes only (discoveryPolicy: EmptyOnly), and these in {} hold something: {}; /status and `local-volume-provisioner discover` show what; if the data is no longer needed, run `local-volume-provisioner clean PATH`",
            class.name,
            class.host_dir,
            some_of(&entries)
        );
        self.notice(About::Pod, reasons::VOLUME_NOT_EMPTY, message);
    }

    fn storage_class(&self, class: &Class) -> Result<&'a StorageClassView, Skip> {
        let name = &class.name;
        let found = self.snapshot.storage_classes.get(name);
        let found = found.map_err(|why| Skip::new(SkipReason::ClassMissing, why))?;
        match found.reclaim_policy {
            ReclaimPolicy::Delete | ReclaimPolicy::Retain => Ok(found),
            _ => Err(Skip::new(
                SkipReason::ClassInvalid,
                format!(
                    "the StorageClass {name:?} has reclaimPolicy {}, which local volumes cannot have; make it Delete or Retain",
                    found.reclaim_policy.as_str()
                ),
            )),
        }
    }

    fn entry(
        &mut self,
        class: &'a Arc<Class>,
        storage_class: Option<&StorageClassView>,
        complete: bool,
        entry: &'a Entry,
    ) -> VolumeReport {
        let path = class.host_dir.join(&entry.name);
        let mut report = VolumeReport {
            entry: entry.name.clone(),
            path: path.to_string(),
            pv: None,
            phase: None,
            mode: None,
            capacity: None,
            identity: None,
            state: VolumeState::Skipped,
            reason: None,
            detail: None,
        };
        if let Finding::Volume(candidate) = &entry.finding {
            report.mode = Some(class.volume_mode);
            report.capacity = Some(candidate.capacity);
            report.identity = Some(candidate.identity.text.clone());
        }
        if let Some(pv) = self.pv_of_entry(class, &path) {
            self.describe(pv, &mut report);
            if let Finding::Skipped(skip) = &entry.finding {
                report.reason = Some(skip.reason);
                report.detail.get_or_insert_with(|| skip.detail.clone());
            }
            return report;
        }
        let offered = match &entry.finding {
            Finding::Skipped(skip) => Err(skip.clone()),
            Finding::Volume(candidate) => self
                .unclaimed(class, &path, candidate)
                .and_then(|()| self.storage_class(class))
                .map(|_| candidate),
        };
        match (offered, storage_class) {
            (Ok(candidate), Some(storage_class))
                if complete && may_be_offered(class, candidate) =>
            {
                self.offer(class, storage_class, entry, path, candidate, &mut report);
            }
            (Ok(_), _) => report.state = VolumeState::Creating,
            (Err(skip), _) => {
                report.reason = Some(skip.reason);
                report.detail = Some(skip.detail);
            }
        }
        report
    }

    /// The PV of this entry in this class.
    fn pv_of_entry(&self, class: &Class, path: &HostPath) -> Option<&'a PvView> {
        let ours = |pv: &&&PvView| {
            pv.class == class.name
                && pv.ownership(self.node, self.settings.config.use_node_name_only)
                    != Ownership::Foreign
        };
        self.by_path.get(path)?.iter().find(ours).copied()
    }

    fn describe(&self, pv: &PvView, report: &mut VolumeReport) {
        report.pv = Some(pv.name.clone());
        report.phase = Some(pv.phase);
        report.mode = Some(pv.mode);
        if let Some((state, detail)) = self.states.get(pv.name.as_str()) {
            report.state = *state;
            report.detail.clone_from(detail);
        }
    }

    fn offer(
        &mut self,
        class: &Arc<Class>,
        storage_class: &StorageClassView,
        entry: &Entry,
        path: HostPath,
        candidate: &Candidate,
        report: &mut VolumeReport,
    ) {
        let draft = self.draft(class, storage_class, &entry.name, path.clone(), candidate);
        let refusal = self.snapshot.refusals.get(&path);
        match refusal.filter(|refusal| refusal.identity == candidate.identity.text) {
            None => {
                report.state = VolumeState::Creating;
                report.pv = Some(draft.name.clone());
            }
            // The refusal is reported until the action below has been retried.
            Some(Refusal { skip, .. }) => {
                report.reason = Some(skip.reason);
                report.detail = Some(skip.detail.clone());
            }
        }
        let footprint = candidate.footprint.clone();
        self.occupied.insert(Occupant {
            path,
            footprint,
            pv: None,
        });
        let writing = &self.snapshot.writing;
        let is_written = writing.contains(&draft.name) || writing.contains(&draft.second_name);
        if !is_written && !self.is_being_made(&draft.path, &candidate.identity) {
            self.plan.actions.push(Action::Create(Box::new(draft)));
        }
    }

    fn draft(
        &self,
        class: &Class,
        storage_class: &StorageClassView,
        entry: &str,
        path: HostPath,
        candidate: &Candidate,
    ) -> PvDraft {
        let config = &self.settings.config;
        let node = self.node;
        let mut labels = config.labels_for_pv.clone();
        for key in &config.node_labels_for_pv {
            if let Some(value) = node.labels.get(key) {
                // A label of the configuration wins.
                labels.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        labels.insert(LABEL_HOSTNAME.into(), node.hostname.clone());
        let by = provisioner_name(&node.name, &node.uid, config.use_node_name_only);
        let mut name = pv_name(entry, &node.name, &class.name);
        let second_name = pv_name_on_collision(entry, &node.name, &class.name);
        if self.by_name.contains_key(name.as_str()) {
            name.clone_from(&second_name);
        }
        PvDraft {
            name,
            second_name,
            class: class.name.clone(),
            path,
            hostname: node.hostname.clone(),
            labels,
            annotations: BTreeMap::from([
                (ANNOTATION_PROVISIONED_BY.into(), by),
                (ANNOTATION_IDENTITY.into(), candidate.identity.text.clone()),
            ]),
            finalizer: config.protect_released_data
                && storage_class.reclaim_policy == ReclaimPolicy::Delete,
            owner: config.set_pv_owner_ref.then(|| node.as_owner()),
            capacity: quantity::round_down(candidate.capacity),
            mode: class.volume_mode,
            mount_path: class.mount_dir.join(entry),
            footprint: candidate.footprint.clone(),
            access_mode: class.access_mode,
            fs_type: class.fs_type.clone(),
            mount_options: storage_class.mount_options.clone(),
            policy: storage_class.reclaim_policy.clone(),
            selector: class.selector.clone(),
        }
    }

    /// Reports our PVs whose path is not an entry, under their class.
    fn add_pvs_without_entry(&mut self) {
        let reported: BTreeSet<String> = self
            .plan
            .classes
            .iter()
            .flat_map(|class| &class.volumes)
            .filter(|volume| volume.state != VolumeState::Creating)
            .filter_map(|volume| volume.pv.clone())
            .collect();
        for (name, (state, detail)) in std::mem::take(&mut self.states) {
            let Some(pv) = self.by_name.get(name).filter(|_| !reported.contains(name)) else {
                continue;
            };
            let path = match &pv.source {
                crate::view::Source::Local(path) => path.to_string(),
                crate::view::Source::BadPath(text, _) => text.clone(),
                crate::view::Source::NotLocal => String::new(),
            };
            let volume = VolumeReport {
                entry: path.rsplit('/').next().unwrap_or_default().to_owned(),
                path,
                pv: Some(pv.name.clone()),
                phase: Some(pv.phase),
                mode: Some(pv.mode),
                capacity: pv.capacity.as_deref().and_then(quantity::parse),
                identity: None,
                state,
                reason: None,
                detail,
            };
            match self
                .plan
                .classes
                .iter_mut()
                .find(|class| class.name == pv.class)
            {
                Some(class) => class.volumes.push(volume),
                None => self.plan.classes.push(ClassReport {
                    name: pv.class.clone(),
                    ready: true,
                    faults: vec![
                        "the class is not in the configuration; its PVs are left alone".into(),
                    ],
                    volumes: vec![volume],
                }),
            }
        }
    }
}
