//! Lists the PVs of other nodes with the identities of ours, before a PV is created and once it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::Execution;
use crate::cluster::ApiError;
use crate::plan::{Action, OWNER_LIST, OtherPvs, OwnerQuery, PvDraft};

/// By identity hash.
type Found = BTreeMap<String, OtherPvs>;

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
        Self { queries: Arc::new(queries.collect()), found: Arc::default() }
    }
}

/// The query of a volume whose identity may forbid its offer.
fn query(draft: &PvDraft) -> Option<OwnerQuery> {
    let candidate = &draft.volume.candidate;
    let identity = candidate.global.as_ref().filter(|it| it.is_unique)?;
    Some(OwnerQuery::new("", identity, candidate.capacity))
}

impl Execution {
    /// The PVs of a volume that the watch does not show, if there are any.
    pub(super) async fn offered_elsewhere(
        &self,
        draft: &PvDraft,
    ) -> Result<Option<OtherPvs>, ApiError> {
        let Some(query) = query(draft) else {
            return Ok(None);
        };
        let list = || self.list_owners(&self.owners.queries);
        let found = self.owners.found.get_or_try_init(list).await?;
        let others = found.get(&query.identity.hash);
        Ok(others.filter(|it| !it.is_empty()).cloned())
    }

    /// Lists the PVs of other nodes with the identities of these PVs of ours.
    pub(super) fn find_owners(self: &Arc<Self>, queries: Vec<OwnerQuery>) {
        let (this, guard) = (Arc::clone(self), self.enter(OWNER_LIST, None));
        self.write(guard, async move {
            let found = this.list_owners(&queries).await?;
            let (mut ledger, now) = (this.context.table.facts(), this.context.table.now());
            for query in &queries {
                if let Some(others) = found.get(&query.identity.hash) {
                    ledger.record_others(query, others, now);
                }
            }
            Ok(true)
        });
    }

    pub(super) async fn list_owners(&self, queries: &[OwnerQuery]) -> Result<Found, ApiError> {
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
