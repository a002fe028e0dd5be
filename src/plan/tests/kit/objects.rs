//! The things that a world is made of.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::{GIB, OURS, path, with};
use crate::host::footprint::Footprint;
use crate::host::identity::{GlobalIdentity, Identity};
use crate::host::mark::MarkFact;
use crate::host::mounts::DeviceNumber;
use crate::inventory::{Candidate, Contents};
use crate::names::FINALIZER;
use crate::quantity;
use crate::types::VolumeMode;
use crate::view::{ClaimRef, Phase, PvView, ReclaimPolicy};

pub fn number(text: &str) -> DeviceNumber {
    DeviceNumber::parse(text).unwrap()
}

fn strong(text: &str) -> Identity {
    Identity { text: text.into(), weak: false }
}

fn candidate(kind: VolumeMode, identity: Identity, footprint: Footprint) -> Candidate {
    Candidate {
        kind,
        capacity: 100 * GIB,
        identity,
        global: None,
        footprint,
        read_only: false,
        in_use: None,
        contents: Contents::NotLookedAt,
        rotational: BTreeSet::new(),
        mark: MarkFact::default(),
        is_as_offered: true,
        is_blank: false,
        root: None,
    }
}

/// The same storage with an identity among all nodes, whose hash is `hash`.
pub fn global(candidate: Candidate, is_unique: bool) -> Candidate {
    with(candidate, |candidate| {
        candidate.global =
            Some(GlobalIdentity { hash: "hash".into(), is_unique, is_shared: false });
    })
}

/// A whole disk. Its partition 1 has the next minor number, as has the filesystem of [`fs`].
pub fn disk(at: u32) -> Candidate {
    let number = DeviceNumber { major: 8, minor: 16 * at };
    let footprint = Footprint::Device {
        number,
        below: BTreeSet::from([number]),
        wwid: Some(format!("disk-{at}")),
    };
    candidate(VolumeMode::Block, strong(&format!("v1:wwid=disk-{at}")), footprint)
}

/// The same disk by another controller: another number, the same world-wide name.
pub fn other_path_to(disk: &Candidate, at: u32) -> Candidate {
    with(disk.clone(), |disk| {
        if let Footprint::Device { number, below, .. } = &mut disk.footprint {
            *number = DeviceNumber { major: 65, minor: 16 * at };
            *below = BTreeSet::from([*number]);
        }
    })
}

/// Partition 1 of [`disk`].
pub fn partition(at: u32) -> Candidate {
    let (disk, number) = partition_numbers(at);
    let footprint = Footprint::Device { number, below: BTreeSet::from([disk, number]), wwid: None };
    let identity = format!("v1:partuuid=p{at},start=2048,wwid=disk-{at}");
    candidate(VolumeMode::Block, strong(&identity), footprint)
}

fn partition_numbers(at: u32) -> (DeviceNumber, DeviceNumber) {
    let of = |minor| DeviceNumber { major: 8, minor };
    (of(16 * at), of(16 * at + 1))
}

/// The filesystem on [`partition`].
pub fn fs(at: u32) -> Candidate {
    directory(at, "/")
}

/// A directory of the filesystem on [`partition`], as a bind mount shows it.
pub fn directory(at: u32, root: &str) -> Candidate {
    let (disk, number) = partition_numbers(at);
    let footprint = Footprint::Filesystem {
        devices: BTreeSet::from([disk, number]),
        fs: number,
        root: root.into(),
    };
    let identity = format!("v1:fs=ext4,root={root},uuid=u{at}");
    candidate(VolumeMode::Filesystem, strong(&identity), footprint)
}

/// A tmpfs: its identity says no more than where it is mounted.
pub fn tmpfs(at: u32, mounted: &str) -> Candidate {
    let footprint = Footprint::Filesystem {
        devices: BTreeSet::new(),
        fs: DeviceNumber { major: 0, minor: at },
        root: "/".into(),
    };
    let text = format!("v1:fs=tmpfs,path={mounted},root=/");
    candidate(VolumeMode::Filesystem, Identity { text, weak: true }, footprint)
}

/// A device that nothing tells from another, as seen after boot `boot`.
pub fn nameless(at: u32, boot: &str) -> Candidate {
    let number = DeviceNumber { major: 252, minor: at };
    let footprint = Footprint::Device { number, below: BTreeSet::from([number]), wwid: None };
    let text = format!("v1:boot={boot},link=/dev/nameless{at},size=1000");
    candidate(VolumeMode::Block, Identity { text, weak: true }, footprint)
}

/// An Available PV of ours, never used, for `/mnt/<class>/<entry>`, made for what `candidate` is.
pub fn pv(name: &str, at: &str, candidate: &Candidate) -> PvView {
    let class = at.split('/').nth(2).unwrap_or_default();
    PvView {
        name: name.into(),
        uid: format!("uid-{name}"),
        resource_version: format!("version-{name}"),
        created: None,
        finalizers: Vec::new(),
        deleting: false,
        class: class.into(),
        local_path: Ok(path(at)),
        link: None,
        other_path: None,
        mode: VolumeMode::Filesystem,
        capacity: Some(quantity::offered(candidate.capacity)),
        policy: ReclaimPolicy::Delete,
        claim: None,
        phase: Phase::Available,
        released_at: None,
        release: None,
        state_directory: None,
        hostnames: vec!["host-1".into()],
        affinity: None,
        hostname_label: Some("host-1".into()),
        provisioned_by: Some(OURS.into()),
        installation: None,
        bound_by_controller: false,
        used: false,
        use_is_unverified: false,
        identity: Some(candidate.identity.text.clone()),
        identity_hash: candidate.global.as_ref().map(|it| it.hash.clone()),
        offer: None,
        moved_from: None,
        consent: None,
        paused: false,
        retired: None,
        owners: Vec::new(),
    }
}

pub fn claim() -> ClaimRef {
    ClaimRef { namespace: "default".into(), name: "data".into(), uid: Some("claim-uid".into()) }
}

pub fn bound(pv: PvView) -> PvView {
    with(pv, |pv| {
        (pv.phase, pv.claim, pv.used) = (Phase::Bound, Some(claim()), true);
        pv.bound_by_controller = true;
    })
}

pub fn released(pv: PvView) -> PvView {
    with(bound(pv), |pv| pv.phase = Phase::Released)
}

/// Being deleted, and held by our finalizer.
pub fn terminating(pv: PvView) -> PvView {
    with(pv, |pv| {
        pv.deleting = true;
        pv.finalizers.push(FINALIZER.into());
    })
}

pub fn without_identity(pv: PvView) -> PvView {
    with(pv, |pv| pv.identity = None)
}

pub fn retained(pv: PvView) -> PvView {
    with(pv, |pv| pv.policy = ReclaimPolicy::Retain)
}

pub fn consent(pv: PvView, text: impl Into<String>) -> PvView {
    with(pv, |pv| pv.consent = Some(text.into()))
}

/// An owner reference, by kind and UID.
pub fn owner(kind: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: kind.into(),
        uid: uid.into(),
        ..OwnerReference::default()
    }
}
