//! What holds of every offer of a volume that has the mark of a tenant.

use proptest::prelude::*;
use proptest::sample::select;

use super::former_cluster::{CLAIM, drafts, permits};
use super::kit::*;
use super::mark::{TOKEN, mark, marked, searched};
use crate::host::mark::{Mark, MarkOnDisk, MarkState};
use crate::inventory::Contents;

prop_compose! {
    fn any_mark()(
        state in select(vec![
            MarkState::Pending, MarkState::Offered, MarkState::Used, MarkState::Wiping, MarkState::Free,
        ]),
        cluster in select(vec![CLUSTER, "other"]), claim in any::<bool>(),
        read_only in any::<bool>(), copied in any::<bool>(),
    ) -> Mark {
        with(mark(state), |it| {
            it.cluster = cluster.into();
            it.claim = claim.then(|| CLAIM.into());
            it.read_only = read_only;
            if copied {
                it.identity_hash = "other".into();
            }
        })
    }
}

proptest! {
    /// Whatever the mark and the history, data of a tenant is offered to that tenant's claim only, unless an operator
    /// accepts that every claim can read it.
    #[test]
    fn data_of_an_adoption_is_offered_to_its_claim_only(
        mark in any_mark(), device in any::<bool>(), read_only in any::<bool>(),
        contents in select(vec![Contents::Empty, Contents::NotLookedAt, Contents::Holds("x".into())]),
        verb in select(vec!["adopt", "wipe", "none"]),
        unborn in any::<bool>(), ended in any::<bool>(), outdated in any::<bool>(),
    ) {
        let kind = if device { disk(1) } else { fs(1) };
        let mut volume = marked(&kind, MarkOnDisk::Valid(mark.clone()));
        if mark.identity_hash == "other" {
            volume.mark.on_disk = MarkOnDisk::Valid(mark.clone());
        }
        (volume.contents, volume.read_only) = (contents.clone(), read_only);
        volume.mark.is_outdated = outdated;
        let mut world = permits(searched(&volume), &volume, verb);
        if unborn {
            world.snapshot.ledger.unborn.insert(TOKEN.into());
        }
        if ended {
            world.snapshot.ended.insert((TOKEN.into(), "uid-pv".into()));
        }
        let is_foreign = mark.cluster != CLUSTER;
        for draft in drafts(&world) {
            match &draft.claim {
                Some(claim) => {
                    prop_assert_eq!(Some(claim.to_string()), mark.claim.clone());
                    let is_asked = is_foreign && verb == "adopt";
                    prop_assert!(is_asked || (!is_foreign && mark.is_adoption()));
                    prop_assert!(matches!(mark.state, MarkState::Pending | MarkState::Used));
                    prop_assert!(draft.mark.unwrap().mark.is_adoption());
                }
                None => prop_assert!(!mark.is_adoption(), "{mark:?}"),
            }
        }
    }
}
