//! Small things that many stories need.

mod data;
mod guest;
mod nodes;
mod occupied;
mod operator;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use control_plane::requests::{Mark, Request};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use local_volume_provisioner::names::{
    ANNOTATION_IDENTITY, ANNOTATION_USED, FINALIZER, LABEL_HOSTNAME, provisioner_name,
};
use serde_json::{Value, json};
use support::passes::volumes;
use support::stage::{annotation, is_terminating, name, phase};
use support::{LoopDevice, Program, Stage};

pub use data::*;
pub use guest::Guest;
pub use nodes::*;
pub use occupied::{Occupied, occupied, occupied_raw};
pub use operator::*;

pub const MIB: u64 = 1 << 20;
pub const PAUSED: &str = "local-volume-provisioner/paused";

/// A stage whose provisioners have these further arguments.
pub fn stage_with(args: &[&str]) -> Option<Stage> {
    let mut stage = crate::stage()?;
    for arg in args {
        stage.add_arg(arg);
    }
    Some(stage)
}

// === volumes ===

/// A tmpfs at a path below the sandbox's.
pub fn tmpfs(stage: &Stage, at: &str) -> PathBuf {
    stage.sandbox.tmpfs(at, "size=20m").unwrap()
}

/// A tmpfs as an entry of the class `fast`.
pub fn fast(stage: &Stage, entry: &str) -> PathBuf {
    tmpfs(stage, &format!("disks/fast/{entry}"))
}

/// The class `fast`, and tmpfs mounts as these entries of it.
pub fn fast_volumes<const N: usize>(stage: &Stage, entries: [&str; N]) -> [PathBuf; N] {
    stage.class("fast", &json!({}));
    entries.map(|entry| fast(stage, entry))
}

/// The same on a stage of its own.
pub fn fast_stage<const N: usize>(entries: [&str; N]) -> Option<(Stage, [PathBuf; N])> {
    let stage = crate::stage()?;
    let volumes = fast_volumes(&stage, entries);
    Some((stage, volumes))
}

/// An ext4 filesystem on a loop device of its own.
pub fn ext4(stage: &Stage) -> LoopDevice {
    LoopDevice::formatted(stage.sandbox.path(), 32 * MIB, "ext4").unwrap()
}

/// Mounts a device with an ext4 filesystem at a path below the sandbox's.
pub fn mount(stage: &Stage, device: &LoopDevice, at: &str) -> PathBuf {
    stage.sandbox.mount(device.path(), "ext4", at).unwrap()
}

/// A raw loop device.
pub fn raw(stage: &Stage) -> LoopDevice {
    LoopDevice::new(stage.sandbox.path(), 32 * MIB).unwrap()
}

/// A class of raw devices with these further settings; its discovery directory.
pub fn raw_class(stage: &Stage, settings: &Value) -> PathBuf {
    let mut settings = settings.clone();
    settings["volumeMode"] = json!("Block");
    stage.class("raw", &settings)
}

/// Such a class, and one device in it.
pub fn raw_volume(stage: &Stage, settings: &Value) -> (LoopDevice, PathBuf) {
    let dir = raw_class(stage, settings);
    let device = raw(stage);
    let path = link(&device, &dir, "disk");
    (device, path)
}

/// The same, cleaned by a shell script with one argument.
pub fn cleaned_by(stage: &Stage, script: &str) -> (LoopDevice, PathBuf) {
    let file = stage.sandbox.path().join("cleaner.sh");
    fs::write(&file, script).unwrap();
    let command = json!(["/bin/sh", file, "first argument"]);
    raw_volume(stage, &json!({ "blockCleanerCommand": command }))
}

/// Offers a device under a name in a discovery directory.
pub fn link(device: &LoopDevice, dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    symlink(device.path(), &path).unwrap();
    path
}

// === the cluster ===

/// The identity that is recorded on a PV.
pub fn identity(pv: &PersistentVolume) -> String {
    annotation(pv, ANNOTATION_IDENTITY).unwrap_or_default().to_owned()
}

/// The consent to delete a PV and touch no disk.
pub fn forget(pv: &PersistentVolume) -> String {
    let disk = local_volume_provisioner::host::identity::hash(&identity(pv));
    format!("forget:{}:{disk}:none", pv.uid().unwrap())
}

/// The first consent of this kind, as `wipe`, that the text of an event quotes.
pub fn consent_in(text: &str, verb: &str) -> String {
    let mut quoted = text.split('"');
    let consent = quoted.find(|it| it.starts_with(verb));
    consent.unwrap_or_else(|| panic!("no {verb} in {text}")).to_owned()
}

/// Whether the PV has our finalizer.
pub fn is_protected(pv: &PersistentVolume) -> bool {
    pv.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// Sets (or, with null, removes) an annotation of a PV.
pub fn annotate(stage: &Stage, pv: &str, key: &str, value: impl Into<Value>) -> PersistentVolume {
    let patch = json!({ "metadata": { "annotations": { key: value.into() } } });
    stage.patch_pv(pv, &patch)
}

/// Sets the reclaim policy of a PV.
pub fn set_policy(stage: &Stage, pv: &PersistentVolume, policy: &str) -> PersistentVolume {
    let patch = json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
    stage.patch_pv(&name(pv), &patch)
}

/// The annotation that names the provisioner of the PV.
pub fn maker(pv: &PersistentVolume) -> Option<&str> {
    annotation(pv, "pv.kubernetes.io/provisioned-by")
}

/// What an administrator does to a Released PV to offer it again with its data.
pub fn clear_claim_ref(stage: &Stage, pv: &str) {
    stage.patch_pv(pv, &json!({ "spec": { "claimRef": null } }));
}

/// The same, and the next claim takes the volume with the data that is on it.
pub fn bind_again(stage: &Stage, pv: &str, claim: &str) -> PersistentVolume {
    clear_claim_ref(stage, pv);
    // A binder that has not seen this yet, when it looks at the claim, does so again only after 15 s,
    // and by then what is held up would have been given up.
    stage.in_phase(pv, "Available");
    stage.claim(claim, "fast", Some(pv));
    stage.in_phase(pv, "Bound")
}

/// Waits until a PV is gone.
pub fn is_gone(stage: &Stage, pv: &PersistentVolume) {
    stage.eventually("the PV is gone", || stage.pv(&name(pv)).is_none());
}

fn claims(stage: &Stage) -> Api<PersistentVolumeClaim> {
    Api::namespaced(stage.client.clone(), &stage.namespace())
}

/// A claim's phase; empty when there is no such claim.
pub fn claim_phase(stage: &Stage, claim: &str) -> String {
    stage.claim_phase(claim)
}

/// Removes the finalizers of a claim, although a pod uses it.
pub fn drop_claim_protection(stage: &Stage, claim: &str) {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    stage.request(claims(stage).patch(claim, &PatchParams::default(), &patch));
}

/// A PV for a path on our node with our provisioner's annotation.
pub fn pv_by_hand(stage: &Stage, name: &str, class: &str, path: &Path, capacity: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "annotations": {
                "pv.kubernetes.io/provisioned-by": provisioner_name(&stage.node(), &node_uid(stage), false),
            },
        },
        "spec": {
            "storageClassName": stage.named(class),
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": capacity },
            "persistentVolumeReclaimPolicy": "Delete",
            "volumeMode": "Filesystem",
            "local": { "path": path },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": LABEL_HOSTNAME, "operator": "In", "values": [stage.node()] },
            ] }] } },
        },
    })
}

/// Makes a PV of another node, for the path of an entry of the class `fast`.
pub fn foreign_pv(stage: &Stage, name: &str, entry: &str) -> PersistentVolume {
    let path = Path::new("/mnt/disks/fast").join(entry);
    let mut pv = pv_by_hand(stage, name, "fast", &path, "1Gi");
    pv["metadata"]["annotations"] = json!({
        "pv.kubernetes.io/provisioned-by": "local-volume-provisioner-node-2-uid",
    });
    let term = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values";
    *pv.pointer_mut(term).unwrap() = json!(["node-2"]);
    stage.create_pv(pv)
}

/// Waits until a PV has a claim, was released from it, and the claim is gone.
pub fn bind_and_release(stage: &Stage, claim: &str, pv: &str, class: &str) -> PersistentVolume {
    stage.claim(claim, class, Some(pv));
    stage.in_phase(pv, "Bound");
    stage.delete_claim(claim);
    stage.in_phase(pv, "Released")
}

/// Waits for a new PV for a path.
pub fn offered_again(stage: &Stage, path: &Path, old: &PersistentVolume) -> PersistentVolume {
    let fresh = stage.available(path, old.metadata.uid.as_deref());
    assert!(!is_terminating(&fresh));
    assert_eq!(annotation(&fresh, ANNOTATION_USED), None, "the new one is unused");
    assert_eq!(stage.pvs_at(path).len(), 1, "one device, one PV");
    fresh
}

/// Whether a PV is still the same object in a phase and not Terminating.
pub fn is_same(stage: &Stage, pv: &PersistentVolume, wanted: &str) -> bool {
    stage.pv(&name(pv)).is_some_and(|now| {
        now.metadata.uid == pv.metadata.uid && phase(&now) == wanted && !is_terminating(&now)
    })
}

/// Whether a PV is in a phase and otherwise as it was: not deleted, and nothing written to it.
pub fn is_untouched(stage: &Stage, pv: &PersistentVolume, wanted: &str) -> bool {
    let written = |pv: &PersistentVolume| {
        let metadata = &pv.metadata;
        json!({
            "uid": metadata.uid,
            "deletionTimestamp": metadata.deletion_timestamp,
            "finalizers": metadata.finalizers,
            "annotations": metadata.annotations,
            "labels": metadata.labels,
            "ownerReferences": metadata.owner_references,
            "spec": pv.spec,
        })
    };
    let (before, now) = (written(pv), stage.pv(&name(pv)));
    let now = now.map(|now| (written(&now), phase(&now)));
    let wanted = Some((before, wanted.to_owned()));
    if now != wanted {
        eprintln!("the PV is not as it was:\n{now:?}\nnot\n{wanted:?}");
    }
    now == wanted
}

/// Waits until a request after the mark is one of these.
pub fn is_asked(stage: &Stage, mark: Mark, what: &str, wanted: impl Fn(&Request) -> bool) {
    let request = stage.requests().wait_for(mark, stage.timeout(), wanted);
    assert!(stage.block_on(request).is_some(), "no request: {what}");
}

// === the program ===

/// The answer of `/status`.
pub fn status(provisioner: &mut Program) -> Value {
    let (_, body) = provisioner.http_get("/status").unwrap();
    serde_json::from_str(&body).unwrap()
}

/// The entry of `/status` for the volume at a path; null when there is none.
pub fn status_of(provisioner: &mut Program, path: &Path) -> Value {
    let status = status(provisioner);
    let at_path = |volume: &&Value| volume["path"].as_str().map(Path::new) == Some(path);
    volumes(&status).find(at_path).cloned().unwrap_or_default()
}

/// Waits until `/status` gives the volume at a path this state.
pub fn in_state(stage: &Stage, provisioner: &mut Program, path: &Path, wanted: &str) {
    stage.eventually(&format!("{} as {wanted}", path.display()), || {
        status_of(provisioner, path)["state"] == wanted
    });
}

/// Waits until the cleanup of the volume at a path waits for something.
pub fn cleanup_waits(stage: &Stage, provisioner: &mut Program, path: &Path) {
    stage.eventually("the cleanup waits", || {
        status_of(provisioner, path)["cleanup"]["state"] == "Waiting"
    });
}

/// Waits until the provisioner is ready.
pub fn ready(stage: &Stage, provisioner: &mut Program) {
    stage.eventually("the provisioner is ready", || {
        (provisioner.http_get("/ready").ok()?.0 == 200).then_some(())
    });
}

/// Waits until `/status` gives an entry without a PV this skip reason.
pub fn skipped(stage: &Stage, provisioner: &mut Program, path: &Path, reason: &str) {
    stage.eventually(&format!("{} skipped as {reason}", path.display()), || {
        let volume = status_of(provisioner, path);
        volume["state"] == "Skipped" && volume["reason"] == reason
    });
    assert_eq!(stage.pvs_at(path).len(), 0);
}

/// The value (a whole number) of one series of `/metrics`, named with its labels as Prometheus writes them.
pub fn metric(provisioner: &mut Program, series: &str) -> Option<u64> {
    let (_, text) = provisioner.http_get("/metrics").unwrap();
    let series = format!("local_volume_provisioner_{series} ");
    text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
}

/// Whether a process is there and not just waiting to be reaped.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Lines of a file that a cleaner writes to.
pub fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// What a kubelet makes when it mounts a volume for a pod.
pub fn mounted_by_kubelet(stage: &Stage, pv: &PersistentVolume) -> PathBuf {
    let entry = format!("kubelet/pods/some-uid/volumes/kubernetes.io~local-volume/{}", name(pv));
    stage.sandbox.dir(&entry).unwrap()
}

/// What a kubelet makes when it maps a raw device for a pod.
pub fn mapped_by_kubelet(stage: &Stage, pv: &PersistentVolume, device: &LoopDevice) -> PathBuf {
    let entry = "kubelet/pods/some-uid/volumeDevices/kubernetes.io~local-volume";
    let mapped = stage.sandbox.dir(entry).unwrap().join(name(pv));
    symlink(device.path(), &mapped).unwrap();
    mapped
}
