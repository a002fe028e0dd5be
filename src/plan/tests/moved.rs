//! Volumes without a PV that may be those of another node, with `binding: disk`.

use std::time::Duration;

use super::kit::*;
use super::link::{LINK, disk_world, label, linked};
use super::mark::{marked, offered};
use super::takeover::{change_mark, moved};
use crate::config::{Binding, DiscoveryPolicy};
use crate::host::mark::{MarkOnDisk, MarkState};
use crate::inventory::{Candidate, Skip};
use crate::plan::Refusal;
use crate::types::SkipReason;

/// What the last search for a PV of other nodes has found.
fn found(world: World, identity: &str, reason: SkipReason) -> World {
    let refusal = Refusal {
        identity: identity.to_owned(),
        skip: Skip::new(reason, "it waits"),
        retry_at: Duration::MAX,
    };
    with(world, |it| {
        it.snapshot.ledger.moved.0.insert(path("/mnt/fast/a"), refusal);
    })
}

#[test]
fn the_pv_of_a_marked_disk_is_looked_for_on_other_nodes() {
    use SkipReason::{Dirty, IdentityOnOtherPV};
    const SOUGHT: &[&str] = &["take /mnt/fast/a over", "a is Skipped as IdentityOnOtherPV"];
    const WAITS: &[&str] = &["a is Skipped as IdentityOnOtherPV"];
    const DIRTY: &[&str] = &["VolumeDirty of Node node-1", "a is Skipped as Dirty"];
    type Row = (&'static str, World, fn(&mut Candidate), &'static [&'static str]);
    let identity = moved().identity.text;
    let on_paths = disk_world().change_class("fast", |it| it.binding = Binding::Path);
    let rows: [Row; 9] = [
        ("moved here", disk_world(), |_| {}, SOUGHT),
        (
            "its claim was never mounted",
            disk_world(),
            |it| change_mark(it, |mark| mark.state = MarkState::Offered),
            SOUGHT,
        ),
        (
            "it waits until the other node is off",
            found(disk_world(), &identity, IdentityOnOtherPV),
            |_| {},
            WAITS,
        ),
        ("no node has a PV of it", found(disk_world(), &identity, Dirty), |_| {}, DIRTY),
        ("that was another disk", found(disk_world(), "another", Dirty), |_| {}, SOUGHT),
        ("it may be a copy", disk_world(), |it| *it = global(it.clone(), false), DIRTY),
        (
            "it is of another cluster",
            disk_world(),
            |it| change_mark(it, |mark| mark.cluster = "other".into()),
            DIRTY,
        ),
        (
            "it is being wiped",
            disk_world(),
            |it| change_mark(it, |mark| mark.state = MarkState::Wiping),
            DIRTY,
        ),
        ("its class binds to paths", on_paths, |_| {}, DIRTY),
    ];
    for (situation, mut world, change, expected) in rows {
        let candidate = with(moved(), change);
        let digest = candidate.mark.on_disk.digest();
        world.snapshot.ledger.searched.insert(digest);
        world.fast("a", &candidate).expect(situation, expected);
    }
}

#[test]
fn the_identity_of_a_bound_disk_is_recorded_again_only_if_its_label_proves_it() {
    for (hash, is_recorded) in [(Some("hash"), true), (Some("other"), false), (None, false)] {
        let pv = linked(bound(offered(&moved())), LINK, label(1));
        let pv = with(pv, |pv| {
            (pv.identity, pv.identity_hash) = (None, hash.map(str::to_owned));
        });
        let words = words(&disk_world().fast("a", &moved()).pv(pv).plan());
        let records = |word: &String| word.starts_with("patch pv: identity=");
        assert_eq!(words.iter().any(records), is_recorded, "{hash:?}: {words:?}");
        let is_held = words.iter().any(|word| word.starts_with("VolumeUnverified"));
        assert!(is_held, "{hash:?}: {words:?}");
    }
}

#[test]
fn a_device_that_holds_something_may_be_that_of_another_node() {
    let device = marked(&global(disk(1), true), MarkOnDisk::Absent);
    let world = |volume: &Candidate| {
        let world = disk_world().change_class("fast", |class| {
            class.discovery_policy = DiscoveryPolicy::EmptyOnly;
        });
        world.fast("a", volume)
    };
    let sought = ["take /mnt/fast/a over", "a is Skipped as IdentityOnOtherPV"];
    world(&device).expect("its PV may be elsewhere", &sought);
    let told = ["VolumeNotEmpty of our Pod", "a is Skipped as NotEmpty"];
    let known = found(world(&device), &device.identity.text, SkipReason::Dirty);
    known.expect("no node has a PV of it", &told);
    let copy = global(device, false);
    world(&copy).expect("it may be a copy", &told);
}
