//! What may happen to the controllers, in any order.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    controllers::tests::{
        World, but, claim,
        disturbance::{self, Disturbance},
        on_node, pod, provisioned, volume,
    },
    meta,
    pv_controller::{BIND_COMPLETED, BOUND_BY_CONTROLLER},
    resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES, PODS, Resource},
    store::{DeleteOptions, Part, Store},
};

/// A write of another client.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Volume {
        name: u8,
        size: u8,
        reclaim: Reclaim,
        node: u8,
        reserved: Option<u8>,
    },
    Claim {
        name: u8,
        size: u8,
        late: bool,
        volume: Option<u8>,
    },
    Pod {
        name: u8,
        claims: Vec<u8>,
    },
    Delete(&'static Resource, u8),
    /// Deletes a claim that has a volume, if there is any.
    Release(u8),
    Edit(&'static Resource, u8, Edit),
}

/// What becomes of a volume whose claim is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reclaim {
    Retain,
    /// By its external provisioner.
    DeleteOutside,
    /// By a plug-in, and there is none.
    DeleteInside,
    /// There is no recycler for local volumes.
    Recycle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edit {
    /// No controller reads it, but what the controllers know is stale.
    Label,
    DropClaimRef,
    /// Names this claim with its UID, as another controller's first write does, on a volume that is
    /// available.
    Reserve(u8),
    DropUid,
    DropAnnotations,
    DropFinalizers,
    Policy(Reclaim),
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Act(Action),
    /// Before one of the controllers' next writes.
    Disturb {
        after: usize,
        by: By,
    },
    /// From now on the controllers do not hear of this type.
    Withhold(&'static Resource),
    LetGo,
    Settle,
    Work(u8),
    Resync,
    Restart,
}

#[derive(Debug, Clone)]
pub(super) enum By {
    /// The write of another client.
    Action(Action),
    /// An error of the API server.
    Fault,
    /// The end of the controllers; they start again with nothing but the store.
    Crash,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let by = prop_oneof![
        4 => action().prop_map(By::Action),
        2 => Just(By::Fault),
        2 => Just(By::Crash),
    ];
    let step = prop_oneof![
        16 => action().prop_map(Step::Act),
        6 => (0_usize..6, by).prop_map(|(after, by)| Step::Disturb { after, by }),
        2 => prop::sample::select(vec![&VOLUMES, &CLAIMS]).prop_map(Step::Withhold),
        1 => Just(Step::LetGo),
        3 => Just(Step::Settle),
        3 => (1_u8..4).prop_map(Step::Work),
        1 => Just(Step::Resync),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

fn action() -> impl Strategy<Value = Action> {
    let name = || 0_u8..5;
    let kind = prop_oneof![Just(&VOLUMES), Just(&CLAIMS), Just(&PODS)];
    let edited = prop_oneof![2 => Just(&VOLUMES), 1 => Just(&CLAIMS)];
    let edit = prop_oneof![
        4 => Just(Edit::Label),
        1 => Just(Edit::DropClaimRef),
        2 => name().prop_map(Edit::Reserve),
        1 => Just(Edit::DropUid),
        1 => Just(Edit::DropAnnotations),
        1 => Just(Edit::DropFinalizers),
        1 => reclaim().prop_map(Edit::Policy),
    ];
    prop_oneof![
        4 => (name(), 1_u8..4, reclaim(), 1_u8..3, prop::option::weighted(0.2, name()))
            .prop_map(|(name, size, reclaim, node, reserved)| Action::Volume { name, size, reclaim, node, reserved }),
        4 => (name(), 1_u8..4, any::<bool>(), prop::option::weighted(0.2, name()))
            .prop_map(|(name, size, late, volume)| Action::Claim { name, size, late, volume }),
        2 => (name(), prop::collection::vec(name(), 1..3)).prop_map(|(name, claims)| Action::Pod { name, claims }),
        4 => (kind, name()).prop_map(|(kind, name)| Action::Delete(kind, name)),
        2 => any::<u8>().prop_map(Action::Release),
        3 => (edited, name(), edit).prop_map(|(kind, name, edit)| Action::Edit(kind, name, edit)),
    ]
}

fn reclaim() -> impl Strategy<Value = Reclaim> {
    use Reclaim::{DeleteInside, DeleteOutside, Recycle, Retain};
    prop::sample::select(vec![Retain, DeleteOutside, DeleteInside, Recycle])
}

impl Step {
    pub(super) fn take(&self, world: &mut World) {
        match self {
            Self::Act(action) => action.take(&world.store),
            Self::Disturb { after, by } => disturbance::plan(
                *after,
                match by.clone() {
                    By::Action(action) => Disturbance::Rival(Box::new(move |s| action.take(s))),
                    By::Fault => Disturbance::Fault,
                    By::Crash => Disturbance::Crash,
                },
            ),
            Self::Withhold(r) => world.withhold(r),
            Self::LetGo => world.let_go(),
            Self::Settle => world.settle(),
            Self::Work(times) => {
                for _ in 0..*times {
                    world.work();
                }
            }
            Self::Resync => world.resync(),
            Self::Restart => world.restart(),
        }
        if disturbance::has_crashed() {
            world.restart();
        }
    }
}

impl Action {
    /// What the API server refuses does not happen.
    fn take(&self, store: &Store) {
        let _ = match self {
            Self::Volume { name, size, reclaim, node, reserved } => {
                let (name, size) = (format!("v{name}"), format!("{size}Gi"));
                let made = if *reclaim == Reclaim::DeleteOutside {
                    provisioned(&name, &size)
                } else {
                    volume(&name, &size)
                };
                let made = but(on_node(made, &format!("n{node}")), |v| {
                    v["spec"]["persistentVolumeReclaimPolicy"] = json!(reclaim.policy());
                    if let Some(claim) = reserved {
                        v["spec"]["claimRef"] =
                            json!({"namespace": "default", "name": format!("c{claim}")});
                    }
                });
                store.create(&VOLUMES, "", made).map(drop)
            }
            Self::Claim { name, size, late, volume } => {
                let made = but(claim(&format!("c{name}"), &format!("{size}Gi")), |c| {
                    c["spec"]["storageClassName"] = json!(if *late { "late" } else { "fast" });
                    if let Some(volume) = volume {
                        c["spec"]["volumeName"] = json!(format!("v{volume}"));
                    }
                });
                store.create(&CLAIMS, "default", made).map(drop)
            }
            Self::Pod { name, claims } => {
                let claims: Vec<_> = claims.iter().map(|claim| format!("c{claim}")).collect();
                let claims: Vec<_> = claims.iter().map(String::as_str).collect();
                let made = pod(&format!("p{name}"), &claims);
                store.create(&PODS, "default", made).map(drop)
            }
            Self::Delete(r, name) => {
                let (ns, name) = key(r, *name);
                store.delete(r, ns, &name, &DeleteOptions::default()).map(drop)
            }
            Self::Release(number) => {
                let mut claims = store.list(&CLAIMS, None).items;
                claims.retain(|claim| claim["spec"]["volumeName"].is_string());
                if claims.is_empty() {
                    return;
                }
                let claim = meta::name(&claims[usize::from(*number) % claims.len()]);
                let options = DeleteOptions::default();
                store.delete(&CLAIMS, "default", claim, &options).map(drop)
            }
            Self::Edit(r, name, edit) => {
                let (ns, name) = key(r, *name);
                let uid = match edit {
                    Edit::Reserve(claim) => uid(store, *claim),
                    _ => None,
                };
                let edited = store.modify(r, ns, &name, Part::Main, |old| {
                    Ok(but(old.clone(), |object| edit.apply(object, uid)))
                });
                edited.map(drop)
            }
        };
    }
}

fn key(r: &'static Resource, name: u8) -> (&'static str, String) {
    match r {
        r if r == &VOLUMES => ("", format!("v{name}")),
        r if r == &CLAIMS => ("default", format!("c{name}")),
        _ => ("default", format!("p{name}")),
    }
}

fn uid(store: &Store, claim: u8) -> Option<String> {
    let claim = store.get(&CLAIMS, "default", &format!("c{claim}")).ok()?;
    Some(meta::uid(&claim).to_owned())
}

impl Reclaim {
    fn policy(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::DeleteOutside | Self::DeleteInside => "Delete",
            Self::Recycle => "Recycle",
        }
    }
}

impl Edit {
    /// `uid` is that of the claim that the edit is about, if there is one.
    fn apply(self, object: &mut Value, uid: Option<String>) {
        let mut drop_from = |pointer: &str, key: &str| {
            let parent = object.pointer_mut(pointer).and_then(Value::as_object_mut);
            parent.map(|fields| fields.remove(key));
        };
        match self {
            Self::Label => {
                let version = meta::resource_version(object).to_string();
                object["metadata"]["labels"] = json!({"version": version});
            }
            Self::DropClaimRef => drop_from("/spec", "claimRef"),
            Self::Reserve(claim) => {
                if let Some(uid) = uid.filter(|_| object["status"]["phase"] == "Available")
                    && object["spec"]["claimRef"].is_null()
                {
                    object["spec"]["claimRef"] =
                        json!({"namespace": "default", "name": format!("c{claim}"), "uid": uid});
                }
            }
            Self::DropUid => drop_from("/spec/claimRef", "uid"),
            Self::DropAnnotations => {
                drop_from("/metadata/annotations", BIND_COMPLETED);
                drop_from("/metadata/annotations", BOUND_BY_CONTROLLER);
            }
            Self::DropFinalizers => drop_from("/metadata", "finalizers"),
            Self::Policy(reclaim) => {
                if object["spec"]["persistentVolumeReclaimPolicy"].is_string() {
                    object["spec"]["persistentVolumeReclaimPolicy"] = json!(reclaim.policy());
                }
            }
        }
    }
}
