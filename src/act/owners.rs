//! Lists the PVs of other nodes with the identities of ours, before a PV is created and once it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::Actor;
use crate::cache::Expectations;
use crate::cluster::ApiError;
use crate::inventory::Skip;
use crate::plan::{Action, OWNER_LIST, OtherPvs, OwnerQuery, PvDraft};
use crate::view::PvView;

/// The pause between two lists while another node has the disk.
pub(super) const OWNED_PAUSE: Duration = Duration::from_mins(5);
/// The pause after the first list of a new PV. Another node may create a PV right after that list, whose age in seconds
/// is the same.
const NEW_PAUSE: Duration = Duration::from_secs(5);
/// The pause while no other node has it. A node that creates a PV later finds ours, but PVs of earlier versions have no
/// label until the provisioner of their node is upgraded.
const FREE_PAUSE: Duration = Duration::from_hours(1);

/// By identity hash.
type Found = BTreeMap<String, OtherPvs>;

/// The PVs of other nodes with the identities of ours, by [`OwnerQuery::key`].
#[derive(Clone, Debug, Default)]
pub struct OwnerChecks(Arc<Mutex<Entries>>);

/// With the time of the next list. There is none for an identity that is not unique.
type Entries = BTreeMap<String, (OtherPvs, Option<Instant>)>;

impl OwnerChecks {
    /// What is known about these PVs; what is known about others is dropped.
    pub fn now(&self, pvs: &[PvView]) -> BTreeMap<String, OtherPvs> {
        let hashes = pvs.iter().filter_map(|pv| pv.identity_hash.as_ref());
        let keys: BTreeSet<_> = pvs.iter().map(|pv| &pv.uid).chain(hashes).collect();
        let (mut entries, now) = (self.0.lock(), Instant::now());
        entries.retain(|key, _| keys.contains(key));
        let known = entries.iter().map(|(key, (found, due))| {
            let is_due = due.is_some_and(|due| due <= now);
            let found = found.clone();
            (key.clone(), OtherPvs { is_due, ..found })
        });
        known.collect()
    }

    fn record(&self, query: &OwnerQuery, found: OtherPvs) {
        let mut entries = self.0.lock();
        let pause = match entries.contains_key(&query.key) {
            _ if !found.owners.is_empty() => OWNED_PAUSE,
            true => FREE_PAUSE,
            false => NEW_PAUSE,
        };
        let is_listed_again = query.identity.is_unique;
        let due = is_listed_again.then(|| Instant::now() + pause);
        entries.insert(query.key.clone(), (found, due));
    }
}

/// The PVs of other nodes with the identities that one pass offers, listed once at the first creation.
#[derive(Clone, Debug)]
pub(super) struct PassOwners {
    queries: Arc<Vec<OwnerQuery>>,
    found: Arc<OnceCell<Found>>,
}

impl PassOwners {
    /// Nothing is listed yet.
    pub(super) fn of(actions: &[Action]) -> Self {
        let queries = actions.iter().filter_map(|action| match action {
            Action::Create(draft) => query(draft),
            _ => None,
        });
        Self {
            queries: Arc::new(queries.collect()),
            found: Arc::default(),
        }
    }
}

/// The query of a volume whose identity may forbid its offer.
fn query(draft: &PvDraft) -> Option<OwnerQuery> {
    let identity = draft.candidate.global.as_ref().filter(|it| it.is_unique)?;
    Some(OwnerQuery::new("", identity, draft.candidate.capacity))
}

impl Actor {
    /// Why a volume is not offered, if another node has a PV of it.
    pub(super) async fn offered_elsewhere(
        &self,
        draft: &PvDraft,
        owners: &PassOwners,
    ) -> Result<Option<Skip>, ApiError> {
        let Some(query) = query(draft) else {
            return Ok(None);
        };
        let list = || self.list_owners(&owners.queries);
        let found = owners.found.get_or_try_init(list).await?;
        let others = found.get(&query.identity.hash);
        Ok(others.and_then(|others| others.skip(&draft.path)))
    }

    /// Lists the PVs of other nodes with the identities of these PVs of ours.
    pub(super) fn find_owners(&self, queries: Vec<OwnerQuery>, expectations: &Expectations) {
        let (this, guard) = (self.clone(), self.in_flight.enter(OWNER_LIST, None));
        let work = async move {
            let found = this.list_owners(&queries).await?;
            for query in &queries {
                if let Some(others) = found.get(&query.identity.hash) {
                    this.owner_checks.record(query, others.clone());
                }
            }
            Ok(())
        };
        self.write(guard, expectations, work, |is_ok| is_ok);
    }

    async fn list_owners(&self, queries: &[OwnerQuery]) -> Result<Found, ApiError> {
        let hashes: BTreeSet<_> = queries.iter().map(|it| &*it.identity.hash).collect();
        let hashes: Vec<_> = hashes.into_iter().collect();
        let pvs = self.context.cluster.pvs_with_identities(&hashes).await?;
        let state = self.context.state.borrow();
        let others = |query: &OwnerQuery| {
            let others = OtherPvs::of(query, &pvs, &state.node);
            (others.hash.clone(), others)
        };
        Ok(queries.iter().map(others).collect())
    }
}
