//! Adoption: volumes of a former cluster are offered again, each to the claim that its mark names.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::kit::*;
use super::mark::{DIRTY, OFFERED, TOKEN, foreign, mark, marked, searched, unreadable};
use crate::config::DiscoveryPolicy;
use crate::host::mark::{Mark, MarkOnDisk, MarkState, Place, RootAttributes};
use crate::inventory::{Candidate, Contents, Skip};
use crate::names::{ANNOTATION_OFFER, ANNOTATION_USED, SALT_PREFIX};
use crate::plan::consent::consent;
use crate::plan::{Action, PvDraft, Refusal, VolumeReport, consents_in};
use crate::types::SkipReason;

pub(super) const CLAIM: &str = "default/data";

/// The mark of an adoption in this cluster that has not created its PV.
pub(super) fn begun() -> MarkOnDisk {
    MarkOnDisk::Valid(with(mark(MarkState::Pending), |it| {
        it.pv_uid.clear();
        it.claim = Some(CLAIM.into());
    }))
}

fn of_mark(state: MarkState, change: impl FnOnce(&mut Mark)) -> MarkOnDisk {
    MarkOnDisk::Valid(with(mark(state), |it| {
        it.cluster = "other".into();
        change(it);
    }))
}

/// The world with this volume, for which an operator consents.
fn consented(volume: &Candidate) -> World {
    permits(searched(volume), volume, "adopt")
}

pub(super) fn permits(world: World, volume: &Candidate, verb: &str) -> World {
    world.node(|node| {
        node.consents.insert(consent(verb, None, volume));
    })
}

pub(super) fn drafts(world: &World) -> Vec<PvDraft> {
    let actions = world.plan().actions.into_iter();
    let drafts = actions.filter_map(|action| match action {
        Action::Create(draft) => Some(*draft),
        _ => None,
    });
    drafts.collect()
}

fn reports(world: &World) -> Vec<VolumeReport> {
    let classes = world.plan().classes.into_iter();
    classes.flat_map(|class| class.volumes).collect()
}

fn detail(world: &World) -> String {
    reports(world).remove(0).detail.unwrap_or_default()
}

fn verbs(detail: &str) -> BTreeSet<&str> {
    consents_in(detail).filter_map(|it| it.split(':').next()).collect()
}

#[test]
fn volume_of_a_former_cluster_is_adopted_by_its_mark() {
    use MarkState::{Free, Offered, Pending, Used, Wiping};
    let claimed = |it: &mut Mark| it.claim = Some(CLAIM.into());
    for (what, on_disk, expected, why) in [
        ("used", foreign(Used), OFFERED, ""),
        ("adoption begun there", of_mark(Pending, claimed), OFFERED, ""),
        ("wiping", foreign(Wiping), DIRTY, "a wipe of it has begun"),
        ("free", of_mark(Free, claimed), DIRTY, "no claim with data"),
        ("reserved", of_mark(Offered, claimed), DIRTY, "no claim with data"),
        ("pending", foreign(Pending), DIRTY, "no claim with data"),
        ("used, without a claim", of_mark(Used, |it| it.claim = None), DIRTY, "no claim with data"),
        (
            "of another class",
            of_mark(Used, |it| it.class = "slow".into()),
            DIRTY,
            "its mark is of another class",
        ),
        ("unreadable", unreadable(), DIRTY, ""),
        ("of this cluster", MarkOnDisk::Valid(mark(Used)), DIRTY, ""),
    ] {
        for volume in [fs(1), disk(1)] {
            let volume = marked(&volume, on_disk.clone());
            let world = consented(&volume);
            world.expect(what, expected);
            let claims: Vec<_> = drafts(&world).into_iter().map(|it| it.claim).collect();
            let reserved = with(claim(), |it| it.uid = None);
            assert!(claims.iter().all(|it| *it == Some(reserved.clone())), "{what}");
            assert!(detail(&world).contains(why), "{what}: {}", detail(&world));
            // Never without being asked.
            let asked = searched(&volume);
            asked.expect(what, DIRTY);
            assert_eq!(verbs(&detail(&asked)).contains("adopt"), expected == OFFERED, "{what}");
        }
    }
}

#[test]
fn consent_to_adopt_requires_the_disk_and_the_latest_mark() {
    let used = marked(&fs(1), foreign(MarkState::Used));
    let later = with(used.clone(), |it| {
        let written_at = world().snapshot.date;
        let change = |it: &mut Mark| it.written_at = written_at;
        it.mark.on_disk = of_mark(MarkState::Used, change);
    });
    let unwritable = with(used.clone(), |it| it.mark.place = None);
    let copied = with(used.clone(), |it| {
        it.mark.on_disk = of_mark(MarkState::Used, |it| it.identity_hash = "other".into());
    });
    let rebooted = with(marked(&nameless(1, "now"), foreign(MarkState::Used)), |it| {
        it.mark.on_disk = of_mark(MarkState::Used, |it| it.identity_hash = "before".into());
        it.is_as_offered = false;
    });
    let outdated = with(used.clone(), |it| it.mark.is_outdated = true);
    let unchangeable = with(outdated.clone(), |it| {
        it.mark.place = Some(Place::StateDirectory);
    });
    for (what, given, volume, expected) in [
        ("given", &used, &used, OFFERED),
        ("another write of the mark", &used, &later, DIRTY),
        ("another disk", &marked(&fs(2), foreign(MarkState::Used)), &used, DIRTY),
        ("unwritable", &unwritable, &unwritable, DIRTY),
        ("copied with files", &copied, &copied, DIRTY),
        ("another device since a reboot", &rebooted, &rebooted, DIRTY),
        ("the node was installed again", &outdated, &outdated, OFFERED),
        ("a newer mark may be lost", &unchangeable, &unchangeable, DIRTY),
    ] {
        permits(searched(volume), given, "adopt").expect(what, expected);
    }
}

#[test]
fn adopted_pv_is_reserved_and_its_mark_keeps_claim_and_root() {
    let root = RootAttributes::default();
    let used = of_mark(MarkState::Used, |it| it.root = Some(root.clone()));
    let volume = marked(&fs(1), used);
    let world = consented(&volume);
    let draft = drafts(&world).remove(0);
    let object = &draft.object;
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "data",
    });
    assert_eq!(object["spec"]["claimRef"], reference);
    assert_eq!(object["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(object["metadata"]["annotations"][ANNOTATION_USED], "true");
    let write = draft.mark.unwrap();
    let annotations = &object["metadata"]["annotations"];
    assert_eq!(annotations[ANNOTATION_OFFER], Value::from(write.mark.token.clone()));
    assert_ne!(write.mark.token, TOKEN);
    let expected = (MarkState::Pending, CLUSTER, Some(CLAIM.to_owned()), Some(root), false);
    let found = write.mark.clone();
    let resets = write.resets_root;
    assert_eq!((found.state, &*found.cluster, found.claim, found.root, resets), expected);
    // Its class may offer empty volumes only.
    let choosy = world.change_class("fast", |it| {
        it.discovery_policy = DiscoveryPolicy::EmptyOnly;
    });
    choosy.expect("EmptyOnly", OFFERED);
}

#[test]
fn volumes_whose_marks_name_the_same_claim_stay() {
    let [a, b] = [1, 2].map(|at| marked(&fs(at), foreign(MarkState::Used)));
    let both = |b: &Candidate| {
        let mut world = consented(&a).fast("b", b);
        world.snapshot.ledger.searched.insert(b.mark.on_disk.digest());
        permits(world, b, "adopt")
    };
    let world = both(&b);
    let dirty = ["VolumeDirty of Node node-1", "a is Skipped as Dirty", "b is Skipped as Dirty"];
    world.expect("two marks", &dirty);
    for report in reports(&world) {
        let why = "another volume of this node has a mark of the same claim";
        let detail = report.detail.unwrap();
        assert!(detail.contains(why), "{detail}");
        assert_eq!(verbs(&detail), BTreeSet::from(["accept", "wipe"]));
    }
    // The other one was wiped, or is of another claim.
    let freed = of_mark(MarkState::Free, |it| it.claim = Some(CLAIM.into()));
    let other = of_mark(MarkState::Used, |it| {
        it.claim = Some("default/other".into());
    });
    for on_disk in [freed, other] {
        let b = marked(&fs(2), on_disk);
        let claims: Vec<_> = drafts(&both(&b)).into_iter().map(|it| it.claim).collect();
        assert!(claims.contains(&Some(with(claim(), |it| it.uid = None))), "{claims:?}");
    }
}

type Change = fn(&mut World, &mut Candidate);

#[test]
fn interrupted_adoption_continues_and_is_never_an_offer_to_any_claim() {
    let situations: [(&str, Change); 6] = [
        ("after a restart", |_, _| {}),
        ("the request failed", |world, _| {
            world.snapshot.ledger.unborn.insert(TOKEN.into());
        }),
        ("its PV was deleted", |world, _| {
            world.snapshot.ended.insert((TOKEN.into(), "uid-pv".into()));
        }),
        ("read-only", |_, volume| volume.read_only = true),
        ("empty", |_, volume| volume.contents = Contents::Empty),
        ("the claim's PV is there", |world, _| {
            let refusal = Refusal {
                identity: fs(1).identity.text,
                skip: Skip::new(SkipReason::Dirty, "its claim has PV x"),
                retry_at: world.snapshot.now,
            };
            world.snapshot.ledger.refusals.0.insert(path("/mnt/fast/a"), refusal);
        }),
    ];
    for kind in [fs(1), disk(1)] {
        for (what, change) in situations {
            let mut volume = marked(&kind, begun());
            let mut changed = searched(&volume);
            change(&mut changed, &mut volume);
            let world = changed.fast("a", &volume);
            let drafts = drafts(&world);
            assert_eq!(drafts.len(), 1, "{what}: {:?}", words(&world.plan()));
            let draft = &drafts[0];
            assert_eq!(draft.claim, Some(with(claim(), |it| it.uid = None)), "{what}");
            let write = draft.mark.as_ref().unwrap();
            // The PV may be on its way.
            assert_eq!(write.mark.token, TOKEN, "{what}");
            assert!(write.mark.is_adoption(), "{what}");
            // Earlier versions, which know no adoption, take no such mark for clean.
            let (boot, is_read_only) = (&write.mark.boot_time, write.mark.read_only);
            assert_eq!((boot, is_read_only), (&None, false), "{what}");
            for verb in ["wipe", "accept"] {
                let decided = permits(world.clone(), &volume, verb);
                let is_adopted = |it: &PvDraft| it.claim.is_some();
                assert!(!self::drafts(&decided).iter().any(is_adopted), "{what} {verb}");
            }
            // Another volume of the claim has appeared meanwhile.
            let other = marked(&fs(2), foreign(MarkState::Used));
            let twice = with(world.fast("b", &other), |world| {
                let digest = other.mark.on_disk.digest();
                world.snapshot.ledger.searched.insert(digest);
            });
            assert_eq!(self::drafts(&twice), [], "{what}");
        }
    }
}

#[test]
fn volume_whose_claim_has_another_pv_waits_for_a_decision() {
    let volume = marked(&fs(1), foreign(MarkState::Used));
    let mut world = consented(&volume);
    let refusal = Refusal {
        identity: fs(1).identity.text,
        skip: Skip::new(SkipReason::Dirty, "its claim has PV x"),
        retry_at: world.snapshot.now * 2,
    };
    world.snapshot.ledger.refusals.0.insert(path("/mnt/fast/a"), refusal);
    world.expect("refused", DIRTY);
    assert!(detail(&world).starts_with("its claim has PV x"));
    assert_eq!(verbs(&detail(&world)), BTreeSet::from(["accept", "wipe"]));
    let wiped = marked(&fs(1), MarkOnDisk::Valid(mark(MarkState::Free)));
    world.fast("a", &wiped).expect("wiped", OFFERED);
}

#[test]
fn report_has_a_hash_of_the_claim_only_with_a_salt_and_never_its_name() {
    let hash = |world: &World| reports(world).remove(0).mark.unwrap().claim_hash;
    let [a, b] = [1, 2].map(|at| searched(&marked(&fs(at), foreign(MarkState::Used))));
    assert_eq!(hash(&a), None);
    let salted = |world: &World, salt: &str| {
        world.clone().node(|node| {
            node.consents.insert(format!("{SALT_PREFIX}{salt}"));
        })
    };
    let (one, other) = (hash(&salted(&a, "1")), hash(&salted(&a, "2")));
    assert!(one.is_some() && one != other);
    let without = marked(&fs(1), of_mark(MarkState::Used, |it| it.claim = None));
    let without = hash(&salted(&searched(&without), "1"));
    assert!(without.is_some() && without != one);
    assert_eq!(one, hash(&salted(&b, "1")));
    for world in [a, consented(&marked(&fs(1), foreign(MarkState::Used)))] {
        let text = serde_json::to_string(&world.plan().classes).unwrap();
        assert!(!text.contains("data\""), "{text}");
        assert!(!text.contains(CLAIM), "{text}");
    }
}
