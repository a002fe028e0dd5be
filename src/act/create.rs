//! Makes PVs.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolume;

use super::Actor;
use super::device_checks::Refused;
use crate::cache::Expectations;
use crate::cluster::ApiError;
use crate::crash::crash_point;
use crate::plan::PvDraft;
use crate::render;
use crate::types::HostPath;
use crate::view::PvView;

/// Pauses before a failed creation is tried again; then the next pass does.
const RETRIES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// What came of making a PV.
enum Outcome {
    Made,
    /// There is one for the same volume already.
    Found,
    /// The PV that had the name is gone meanwhile.
    Gone,
    /// Nothing, for now.
    Nothing,
}

/// The name belongs to the PV of another volume.
struct Taken;

impl Actor {
    /// Makes a PV, if its device can be opened exclusively.
    pub(super) fn offer(&self, draft: Box<PvDraft>, expectations: Expectations, pass: Instant) {
        let Some(entered) = self.writing.enter_new(&draft) else {
            return;
        };
        let (this, generation) = (self.clone(), self.generation());
        tokio::spawn(async move {
            // Not as one of the writes: a device that never answers would occupy their place for ever.
            let checked = this.device_checks.check(&draft).await;
            let is_current = this.generation() == generation;
            match checked {
                Ok(()) if is_current => {
                    let that = this.clone();
                    let work = |generation| async move {
                        let is_there = that.create(&draft, &expectations, pass, generation).await;
                        if is_there {
                            that.device_checks.forget(&draft.path);
                        }
                        is_there
                    };
                    this.write(Some(entered), work, |is_there| is_there);
                }
                Err(Refused { is_news: false }) if is_current => {}
                _ => {
                    drop(entered);
                    this.context.wake.notify_one();
                }
            }
        });
    }

    /// Makes a PV, unless another configuration than `generation` comes into force. Says whether
    /// another pass would find something else: a PV, ours or one that no watch tells of, or a free name.
    pub(super) async fn create(
        &self,
        draft: &PvDraft,
        expectations: &Expectations,
        pass: Instant,
        generation: u64,
    ) -> bool {
        let mut pv = render::persistent_volume(draft);
        if draft.name != draft.second_name {
            // Its PV may have the second name although the first is free, and show in no watch.
            let found = self.find_as(&draft.second_name, draft, expectations, generation);
            match found.await {
                Ok(Outcome::Found) => return true,
                Ok(Outcome::Nothing) => return false,
                Ok(Outcome::Made | Outcome::Gone) | Err(Taken) => {}
            }
        }
        for name in [&draft.name, &draft.second_name] {
            pv.metadata.name = Some(name.clone());
            match self
                .create_as(name, &pv, draft, expectations, generation)
                .await
            {
                Ok(Outcome::Made) => {
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
                Ok(Outcome::Found | Outcome::Gone) => return true,
                Ok(Outcome::Nothing) => return false,
                Err(Taken) => {}
            }
        }
        tracing::error!(
            path = %draft.path, class = draft.class, first = draft.name, second = draft.second_name,
            "no PersistentVolume was made: both of its names belong to other volumes; rename the entry"
        );
        false
    }

    /// Creates a PV.
    async fn create_as(
        &self,
        name: &str,
        pv: &PersistentVolume,
        draft: &PvDraft,
        expectations: &Expectations,
        generation: u64,
    ) -> Result<Outcome, Taken> {
        let cluster = &self.context.cluster;
        let is_wanted = || self.is_wanted(draft, generation);
        crash_point("create-pv");
        match patiently(is_wanted, || cluster.create_pv(pv)).await {
            Some(Ok(view)) => {
                expectations.expect(view);
                Ok(Outcome::Made)
            }
            Some(Err(ApiError::AlreadyExists)) => {
                self.find_as(name, draft, expectations, generation).await
            }
            failed => {
                not_made(name, draft, failed.and_then(Result::err));
                Ok(Outcome::Nothing)
            }
        }
    }

    /// Reads what has a name. A PV of the draft's volume is remembered, so that the next pass sees it.
    async fn find_as(
        &self,
        name: &str,
        draft: &PvDraft,
        expectations: &Expectations,
        generation: u64,
    ) -> Result<Outcome, Taken> {
        let cluster = &self.context.cluster;
        let is_wanted = || self.is_wanted(draft, generation);
        match patiently(is_wanted, || cluster.pv(name)).await {
            Some(Ok(Some(other))) if self.stands_for(&other, &draft.path) => {
                expectations.add_unlabelled(other);
                Ok(Outcome::Found)
            }
            Some(Ok(Some(_))) => Err(Taken),
            Some(Ok(None)) => Ok(Outcome::Gone),
            failed => {
                not_made(name, draft, failed.and_then(Result::err));
                Ok(Outcome::Nothing)
            }
        }
    }

    /// Whether neither the configuration nor the Node's hostname label has changed since the plan.
    fn is_wanted(&self, draft: &PvDraft, generation: u64) -> bool {
        let state = self.context.state.borrow();
        state.settings.generation == generation && state.node.hostname == draft.hostname
    }

    /// Whether a PV is for a path on this node. Whoever made it: then there is no second one.
    fn stands_for(&self, pv: &PvView, path: &HostPath) -> bool {
        pv.path() == Some(path) && pv.stands_on(&self.context.state.borrow().node)
    }
}

fn not_made(pv: &str, draft: &PvDraft, error: Option<ApiError>) {
    let path = &draft.path;
    match error {
        Some(error) => {
            tracing::warn!(pv, %path, %error, "no PersistentVolume was made; the next pass tries again");
        }
        None => {
            tracing::debug!(pv, %path, "not made: configuration or hostname changed; the next pass decides again");
        }
    }
}

/// Tries a request again that failed for a reason that may pass, a few times, with pauses that grow.
/// The client itself does that for 429 and 503, and heeds `Retry-After`. `None` once the request is
/// not wanted any more.
async fn patiently<T, F>(
    is_wanted: impl Fn() -> bool,
    request: impl Fn() -> F,
) -> Option<Result<T, ApiError>>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let mut pauses = RETRIES.into_iter();
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
    async fn a_request_that_fails_is_made_again_only_while_it_is_wanted() {
        for (wanted, expected) in [(0, None), (1, None), (2, None), (3, Some("made"))] {
            let made = Cell::new(0);
            let request = async || {
                made.set(made.get() + 1);
                if made.get() < 3 {
                    return Err(ApiError::Failed("503".into()));
                }
                Ok("made")
            };
            let is_wanted = || made.get() < wanted;
            let result = patiently(is_wanted, request).await;
            assert_eq!(result.and_then(Result::ok), expected, "{wanted}");
            assert_eq!(made.get(), wanted);
        }
    }

    #[tokio::test]
    async fn a_refusal_is_final() {
        let refused = async || Err::<(), _>(ApiError::Invalid("no".into()));
        let result = patiently(|| true, refused).await;
        assert!(matches!(result, Some(Err(ApiError::Invalid(_)))));
    }
}
