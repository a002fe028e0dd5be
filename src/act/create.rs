//! Creates PVs. Each request is retried a few times; after that, the next pass decides again.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::time::Instant;

use super::Actor;
use super::offer_checks::Refused;
use crate::cache::Expectations;
use crate::cleanup::PassFacts;
use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::plan::PvDraft;
use crate::render;
use crate::types::HostPath;
use crate::view::PvView;

/// The pauses between the tries of one request.
const RETRY_PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// The result of creating a PV or reading its name.
enum Outcome {
    Created,
    /// A PV of the same volume exists.
    Exists,
    /// No PV has the name any more.
    NameFree,
    /// The request failed or is no longer wanted.
    NotCreated,
}

/// The PV of another volume has the name.
struct NameTaken;

impl Actor {
    /// Creates a PV if its volume passes the inspection.
    pub(super) fn offer(
        &self,
        draft: Box<PvDraft>,
        facts: PassFacts,
        expectations: Expectations,
        pass: Instant,
    ) {
        let Some(guard) = self.in_flight.enter_new(&draft) else {
            return;
        };
        let (this, generation) = (self.clone(), self.generation());
        tokio::spawn(async move {
            let config = Arc::clone(&this.context.state.borrow().settings.config);
            // Without a write permit: an unresponsive disk would hold it forever.
            let checked = this.offer_checks.check(&draft, &config, &facts).await;
            let is_current = this.generation() == generation;
            match checked {
                Ok(()) if is_current => {
                    let actor = this.clone();
                    let work = |generation| async move {
                        let exists = actor.create(&draft, &expectations, pass, generation).await;
                        if exists {
                            actor.offer_checks.forget(&draft.path);
                        }
                        exists
                    };
                    this.write(Some(guard), work, |exists| exists);
                }
                Err(Refused { is_new: false }) if is_current => {}
                _ => {
                    drop(guard);
                    this.context.wake.notify_one();
                }
            }
        });
    }

    /// Creates a PV, unless a reload replaces the configuration `generation`. Returns whether the next
    /// pass would see something new: a PV (ours or an unlabelled one) or a free name.
    pub(super) async fn create(
        &self,
        draft: &PvDraft,
        expectations: &Expectations,
        pass: Instant,
        generation: u64,
    ) -> bool {
        let mut pv = render::persistent_volume(draft);
        if draft.name != draft.second_name {
            // An unlabelled PV of this volume may have the second name. The watch does not show it.
            let found = self.find_as(&draft.second_name, draft, expectations, generation);
            match found.await {
                Ok(Outcome::Exists) => return true,
                Ok(Outcome::NotCreated) => return false,
                Ok(Outcome::Created | Outcome::NameFree) | Err(NameTaken) => {}
            }
        }
        for name in [&draft.name, &draft.second_name] {
            pv.metadata.name = Some(name.clone());
            match self
                .create_as(name, &pv, draft, expectations, generation)
                .await
            {
                Ok(Outcome::Created) => {
                    let metrics = &self.context.metrics;
                    let mode = draft.mode.as_str();
                    metrics.discovery_total.with_label_values(&[mode]).inc();
                    let took = pass.elapsed().as_secs_f64();
                    metrics
                        .discovery_duration
                        .with_label_values(&[mode])
                        .observe(took);
                    tracing::info!(pv = name, path = %draft.path, class = draft.class, "created a PersistentVolume");
                    return true;
                }
                Ok(Outcome::Exists | Outcome::NameFree) => return true,
                Ok(Outcome::NotCreated) => return false,
                Err(NameTaken) => {}
            }
        }
        tracing::error!(
            path = %draft.path, class = draft.class, first = draft.name, second = draft.second_name,
            "no PersistentVolume was created: PVs of other volumes have both of its names; rename the entry"
        );
        expectations.refused(&draft.name);
        false
    }

    /// Creates a PV under one name.
    async fn create_as(
        &self,
        name: &str,
        pv: &PersistentVolume,
        draft: &PvDraft,
        expectations: &Expectations,
        generation: u64,
    ) -> Result<Outcome, NameTaken> {
        let cluster = &self.context.cluster;
        let is_wanted = || self.is_wanted(draft, generation);
        crash_point("create-pv");
        match retry_while(is_wanted, || cluster.create_pv(pv)).await {
            Some(Ok(view)) => {
                expectations.expect(view);
                Ok(Outcome::Created)
            }
            Some(Err(ApiError::Conflict)) => {
                self.find_as(name, draft, expectations, generation).await
            }
            failed => {
                not_created(name, draft, failed.and_then(Result::err), expectations);
                Ok(Outcome::NotCreated)
            }
        }
    }

    /// Reads the PV of a name. A PV of the draft's volume is cached, so that the next pass sees it.
    async fn find_as(
        &self,
        name: &str,
        draft: &PvDraft,
        expectations: &Expectations,
        generation: u64,
    ) -> Result<Outcome, NameTaken> {
        let cluster = &self.context.cluster;
        let is_wanted = || self.is_wanted(draft, generation);
        match retry_while(is_wanted, || cluster.pv(name)).await {
            Some(Ok(Some(other))) if self.is_pv_of(&other, &draft.path) => {
                expectations.expect(other);
                Ok(Outcome::Exists)
            }
            Some(Ok(Some(_))) => Err(NameTaken),
            Some(Ok(None)) => Ok(Outcome::NameFree),
            failed => {
                not_created(name, draft, failed.and_then(Result::err), expectations);
                Ok(Outcome::NotCreated)
            }
        }
    }

    /// Whether the configuration and the Node's hostname label are those of the plan.
    fn is_wanted(&self, draft: &PvDraft, generation: u64) -> bool {
        let state = self.context.state.borrow();
        state.settings.generation == generation && state.node.hostname == draft.hostname
    }

    /// Whether a PV is for a path on this node, whether or not this provisioner created it.
    fn is_pv_of(&self, pv: &PvView, path: &HostPath) -> bool {
        pv.path() == Some(path) && pv.stands_on(&self.context.state.borrow().node)
    }
}

fn not_created(pv: &str, draft: &PvDraft, error: Option<ApiError>, expectations: &Expectations) {
    let path = &draft.path;
    match error {
        Some(error) => {
            tracing::warn!(pv, %path, %error, "cannot create the PersistentVolume; a later pass retries");
            if !error.is_passing() {
                expectations.refused(&draft.name);
            }
        }
        None => {
            tracing::debug!(pv, %path, "not created: configuration or hostname changed; the next pass decides again");
        }
    }
}

/// Retries a request after transient errors, with growing pauses. Returns `None` when the request is no
/// longer wanted. The client itself retries 429 and 503 and respects `Retry-After`.
async fn retry_while<T, F>(
    is_wanted: impl Fn() -> bool,
    request: impl Fn() -> F,
) -> Option<Result<T, ApiError>>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let mut pauses = RETRY_PAUSES.into_iter();
    while is_wanted() {
        match (request().await, pauses.next()) {
            (Err(ApiError::Failed(_)), Some(pause)) => tokio::time::sleep(pause).await,
            (result, _) => return Some(result),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn failed_request_is_retried_only_while_it_is_wanted() {
        for (wanted, expected) in [(0, None), (1, None), (2, None), (3, Some("created"))] {
            let requests = Cell::new(0);
            let request = async || {
                requests.set(requests.get() + 1);
                if requests.get() < 3 {
                    return Err(ApiError::Failed("503".into()));
                }
                Ok("created")
            };
            let is_wanted = || requests.get() < wanted;
            let result = retry_while(is_wanted, request).await;
            assert_eq!(result.and_then(Result::ok), expected, "{wanted}");
            assert_eq!(requests.get(), wanted);
        }
    }

    #[tokio::test]
    async fn invalid_request_is_not_retried() {
        let refused = async || Err::<(), _>(ApiError::Invalid("no".into()));
        let result = retry_while(|| true, refused).await;
        assert!(matches!(result, Some(Err(ApiError::Invalid(_)))));
    }
}
