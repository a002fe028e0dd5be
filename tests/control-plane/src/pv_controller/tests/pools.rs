//! The best of many volumes, and how much is looked at to find it.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    controllers::{
        object::{Claim, Volume},
        tests::{World, but, claim, volume},
    },
    pv_controller::{
        matching::would_match,
        pools::{EXAMINED, Pools, Volumes},
    },
    resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES},
};

/// Far above the few that a claim may look at, and squared far too many.
const MANY: usize = 1_000;

/// Volumes as the cache has them.
#[derive(Default)]
struct Offer {
    pools: Pools,
    volumes: Volumes,
}

impl Offer {
    fn of(volumes: impl IntoIterator<Item = Value>) -> Self {
        let mut offer = Self::default();
        for volume in volumes {
            let volume = available(volume);
            offer.volumes.insert(volume.name().into(), &volume);
            offer.pools.insert(&volume);
        }
        offer
    }

    /// The volume that the claim gets; it is on offer no longer.
    fn take(&mut self, claim: Value) -> Option<String> {
        let best = self.pools.best(&self.volumes, &Claim(Arc::new(claim)))?;
        self.pools.remove(&best);
        Some(best.name().to_owned())
    }
}

fn available(volume: Value) -> Volume {
    Volume(Arc::new(but(volume, |v| {
        v["status"]["phase"] = json!("Available");
    })))
}

fn labelled(number: usize, labels: Value) -> Value {
    but(volume(&format!("v{number:04}"), "1Gi"), |v| {
        v["metadata"]["labels"] = labels;
    })
}

fn selecting(selector: Value) -> Value {
    but(claim("c", "1Gi"), |c| c["spec"]["selector"] = selector)
}

/// What [`MANY`] such claims look at among these volumes, all claims together; none, or only the
/// first, gets one.
fn examined(offer: &mut Offer, claim: &Value, gets: Option<&str>) -> usize {
    EXAMINED.set(0);
    assert_eq!(offer.take(claim.clone()).as_deref(), gets);
    for _ in 1..MANY {
        assert_eq!(offer.take(claim.clone()), None);
    }
    EXAMINED.get()
}

#[test]
fn claims_that_match_nothing_look_at_nothing() {
    let mut offer = Offer::of((0..MANY).map(|number| labelled(number, json!({}))));
    let spec = |field: &str, value: Value| but(claim("c", "1Gi"), |c| c["spec"][field] = value);
    for wanted in [
        claim("c", "2Gi"),
        spec("storageClassName", json!("other")),
        spec("volumeMode", json!("Block")),
        spec("accessModes", json!(["ReadWriteMany"])),
        spec("volumeAttributesClassName", json!("gold")),
        selecting(json!({"matchLabels": {"disk": "none"}})),
    ] {
        assert_eq!(examined(&mut offer, &wanted, None), 0, "{wanted}");
    }
    let none = selecting(json!({"matchExpressions": [{"key": "disk", "operator": "Exists"}]}));
    assert_eq!(examined(&mut offer, &none, None), MANY, "one set of labels");
}

#[test]
fn selectors_are_no_search() {
    let disk = |number| if number + 1 == MANY { "last" } else { "other" };
    let volumes = (0..MANY).map(|n| labelled(n, json!({"disk": disk(n), "number": n.to_string()})));
    let last = format!("v{:04}", MANY - 1);
    let wanted = selecting(json!({"matchLabels": {"disk": "last"}}));
    assert_eq!(examined(&mut Offer::of(volumes), &wanted, Some(&last)), 2);

    // Without a label that the selector requires, the volumes' different labels count.
    let volumes = (0..MANY).map(|n| labelled(n, json!({"disk": disk(n)})));
    let mut offer = Offer::of(volumes);
    let not_other = json!({"key": "disk", "operator": "NotIn", "values": ["other"]});
    let wanted = selecting(json!({"matchExpressions": [not_other]}));
    assert!(examined(&mut offer, &wanted, Some(&last)) <= 2 * MANY);
}

#[test]
fn a_claim_with_a_volume_to_itself_finds_it() {
    let volumes = (0..MANY).map(|n| labelled(n, json!({"app": "db", "number": n.to_string()})));
    let mut offer = Offer::of(volumes);
    EXAMINED.set(0);
    for number in (0..MANY).rev() {
        let labels = json!({"app": "db", "number": number.to_string()});
        let got = offer.take(selecting(json!({"matchLabels": labels})));
        assert_eq!(got, Some(format!("v{number:04}")));
    }
    assert!(EXAMINED.get() <= 2 * MANY, "{}", EXAMINED.get());
}

#[test]
fn reserved_volumes_are_not_on_the_way() {
    let mut world = World::new();
    for number in 0..MANY {
        let reserved = but(labelled(number, json!({})), |v| {
            v["spec"]["claimRef"] =
                json!({"namespace": "default", "name": format!("nobody-{number}")});
        });
        world.put(&PERSISTENT_VOLUMES, reserved);
    }
    for number in 0..10 {
        world.put(
            &PERSISTENT_VOLUME_CLAIMS,
            claim(&format!("c{number}"), "1Gi"),
        );
    }
    world.settle();
    EXAMINED.set(0);
    let mut writes = world.store.subscribe();
    world.resync();
    assert_eq!(EXAMINED.get(), 0);
    let written = std::iter::from_fn(|| writes.try_recv().ok());
    assert_eq!(
        written
            .filter(|event| event.resource == &PERSISTENT_VOLUMES)
            .count(),
        0
    );
}

fn any_labels() -> impl Strategy<Value = Value> {
    let value = prop_oneof![Just("x"), Just("y")];
    prop::collection::btree_map(prop_oneof![Just("a"), Just("b")], value, 0..3)
        .prop_map(|labels| json!(labels))
}

fn any_selector() -> impl Strategy<Value = Value> {
    let key = || prop_oneof![Just("a"), Just("b")];
    let values = prop::collection::vec(prop_oneof![Just("x"), Just("y")], 1..3);
    let operator = prop_oneof![Just("In"), Just("NotIn")];
    let one = (key(), operator, values).prop_map(
        |(key, operator, values)| json!({"key": key, "operator": operator, "values": values}),
    );
    let presence = (key(), prop_oneof![Just("Exists"), Just("DoesNotExist")])
        .prop_map(|(key, operator)| json!({"key": key, "operator": operator}));
    let expressions = prop::collection::vec(prop_oneof![one, presence], 0..3);
    (any_labels(), expressions)
        .prop_map(|(labels, all)| json!({"matchLabels": labels, "matchExpressions": all}))
}

fn any_modes() -> impl Strategy<Value = Value> {
    let modes = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"];
    prop::sample::subsequence(modes.to_vec(), 1..=3).prop_map(|modes| json!(modes))
}

fn any_spec() -> impl Strategy<Value = (Value, u8, u8, u8)> {
    (any_modes(), 1_u8..4, 0_u8..2, 0_u8..2)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The best is what a search through all of them finds: fewest access modes, smallest, first.
    #[test]
    fn the_best_is_found(
        offered in prop::collection::vec((any_spec(), any_labels()), 0..12),
        wanted in prop::collection::vec((any_spec(), prop::option::of(any_selector())), 1..6),
    ) {
        let shape = |object: Value, (modes, _, class, block): (Value, u8, u8, u8)| but(object, |o| {
            o["spec"]["accessModes"] = modes;
            o["spec"]["storageClassName"] = json!(format!("class-{class}"));
            o["spec"]["volumeMode"] = json!(if block == 1 { "Block" } else { "Filesystem" });
        });
        let volumes = offered.into_iter().enumerate().map(|(number, (spec, labels))| {
            let made = volume(&format!("v{number:02}"), &format!("{}Gi", spec.1));
            but(shape(made, spec), |v| v["metadata"]["labels"] = labels)
        });
        let volumes: Vec<_> = volumes.collect();
        let mut left: Vec<_> = volumes.iter().cloned().map(available).collect();
        let mut offer = Offer::of(volumes);
        for (spec, selector) in wanted {
            let made = claim("c", &format!("{}Gi", spec.1));
            let made = but(shape(made, spec), |c| {
                if let Some(selector) = selector {
                    c["spec"]["selector"] = selector;
                }
            });
            let asked = Claim(Arc::new(made.clone()));
            let matching = left.iter().filter(|volume| would_match(volume, &asked));
            let best = matching.min_by_key(|volume| {
                (volume.access_modes(), volume.capacity(), volume.name().to_owned())
            });
            let best = best.map(|volume| volume.name().to_owned());
            left.retain(|volume| Some(volume.name()) != best.as_deref());
            prop_assert_eq!(offer.take(made), best);
        }
    }
}
