//! DiscoverLocalVolumes: which entries of the discovery directories become PVs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::config::{Binding, Class};
use crate::host::mark::Place;
use crate::inventory::{Finding, Observation, Skip, Volume};
use crate::names::{
    ANNOTATION_IDENTITY, ANNOTATION_INSTALLATION, ANNOTATION_OFFER, ANNOTATION_PATH,
    ANNOTATION_PROVISIONED_BY, ANNOTATION_STATE_DIRECTORY, FINALIZER, LABEL_HOSTNAME,
    LABEL_IDENTITY_HASH, LINK_DIR, provisioner_name, pv_name, pv_name_on_collision,
};
use crate::quantity;
use crate::types::{HostPath, SkipReason};
use crate::view::{Ownership, PvView, ReclaimPolicy, StorageClassView};

use super::adopt::reserve;
use super::link::label_of;
use super::{
    About, Action, ClassReport, MarkReport, Occupant, Planner, PvDraft, Refusal, VolumeReport,
    VolumeState, reasons,
};

/// The number of entries that one message names.
const MAX_NAMED: usize = 5;

/// Names the first of some entries, and how many more there are.
pub fn some_of<T: AsRef<str>>(entries: &[T]) -> String {
    let named = entries.iter().take(MAX_NAMED).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match entries.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Names the first volumes that are skipped for a reason, if there are any.
fn skipped(volumes: &[VolumeReport], reason: SkipReason) -> Option<String> {
    let skipped = volumes.iter().filter(|it| it.reason == Some(reason));
    let entries: Vec<_> = skipped.map(|it| it.entry.as_str()).collect();
    (!entries.is_empty()).then(|| some_of(&entries))
}

impl<'a> Planner<'a> {
    /// Reports the entries of each class and the PVs without an entry, and creates the missing PVs.
    pub(super) fn discover_local_volumes(&mut self) {
        let settings = self.settings;
        for (name, class) in &settings.config.classes {
            if let Some(observation) = self.snapshot.observed.get(name) {
                self.class(class, observation);
            } else {
                let fault = "its directory has not been looked at yet".to_owned();
                self.add_class(name, vec![fault], Vec::new());
            }
        }
        for (name, fault) in &settings.faulty {
            let message = format!("class {name:?} is disabled: {fault}");
            self.notice(About::Pod, reasons::CLASS_INVALID, message);
            self.add_class(name, vec![fault.clone()], Vec::new());
        }
        self.add_pvs_without_entry();
    }

    fn add_class(&mut self, name: &str, faults: Vec<String>, volumes: Vec<VolumeReport>) {
        let is_creating = volumes.iter().any(|it| it.state == VolumeState::Creating);
        let is_faulty = !faults.is_empty() || volumes.iter().any(VolumeReport::is_unreadable);
        if is_faulty || is_creating {
            let pending = "not all of its volumes have PVs yet";
            let why = faults.first().map_or(pending, String::as_str);
            self.plan.not_ready.push(format!("class {name:?}: {why}"));
        }
        self.is_faulty |= is_faulty;
        self.plan.classes.push(ClassReport {
            name: name.to_owned(),
            ready: !is_faulty && !is_creating,
            faults,
            volumes,
            ..ClassReport::default()
        });
    }

    fn class(&mut self, class: &'a Arc<Class>, observation: &'a Observation) {
        let mut faults = Vec::from_iter(observation.fault.clone());
        let storage_class = self.may_offer(class);
        if let Err(skip) = &storage_class {
            faults.push(skip.detail.clone());
        }
        let entries = observation.entries.iter();
        let volumes: Vec<_> = entries
            .map(|(name, finding)| {
                self.entry(class, &storage_class, observation.complete, name, finding)
            })
            .collect();
        self.report_skipped(class, &volumes);
        self.add_class(&class.name, faults, volumes);
        self.take_disks_in(class, observation, storage_class.err());
    }

    /// Reports the volumes of a class that are not offered because of their marks or data, in one event each.
    fn report_skipped(&mut self, class: &Class, volumes: &[VolumeReport]) {
        let (name, dir) = (&class.name, &class.host_dir);
        if let Some(entries) = skipped(volumes, SkipReason::NotEmpty) {
            let message = format!(
                "class {name:?} offers empty volumes only (discoveryPolicy: EmptyOnly), and these in {dir} hold something: {entries}; /status and `local-volume-provisioner discover` show what; if the data is no longer needed, run `local-volume-provisioner clean PATH`"
            );
            self.notice(About::Pod, reasons::VOLUME_NOT_EMPTY, message);
        }
        if let Some(entries) = skipped(volumes, SkipReason::Dirty) {
            let message = format!(
                "class {name:?}: volumes in {dir} are not offered, because their marks name tenants without a PersistentVolume: {entries}; /status has for each the command that decides"
            );
            let about = About::Node(self.node.name.clone());
            self.notice(about, reasons::VOLUME_DIRTY, message);
        }
    }

    /// The StorageClass by which the volumes of a class are offered.
    fn may_offer(&mut self, class: &Class) -> Result<&'a StorageClassView, Skip> {
        let Some(fault) = self.occupied.contradictions.fault(&class.name) else {
            return self.storage_class(class);
        };
        let message = format!("class {:?}: {fault}; none is offered or cleaned", class.name);
        let skip = Skip::new(SkipReason::ClassInvalid, message.clone());
        self.notice(About::Pod, reasons::CLASS_INVALID, message);
        Err(skip)
    }

    fn storage_class(&self, class: &Class) -> Result<&'a StorageClassView, Skip> {
        let name = &class.name;
        let found = self.snapshot.storage_classes.get(name);
        let Some(Some(found)) = found else {
            let detail = match found {
                None => format!(
                    "the StorageClass {name:?} could not be read so far; the log has the cause"
                ),
                Some(_) => format!("there is no StorageClass {name:?}; create it"),
            };
            return Err(Skip::new(SkipReason::ClassMissing, detail));
        };
        match &found.reclaim_policy {
            ReclaimPolicy::Delete | ReclaimPolicy::Retain => Ok(found),
            policy => {
                let detail = format!(
                    "the StorageClass {name:?} has reclaimPolicy {}, which local volumes cannot have; make it Delete or Retain",
                    json!(policy)
                );
                Err(Skip::new(SkipReason::ClassInvalid, detail))
            }
        }
    }

    fn entry(
        &mut self,
        class: &'a Arc<Class>,
        storage_class: &Result<&StorageClassView, Skip>,
        complete: bool,
        entry: &str,
        finding: &'a Finding,
    ) -> VolumeReport {
        let path = class.host_dir.join(entry);
        let mut report = VolumeReport {
            entry: entry.to_owned(),
            path: path.to_string(),
            ..VolumeReport::default()
        };
        if let Finding::Volume(volume) = finding {
            report.mode = Some(class.volume_mode);
            report.capacity = Some(volume.candidate.capacity);
            report.identity = Some(volume.candidate.identity.text.clone());
            let mark = volume.candidate.mark.on_disk.valid();
            report.mark = mark.map(|mark| MarkReport::new(mark, self.node.salt()));
        }
        if let Some(pv) = self.pv_of_entry(class, &path) {
            self.describe(pv, &mut report);
            if let Finding::Skipped(skip) = finding {
                report.reason = Some(skip.reason);
                report.detail.get_or_insert_with(|| skip.detail.clone());
            }
            return report;
        }
        let offered = match finding {
            Finding::Skipped(skip) => Err(skip.clone()),
            Finding::Volume(volume) => self
                .unclaimed(volume)
                .and_then(|()| self.is_mark_settled(volume))
                .and_then(|is_settled| {
                    let may_be_new =
                        self.is_empty_enough(volume).and_then(|()| self.can_bind(volume));
                    if let Err(skip) = may_be_new {
                        self.is_of_no_other_node(volume)?;
                        return Err(skip);
                    }
                    Ok((volume, storage_class.clone()?, is_settled))
                }),
        };
        match offered {
            Ok((volume, storage_class, true)) if complete && self.may_be_offered(volume) => {
                self.offer(volume, storage_class, &mut report);
            }
            Ok(_) => report.state = VolumeState::Creating,
            Err(skip) => {
                report.reason = Some(skip.reason);
                report.detail = Some(skip.detail);
            }
        }
        report
    }

    /// The PV of this entry in this class.
    fn pv_of_entry(&self, class: &Class, path: &HostPath) -> Option<&'a PvView> {
        let ours =
            |pv: &&&PvView| pv.class == class.name && self.ownership(pv) != Ownership::Foreign;
        self.by_path.get(path)?.iter().find(ours).copied()
    }

    /// Moves the state of a PV to its report.
    fn describe(&mut self, pv: &PvView, report: &mut VolumeReport) {
        report.pv = Some(pv.name.clone());
        report.phase = Some(pv.phase);
        report.mode = Some(pv.mode);
        if let Some(state) = self.states.remove(pv.name.as_str()) {
            (report.state, report.detail) = state;
        }
    }

    fn offer(
        &mut self,
        volume: &Arc<Volume>,
        storage_class: &StorageClassView,
        report: &mut VolumeReport,
    ) {
        let candidate = &volume.candidate;
        let draft = self.draft(volume, storage_class);
        // The claim of an adoption has another PV, which no longer matters once the volume is wiped.
        let is_valid = |it: &&Refusal| it.skip.reason != SkipReason::Dirty || draft.claim.is_some();
        let refusal = self.snapshot.ledger.refusals.of(volume).filter(is_valid);
        match refusal {
            None => {
                report.state = VolumeState::Creating;
                report.pv = Some(draft.name.clone());
            }
            // The refusal is reported until the action below has been retried.
            Some(Refusal { skip, .. }) => {
                report.reason = Some(skip.reason);
                let is_claimed = skip.reason == SkipReason::Dirty;
                let to_decide = is_claimed.then(|| self.to_decide(candidate, false));
                report.detail = Some(skip.detail.clone() + &to_decide.unwrap_or_default());
            }
        }
        let is_due = refusal.is_none_or(|it| it.retry_at <= self.snapshot.now);
        self.occupied.insert(Occupant {
            path: draft.volume.path.clone(),
            footprint: candidate.footprint.clone(),
            pv: None,
        });
        let writing = &self.snapshot.ledger.writing;
        let is_written = writing.contains(&draft.name) || writing.contains(&draft.second_name);
        let is_created = || self.is_being_created(&draft.volume.path, &candidate.identity);
        if is_due && !is_written && !is_created() {
            self.plan.actions.push(Action::Create(Box::new(draft)));
        }
    }

    fn draft(&self, volume: &Arc<Volume>, storage_class: &StorageClassView) -> PvDraft {
        let (config, node) = (&self.settings.config, self.node);
        let (class, candidate) = (&volume.class, &volume.candidate);
        let mut labels = config.labels_for_pv.clone();
        for key in &config.node_labels_for_pv {
            if let Some(value) = node.labels.get(key) {
                // A label of the configuration wins.
                labels.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        labels.insert(LABEL_HOSTNAME.into(), node.hostname.clone());
        labels.remove(LABEL_IDENTITY_HASH);
        let hash = candidate.global.iter().map(|it| it.hash.clone());
        labels.extend(hash.map(|hash| (LABEL_IDENTITY_HASH.into(), hash)));
        let by = provisioner_name(&node.name, &node.uid, config.use_node_name_only);
        let policy = &storage_class.reclaim_policy;
        let cluster = self.settings.judges(candidate);
        // A marked volume is protected from the first claim on.
        let is_protected =
            config.protect_released_data && *policy == ReclaimPolicy::Delete && cluster.is_none();
        let claim = self.claim_to_adopt(volume);
        let mark = cluster.map(|cluster| self.pending_mark(cluster, volume, claim.as_ref()));
        let token = mark.as_ref().map(|it| &it.mark.token);
        let is_in_directory = candidate.mark.place == Some(Place::StateDirectory);
        let directory =
            self.snapshot.state_directory.as_ref().filter(|_| token.is_some() && is_in_directory);
        let link = token.filter(|_| class.binding == Binding::Disk);
        let identity = candidate.identity.text.clone();
        let installation = self.settings.installation.clone();
        let annotations = [
            (ANNOTATION_PROVISIONED_BY, Some(by)),
            (ANNOTATION_IDENTITY, Some(identity)),
            (ANNOTATION_INSTALLATION, installation),
            (ANNOTATION_OFFER, token.filter(|_| link.is_none()).cloned()),
            (ANNOTATION_PATH, link.map(|_| volume.path.to_string())),
            (ANNOTATION_STATE_DIRECTORY, directory.cloned()),
        ];
        let annotations: BTreeMap<_, _> =
            annotations.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        let mut name = pv_name(&volume.entry, &node.name, &class.name);
        let second_name = pv_name_on_collision(&volume.entry, &node.name, &class.name);
        if self.by_name.contains_key(name.as_str()) {
            name.clone_from(&second_name);
        }
        let (local_path, own_node) = match link {
            None => (
                volume.path.to_string(),
                json!({ "key": LABEL_HOSTNAME, "operator": "In", "values": [node.hostname] }),
            ),
            Some(token) => (
                format!("{LINK_DIR}/{token}"),
                json!({ "key": label_of(node, candidate), "operator": "Exists" }),
            ),
        };
        let mut terms = vec![json!({ "matchExpressions": [own_node] })];
        terms.extend(class.selector.iter().map(|term| json!(term)));
        let capacity = quantity::format(quantity::round_down(candidate.capacity));
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": {
                "accessModes": [format!("{:?}", class.access_mode)],
                "capacity": { "storage": capacity },
                "local": { "path": local_path },
                "nodeAffinity": { "required": { "nodeSelectorTerms": terms } },
                "persistentVolumeReclaimPolicy": policy,
                "storageClassName": class.name,
                "volumeMode": class.volume_mode,
            },
        });
        if is_protected {
            object["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        if config.set_pv_owner_ref {
            object["metadata"]["ownerReferences"] = json!([node.as_owner()]);
        }
        if !storage_class.mount_options.is_empty() {
            object["spec"]["mountOptions"] = json!(storage_class.mount_options);
        }
        if let Some(fs_type) = &class.fs_type {
            object["spec"]["local"]["fsType"] = json!(fs_type);
        }
        if let Some(claim) = &claim {
            reserve(&mut object, claim);
        }
        PvDraft {
            name,
            second_name,
            volume: Arc::clone(volume),
            hostname: node.hostname.clone(),
            mark,
            claim,
            object,
        }
    }

    /// Reports our PVs whose path is not an entry, under their class.
    fn add_pvs_without_entry(&mut self) {
        for pv in self.pvs {
            if !self.states.contains_key(pv.name.as_str()) {
                continue;
            }
            let path = pv.path().map_or("", HostPath::as_str);
            let mut volume = VolumeReport {
                entry: path.rsplit('/').next().unwrap_or_default().to_owned(),
                path: path.to_owned(),
                capacity: pv.capacity.as_deref().and_then(quantity::parse),
                ..VolumeReport::default()
            };
            self.describe(pv, &mut volume);
            let mut classes = self.plan.classes.iter_mut();
            if let Some(class) = classes.find(|class| class.name == pv.class) {
                class.volumes.push(volume);
            } else {
                let fault = "the class is not in the configuration; its PVs are left alone";
                self.plan.classes.push(ClassReport {
                    name: pv.class.clone(),
                    ready: true,
                    faults: vec![fault.to_owned()],
                    volumes: vec![volume],
                    ..ClassReport::default()
                });
            }
        }
    }
}
