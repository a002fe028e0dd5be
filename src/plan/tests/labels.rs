//! PVs of classes with `binding: disk`, and the labels that they require of the Node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelectorTerm;
use serde_json::{Value, json};

use super::kit::*;
use super::link::{LINK, UNLINK, UNVERIFIED, disk_world, label, linked, mounted, used};
use super::mark::{mark, marked, offered};
use crate::config::{Binding, Class};
use crate::host::mark::{MarkFact, MarkOnDisk, MarkState};
use crate::inventory::Candidate;
use crate::names::{
    ANNOTATION_IDENTITY, ANNOTATION_OFFER, ANNOTATION_PATH, ANNOTATION_PROVISIONED_BY,
    DISK_LABEL_PREFIX, LABEL_HOSTNAME, LINK_DIR, is_link,
};
use crate::plan::link::label_of;
use crate::plan::{Action, PvDraft, plan};
use crate::types::SkipReason;
use crate::view::{NodeView, Ownership, PathOwner, PvView};

/// A filesystem that can have a mark, and has none.
fn unmarked(at: u32) -> Candidate {
    marked(&fs(at), MarkOnDisk::Absent)
}

/// The PV that is about to be created.
fn draft(world: &World) -> PvDraft {
    let mut actions = world.plan().actions.into_iter();
    match (actions.next(), actions.next()) {
        (Some(Action::Create(draft)), None) => *draft,
        actions => panic!("{actions:?}"),
    }
}

fn label_of_disk(world: &World, candidate: &Candidate) -> String {
    label_of(world.snapshot.node.as_ref().unwrap(), candidate)
}

#[test]
fn pv_that_is_bound_to_its_disk_has_a_link_and_requires_the_label_of_the_disk() {
    let volume = unmarked(1);
    let selector = |class: &mut Class| {
        class.selector = vec![NodeSelectorTerm::default()];
    };
    let world = disk_world().change_class("fast", selector);
    let world = world.fast("a", &volume);
    let draft = draft(&world);
    let token = draft.mark.as_ref().unwrap().mark.token.clone();
    assert!(is_link(&token), "{token}");
    let label = label_of_disk(&world, &volume);
    let digits = label.strip_prefix(DISK_LABEL_PREFIX).unwrap();
    assert!(is_link(digits), "32 digits: {label}");
    let terms = json!([
        { "matchExpressions": [{ "key": label, "operator": "Exists" }] },
        {},
    ]);
    let spec = &draft.object["spec"];
    let affinity = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"];
    assert_eq!(*affinity, terms);
    assert_eq!(spec["local"], json!({ "path": format!("{LINK_DIR}/{token}") }));
    let metadata = &draft.object["metadata"];
    assert_eq!(metadata["labels"], json!({ LABEL_HOSTNAME: "host-1" }));
    let annotations = json!({
        ANNOTATION_PROVISIONED_BY: OURS,
        ANNOTATION_IDENTITY: volume.identity.text,
        ANNOTATION_PATH: "/mnt/fast/a",
    });
    assert_eq!(metadata["annotations"], annotations);

    let pv = made(&draft);
    assert_eq!(pv.path(), Some(&path("/mnt/fast/a")));
    assert_eq!(pv.offer.as_ref(), Some(&token));
    let link = pv.link.clone().unwrap();
    assert_eq!((link.token, link.label), (token, Some(label)));
    let node = world.snapshot.node.as_ref().unwrap();
    assert!(pv.is_on(node));
    assert_eq!(world.settings().ownership(node, &pv), Ownership::Ours);
}

#[test]
fn pv_of_a_path_has_neither_link_nor_label() {
    let draft = draft(&world().fast("a", &unmarked(1)));
    let token = draft.mark.as_ref().unwrap().mark.token.clone();
    assert!(!is_link(&token), "{token}");
    let (spec, metadata) = (&draft.object["spec"], &draft.object["metadata"]);
    assert_eq!(spec["local"], json!({ "path": "/mnt/fast/a" }));
    assert_eq!(metadata["annotations"][ANNOTATION_OFFER], json!(token));
    assert_eq!(metadata["annotations"][ANNOTATION_PATH], Value::Null);
    assert!(!draft.object.to_string().contains(DISK_LABEL_PREFIX));
    let pv = made(&draft);
    assert_eq!((pv.link, pv.offer), (None, Some(token)));
}

/// Another provisioner of a rolling update may be about to create its PV.
#[test]
fn offer_that_has_begun_keeps_its_token_while_the_binding_is_the_same() {
    for (binding, token, is_kept) in [
        (Binding::Disk, LINK, true),
        (Binding::Disk, "0123456789abcdef", false),
        (Binding::Path, "0123456789abcdef", true),
        (Binding::Path, LINK, false),
    ] {
        let pending = with(mark(MarkState::Pending), |mark| mark.token = token.into());
        let volume = marked(&fs(1), MarkOnDisk::Valid(pending));
        let world = disk_world().change_class("fast", |class| class.binding = binding);
        let mut world = world.fast("a", &volume);
        let ledger = &mut world.snapshot.ledger;
        ledger.searched.insert(volume.mark.on_disk.digest());
        ledger.unborn.insert(token.into());
        let found = draft(&world).mark.unwrap().mark.token;
        assert_eq!(found == token, is_kept, "{binding:?} {token}");
        assert_eq!(is_link(&found), binding == Binding::Disk, "{found}");
    }
}

/// A PV that is bound to its disk, with this number of its label, for the entry of that number.
fn labelled(at: u32) -> PvView {
    let pv = pv(&format!("pv-{at}"), &format!("/mnt/fast/{at}"), &fs(at));
    linked(pv, &format!("{at:032x}"), label(at))
}

/// The labels that are added and removed.
fn changes(world: &World) -> Vec<(String, bool)> {
    let actions = world.plan().actions.into_iter();
    let changes = actions.filter_map(|action| match action {
        Action::LabelNode(change) => Some(change),
        _ => None,
    });
    let changes: Vec<_> = changes.collect();
    assert!(changes.len() <= 1, "{changes:?}");
    let labels = changes.into_iter().flat_map(|change| change.labels);
    let labels = labels.map(|(label, value)| {
        assert_eq!(value.as_deref().unwrap_or_default(), "");
        (label, value.is_some())
    });
    labels.collect()
}

fn labels(world: World, labels: &[u32]) -> World {
    let labels = labels.iter().map(|it| (label(*it), String::new()));
    world.node(|node| node.labels.extend(labels))
}

#[test]
fn labels_of_the_disks_of_all_pvs_are_added_at_once() {
    let world = disk_world().pv(labelled(1)).pv(labelled(2)).pv(labelled(3));
    let foreign = with(labelled(4), |pv| pv.provisioned_by = Some(FOREIGN.into()));
    let world = labels(world.pv(foreign), &[2]);
    assert_eq!(changes(&world), [(label(1), true), (label(3), true)]);
    let mut writing = world.clone();
    writing.snapshot.ledger.writing.insert("node-uid".into());
    assert_eq!(changes(&writing), []);
    assert_eq!(changes(&labels(world, &[1, 3])), []);
}

#[test]
fn label_is_removed_with_the_last_pv_of_a_disk_that_is_gone() {
    let volume = unmarked(1);
    let key = label_of_disk(&world(), &volume);
    let has_label =
        || disk_world().node(|node| drop(node.labels.insert(key.clone(), String::new())));
    let pv = |change: fn(&mut PvView)| with(linked(offered(&volume), LINK, key.clone()), change);
    let other = with(class("slow"), |class| class.binding = Binding::Disk);
    let unread = || has_label().class(other.clone());
    let not_looked_at = with(unread(), |it| {
        drop(it.snapshot.observed.remove("slow"));
    });
    for (what, world, stays) in [
        ("neither PV nor disk", has_label(), false),
        ("missing", has_label().pv(pv(|_| {})), true),
        (
            "not mounted",
            has_label().pv(pv(|pv| *pv = bound(pv.clone()))).entry(
                "fast",
                "a",
                SkipReason::NotMounted,
            ),
            true,
        ),
        (
            "to be cleaned",
            has_label().fast("a", &volume).pv(pv(|pv| *pv = released(pv.clone()))),
            true,
        ),
        ("between two PVs", has_label().fast("a", &volume), true),
        // The provisioner has no permission to patch the Node then.
        (
            "no class that binds to disks",
            has_label().change_class("fast", |class| class.binding = Binding::Path),
            true,
        ),
        (
            "a PV of another installation",
            has_label().pv(pv(|pv| pv.installation = Some("other".into()))),
            true,
        ),
        (
            "a PV of the Node before it was registered again",
            has_label().pv(pv(|pv| pv.provisioned_by = Some(FORMER.into()))),
            true,
        ),
        ("another disk", has_label().fast("a", &unmarked(2)), false),
        ("all read", unread(), false),
        ("not all read", unread().incomplete("slow"), true),
        ("not looked at yet", not_looked_at, true),
    ] {
        let removed = changes(&world).contains(&(key.clone(), false));
        assert_eq!(!removed, stays, "{what}");
    }
    let other_label = |node: &mut NodeView| {
        node.labels.insert("disk".into(), "ssd".into());
    };
    let world = has_label().node(other_label);
    assert_eq!(changes(&world), [(key.clone(), false)]);
}

/// A world with so many PVs, of disks that are missing.
fn full(count: u32) -> World {
    let pvs = (1..=count).map(|at| labelled(100 + at));
    pvs.fold(disk_world(), World::pv)
}

/// The entries that become PVs, and those that are skipped because they cannot be bound.
fn offers(world: &World) -> (Vec<String>, Vec<String>) {
    let words = words(&world.plan());
    let of = |end: &str| {
        let words = words.iter().filter_map(|it| it.strip_suffix(end));
        words.map(str::to_owned).collect()
    };
    (of(" is Creating"), of(" is Skipped as NotBindable"))
}

#[test]
fn offer_that_would_exceed_the_limit_of_labels_is_refused() {
    let disks = |world: World| world.fast("a", &unmarked(1)).fast("b", &unmarked(2));
    let known = linked(pv("pv", "/mnt/fast/c", &fs(3)), LINK, label_of_disk(&world(), &fs(2)));
    let has_label = |node: &mut NodeView| {
        let label = label_of(node, &fs(2));
        node.labels.insert(label, String::new());
    };
    let of_paths = |class: &mut Class| class.binding = Binding::Path;
    let being_created = disks(full(31)).creating("/mnt/fast/b", &fs(2));
    for (what, world, offered, refused) in [
        ("room", disks(full(30)), "a b", ""),
        ("room for one of two", disks(full(31)), "a", "b"),
        ("one is being created", being_created, "b", "a"),
        ("no room", disks(full(32)), "", "a b"),
        ("between two PVs", disks(full(31)).node(has_label), "b", "a"),
        ("a label that exists", disks(full(31).pv(known)), "b", "a"),
        ("without labels", disks(full(32)).change_class("fast", of_paths), "a b", ""),
    ] {
        let (created, skipped) = offers(&world);
        assert_eq!(created.join(" "), offered, "{what}");
        assert_eq!(skipped.join(" "), refused, "{what}");
    }
    // A PV that exists keeps its label.
    let changes = changes(&full(40));
    assert_eq!(changes.len(), 40);
    assert!(changes.iter().all(|(_, is_added)| *is_added));
}

#[test]
fn volume_without_a_mark_or_a_link_is_not_offered() {
    let no_place = with(unmarked(1), |it| it.mark = MarkFact::default());
    let no_directory = |mut world: World| {
        world.snapshot.links_fault = Some("it cannot be made".into());
        world
    };
    let no_marks = |world: &World| {
        let settings = with(world.settings(), |it| it.cluster = None);
        words(&plan(&settings, &world.snapshot))
    };
    let skipped = ["a is Skipped as NotBindable"];
    let world = disk_world().fast("a", &unmarked(1));
    disk_world().fast("a", &no_place).expect("no place", &skipped);
    no_directory(world.clone()).expect("no directory", &skipped);
    assert_eq!(no_marks(&world), skipped);
}

#[test]
fn volume_with_a_weak_identity_is_neither_offered_nor_linked() {
    let tmpfs = tmpfs(1, "/mnt/fast/a");
    let mark = with(used(), |mark| mark.identity_hash = tmpfs.identity.hash());
    let volume = marked(&tmpfs, MarkOnDisk::Valid(mark));
    let pv = bound(linked(offered(&tmpfs), LINK, label(1)));
    let world = disk_world().fast("a", &volume).pv(pv);
    let world = world.node(|node| drop(node.labels.insert(label(1), String::new())));
    world.expect("bound", UNVERIFIED);
    let free = disk_world().fast("a", &marked(&tmpfs, MarkOnDisk::Absent));
    free.expect("free", &["a is Skipped as NotBindable"]);
}

#[test]
fn link_that_two_pvs_name_is_removed() {
    let copy = linked(pv("copy", "/mnt/slow/b", &fs(2)), LINK, label(1));
    let expected = [&[UNLINK, "b is ClassGone"], UNVERIFIED].concat();
    mounted().pv(copy).expect("a copy of the PV", &expected);
    let owner = PathOwner {
        pv: "copy".into(),
        uid: "uid-copy".into(),
        path: format!("{LINK_DIR}/{LINK}"),
        owns_below: false,
    };
    let mut world = mounted();
    world.snapshot.owners = Arc::new(vec![owner]);
    world.expect("without annotations", &[&[UNLINK], UNVERIFIED].concat());
}
