//! The best of many volumes.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    controllers::{
        object::{Claim, Volume},
        tests::{but, claim, volume},
    },
    pv_controller::{
        matching::would_match,
        pools::{Pools, Volumes},
    },
};

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
            offer.pools.insert(&volume);
            offer.volumes.insert(volume.name().into(), volume);
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
