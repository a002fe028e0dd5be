//! Random worlds: few paths, few disks, so that everything gets in everything's way.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

use super::due::{PHASES, policies};
use super::kit::*;
use crate::config::{DiscoveryPolicy, MissingVolumePolicy, WeakIdentity};
use crate::inventory::{Candidate, Contents, Finding};
use crate::names::FINALIZER;
use crate::plan::consent::{consent as naming, forget};
use crate::plan::{Cleanup, CleanupState};
use crate::types::{HostPath, SkipReason, VolumeMode};
use crate::view::{Phase, PvView, Tenancy};

/// The installation of a world that has one, and one whose DaemonSet is gone.
const INSTALLATION: &str = "ns/ours";
pub const GONE: &str = "ns/gone";

/// Storage of which some is part of other.
fn storage() -> Vec<Candidate> {
    vec![
        disk(1),
        other_path_to(&disk(1), 7),
        partition(1),
        fs(1),
        directory(1, "/x"),
        directory(1, "/x/y"),
        global(disk(2), true),
        fs(2),
        fs(3),
        fs(4),
        fs(5),
        disk(6),
        tmpfs(9, "/mnt/c0/a"),
        nameless(1, "now"),
    ]
}

fn identities() -> Vec<String> {
    let seen = storage().into_iter().map(|candidate| candidate.identity.text);
    let odd = [nameless(1, "before").identity.text, "garbage".into(), "v2:later".into()];
    seen.chain(odd).collect()
}

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.1)
}

prop_compose! {
    fn volume()(
        candidate in select(storage()), read_only in rarely(), in_use in rarely(),
        contents in select(vec![Contents::NotLookedAt, Contents::Empty, Contents::Holds("x".into())]),
    ) -> Finding {
        with(candidate, |candidate| {
            (candidate.read_only, candidate.contents) = (read_only, contents);
            candidate.in_use = in_use.then(|| "md0".into());
        })
        .into()
    }
}

fn finding() -> impl Strategy<Value = Option<Finding>> {
    let skipped = select(vec![SkipReason::NotMounted, SkipReason::Unreadable]).prop_map(Into::into);
    prop_oneof![7 => volume().prop_map(Some), 1 => skipped.prop_map(Some), 2 => Just(None)]
}

/// A text of a PV that names an identity.
#[derive(Clone, Debug)]
enum Named {
    Nothing,
    /// What is at its path.
    Found,
    Any(String),
}

fn named(nothing: u32, found: u32) -> impl Strategy<Value = Named> {
    prop_oneof![
        nothing => Just(Named::Nothing),
        found => Just(Named::Found),
        2 => select(identities()).prop_map(Named::Any),
    ]
}

impl Named {
    fn or_found(self, found: Option<&Candidate>) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Found => found.map(|candidate| candidate.identity.text.clone()),
            Self::Any(text) => Some(text),
        }
    }
}

const PATHS: [&str; 7] =
    ["/mnt/c0/a", "/mnt/c0/b", "/mnt/c0/c", "/mnt/c0/d", "/mnt/c1/a", "/mnt/c1/b", "/mnt/c1/c"];
/// Paths inside, around and beside these.
const ODD_PATHS: [&str; 5] =
    ["/mnt/c0/a/a", "/mnt/c0/a/b", "/mnt/c0/b/below", "/mnt/c0", "/mnt/c0/."];

fn local_path() -> impl Strategy<Value = Result<HostPath, String>> {
    let texts = prop_oneof![15 => select(PATHS.to_vec()), 1 => select(ODD_PATHS.to_vec())];
    let local = texts.prop_map(|text| HostPath::from_api(text).map_err(str::to_owned));
    prop_oneof![30 => local, 1 => Just(Err("no spec.local".to_owned()))]
}

prop_compose! {
    fn life()(
        phase in prop_oneof![2 => Just(Phase::Released), 3 => select(PHASES.to_vec())],
        policy in prop_oneof![4 => Just(policies()[0].clone()), 2 => select(policies().to_vec())],
        claim in any::<bool>(), used in any::<bool>(), bound_by_controller in any::<bool>(),
        deleting in prop::bool::weighted(0.3), held in any::<bool>(),
        paused in rarely(), resized in rarely(), raw in rarely(),
        unused in prop::bool::weighted(0.25),
    ) -> PvView {
        with(pv("", "/mnt/c0/a", &fs(1)), |pv| {
            (pv.phase, pv.policy, pv.deleting, pv.paused) = (phase, policy, deleting, paused);
            (pv.used, pv.bound_by_controller) = (used, bound_by_controller);
            pv.claim = claim.then(super::kit::claim);
            pv.finalizers = if held { vec![FINALIZER.into()] } else { Vec::new() };
            pv.mode = if raw { VolumeMode::Block } else { VolumeMode::Filesystem };
            if unused {
                (pv.phase, pv.claim, pv.deleting) = (Phase::Available, None, false);
                (pv.used, pv.bound_by_controller) = (false, false);
            }
            if resized {
                pv.capacity = Some("1Gi".into());
            }
        })
    }
}

/// A PV, and the identities that it names as recorded and as consented to.
type Draft = (PvView, Named, (&'static str, Named));

prop_compose! {
    fn drafted()(
        life in life(), local_path in local_path(),
        class in prop::option::weighted(0.1, select(vec!["c0", "c1", "c2", "gone"])),
        recorded in named(2, 8),
        consent in (select(vec!["wipe", "forget"]), named(6, 3)),
        by in prop_oneof![8 => Just(OURS), 1 => Just(FORMER), 1 => Just(FOREIGN)],
        host in prop_oneof![10 => Just("host-1"), 1 => Just("host-2")],
        label in prop::bool::weighted(0.8), owned in any::<bool>(),
        installation in prop_oneof![
            16 => Just(None), 4 => Just(Some(INSTALLATION)), 2 => Just(Some(GONE)), 1 => Just(Some("ns/there")),
        ],
    ) -> Draft {
        let pv = with(life, |pv| {
            let at = local_path.as_ref().map_or("", HostPath::as_str);
            let of_path = if at.starts_with("/mnt/c1") { "c1" } else { "c0" };
            pv.class = class.unwrap_or(of_path).into();
            (pv.local_path, pv.provisioned_by) = (local_path, Some(by.into()));
            pv.installation = installation.map(str::to_owned);
            pv.hostnames = vec![host.into()];
            pv.hostname_label = label.then(|| host.into());
            pv.owners = owned.then(|| owner("Node", "some-uid")).into_iter().collect();
        });
        (pv, recorded, consent)
    }
}

fn state() -> impl Strategy<Value = CleanupState> {
    let failed = (0..200_u64).prop_map(failed_until);
    let others = [
        CleanupState::Wiping,
        CleanupState::Released,
        CleanupState::JobRunning { job: "a".into() },
        CleanupState::Wiped { error: None, retry_at: Duration::ZERO },
        CleanupState::Blocked {
            reason: "used".into(),
            notify_at: Some(Duration::ZERO),
            retry_at: Duration::from_secs(100),
        },
    ];
    prop_oneof![3 => select(others.to_vec()), 1 => failed]
}

prop_compose! {
    /// Two or three classes: the second may share the first's directory, the third lie within it.
    fn classes()(
        count in 2..=3_usize, shared in rarely(), nested in prop::bool::weighted(0.3),
        found in prop::collection::vec(finding(), 10),
        incomplete in prop::collection::vec(prop::bool::weighted(0.15), 3),
        block in rarely(), accept in any::<bool>(), strict in any::<bool>(),
        choosy in prop::bool::weighted(0.3),
        policies in prop::collection::vec(select([&policies()[..], &policies()[..2]].concat()), 3),
    ) -> World {
        let dirs = [
            "/mnt/c0",
            if shared { "/mnt/c0" } else { "/mnt/c1" },
            if nested { "/mnt/c0/a" } else { "/mnt/c2" },
        ];
        let disk: BTreeMap<String, &Finding> = (0..10)
            .filter_map(|at| {
                let dir = ["/mnt/c0", "/mnt/c1", dirs[2]][[0, 0, 0, 0, 1, 1, 1, 2, 2, 2][at]];
                let name = ["a", "b", "c", "d", "a", "b", "c", "a", "b", "c"][at];
                Some((format!("{dir}/{name}"), found[at].as_ref()?))
            })
            .collect();
        let mut world = world();
        world.config.classes.clear();
        world.snapshot.observed.clear();
        for at in 0..count {
            let name = format!("c{at}");
            world = world.class(with(class(&name), |class| {
                class.host_dir = path(dirs[at]);
                if accept {
                    class.weak_identity = WeakIdentity::Accept;
                }
                if block && at == 1 {
                    class.volume_mode = VolumeMode::Block;
                }
                if choosy {
                    class.discovery_policy = DiscoveryPolicy::EmptyOnly;
                }
                if strict {
                    class.missing_volume_policy = MissingVolumePolicy::Delete;
                }
            }));
            world = world.storage_class(&name, Some(storage_class(policies[at].clone())));
            for (at_path, finding) in &disk {
                let Some((dir, entry)) = at_path.rsplit_once('/') else { continue };
                if dir == dirs[at] {
                    let mismatch = block && at == 1 && matches!(
                        finding,
                        Finding::Volume(volume) if volume.candidate.kind == VolumeMode::Filesystem
                    );
                    let seen =
                        if mismatch { SkipReason::ModeMismatch.into() } else { (*finding).clone() };
                    world = world.entry(&name, entry, seen);
                }
            }
            if incomplete[at] {
                world = world.incomplete(&name);
            }
        }
        world
    }
}

prop_compose! {
    pub fn any_world()(
        world in classes(),
        drafts in prop::collection::vec(drafted(), 0..6),
        cleanups in prop::collection::vec((0..8_usize, select(PATHS.to_vec()), state()), 0..2),
        earlier_claim in any::<bool>(),
        writing in prop::option::weighted(0.2, 0..6_usize),
        making in prop::option::weighted(0.2, (select(PATHS.to_vec()), select(identities()))),
        missing_since in prop::collection::vec(prop::option::of(0..100_u64), 6),
        (protect, name_only, owned) in any::<(bool, bool, bool)>(),
        installed in prop::bool::weighted(0.8),
        paused in prop::bool::weighted(0.04), node_paused in prop::bool::weighted(0.04),
    ) -> World {
        let mut world = world;
        for (at, (pv, recorded, (verb, consented))) in drafts.into_iter().enumerate() {
            let found = pv.path().and_then(|path| found(&world, path)).cloned();
            let pv = with(pv, |pv| {
                (pv.name, pv.uid) = (format!("pv-{at}"), format!("uid-{at}"));
                pv.resource_version = format!("{at}");
                pv.identity = recorded.or_found(found.as_ref());
                pv.consent = match (verb, consented, &found) {
                    ("forget", Named::Found, _) => Some(forget(pv)),
                    (_, Named::Found, Some(found)) => Some(naming(verb, Some(pv), found)),
                    (verb, named, _) => named.or_found(None).map(|text| format!("{verb}:{text}")),
                };
            });
            world = world.pv(pv);
        }
        for (at, path_of_none, state) in cleanups {
            let pv = world.pvs().get(at).filter(|pv| pv.path().is_some());
            let (tenancy, path) = match pv {
                Some(pv) => (pv.tenancy(), pv.path().unwrap().clone()),
                None => (Tenancy { pv_uid: "gone".into(), claim_uid: None }, path(path_of_none)),
            };
            let tenancy = with(tenancy, |tenancy| {
                if earlier_claim {
                    tenancy.claim_uid = Some("earlier".into());
                }
            });
            let cleanup = Cleanup {
                pv: "pv".into(),
                path,
                identity: String::new(),
                since: Duration::ZERO,
                running: state == CleanupState::Wiping,
                stalled: false,
                suspended: false,
                disks: std::collections::BTreeSet::new(),
                basis: 0,
                state,
            };
            world.snapshot.ledger.cleanups.insert(tenancy, cleanup);
        }
        world.snapshot.ledger.missing_since = missing_since
            .into_iter()
            .enumerate()
            .filter_map(|(at, since)| Some((format!("uid-{at}"), Duration::from_secs(since?))))
            .collect();
        world.snapshot.ledger.writing.extend(writing.map(|at| format!("pv-{at}")));
        world.snapshot.ledger.creating.extend(making.map(|(at, identity)| (path(at), identity)));
        world.installation = installed.then(|| INSTALLATION.into());
        let world = world.absent(GONE, ABSENCE_LIMIT).config(|config| {
            (config.protect_released_data, config.use_node_name_only) = (protect, name_only);
            (config.set_pv_owner_ref, config.pause_cleaning) = (owned, paused);
        });
        world.node(|node| node.paused = node_paused)
    }
}

/// The volume at a path, as a person would look it up.
pub fn found<'a>(world: &'a World, path: &HostPath) -> Option<&'a Candidate> {
    world.config.classes.values().find_map(|class| {
        let entry = path.child_of(&class.host_dir)?;
        match world.snapshot.observed[&class.name].entries.get(entry)? {
            Finding::Volume(volume) => Some(&volume.candidate),
            Finding::Skipped(_) => None,
        }
    })
}
