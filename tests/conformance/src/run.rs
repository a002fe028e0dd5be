//! Runs scenarios, many at a time, and records how they end.

use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use futures::{StreamExt, stream};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    activity::Activity,
    api::Api,
    outcome::{Outcome, Record},
    play::Play,
    pulse::Pulse,
    scenario::Scenario,
};

/// How long things take on an API server.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Nothing has changed for so long: nothing more will come of it.
    pub quiet: Duration,
    /// After so long the controllers have looked at everything again.
    pub resync: Duration,
    /// How long a step waits for what it expects.
    pub patience: Duration,
    /// How many scenarios run at a time.
    pub parallel: usize,
}

impl Pace {
    /// A real cluster with the defaults of its components.
    pub const REAL: Self = Self {
        quiet: Duration::from_secs(1),
        resync: Duration::from_millis(16_500),
        patience: Duration::from_mins(1),
        parallel: 32,
    };
}

/// Runs scenarios on one API server.
pub struct Runner {
    pub(crate) api: Api,
    pub(crate) pace: Pace,
    /// The first word of all names of this run.
    id: String,
    activity: Activity,
    pulse: Pulse,
}

impl Runner {
    /// Connects.
    ///
    /// # Errors
    /// There is no API server, or it may not be used.
    pub async fn start(kubeconfig: Kubeconfig, pace: Pace) -> anyhow::Result<Self> {
        let api = Api::new(kubeconfig).await?;
        let id = format!("c{:05x}", clock() & 0xf_ffff);
        let activity = Activity::watch(&api.client()).await?;
        let namespace = format!("{id}-pulse");
        make_namespace(&api, &namespace).await?;
        let pulse = Pulse::start(api.clone(), namespace, pace.quiet / 3);
        Ok(Self {
            api,
            pace,
            id,
            activity,
            pulse,
        })
    }

    /// Runs them all; those that need the cluster for themselves come last.
    ///
    /// # Errors
    /// The API server is gone. What a scenario runs into is part of its outcome.
    pub async fn run(&self, scenarios: &[Scenario]) -> anyhow::Result<Record> {
        let version = self.api.get("/version").await?.unwrap_or_default();
        let server = version["gitVersion"].as_str().unwrap_or_default();
        let mut record = Record {
            server: server.to_owned(),
            ..Record::default()
        };
        let numbered = || scenarios.iter().enumerate();
        let mut outcomes = stream::iter(numbered().filter(|(_, s)| !s.alone))
            .map(|(number, scenario)| self.scenario(number, scenario))
            .buffer_unordered(self.pace.parallel)
            .collect::<Vec<_>>()
            .await;
        for (number, scenario) in numbered().filter(|(_, scenario)| scenario.alone) {
            outcomes.push(self.scenario(number, scenario).await);
        }
        for outcome in outcomes {
            let (name, outcome) = outcome?;
            record.scenarios.insert(name, outcome);
        }
        self.clean(&format!("{}-pulse", self.id)).await?;
        Ok(record)
    }

    async fn scenario(
        &self,
        number: usize,
        scenario: &Scenario,
    ) -> anyhow::Result<(String, Outcome)> {
        let scope = format!("{}-{number:03}", self.id);
        make_namespace(&self.api, &scope)
            .await
            .with_context(|| scenario.name.clone())?;
        let outcome = Play::new(self, scenario, scope.clone()).run().await;
        self.clean(&scope)
            .await
            .with_context(|| format!("cannot remove what {} made", scenario.name))?;
        Ok((scenario.name.clone(), outcome))
    }

    /// Waits until nothing of a scope has changed for a while, with the controllers past it.
    pub(crate) async fn settle(&self, scope: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let last = self
                .activity
                .last(scope)
                .map_or(begun, |last| last.max(begun));
            if last.elapsed() >= self.pace.quiet && self.pulse.is_past(last) {
                return Ok(());
            }
            if begun.elapsed() > self.pace.patience {
                let patience = self.pace.patience;
                bail!("it did not settle within {patience:?}: something changes all the time");
            }
            sleep(self.pace.quiet / 20).await;
        }
    }

    /// Removes everything of a scope, whatever holds it.
    async fn clean(&self, scope: &str) -> anyhow::Result<()> {
        let at_once = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        let free = json!({"metadata": {"finalizers": null}});
        let own = format!("/api/v1/namespaces/{scope}");
        let mut doomed = Vec::new();
        for kind in ["pods", "persistentvolumeclaims"] {
            let collection = format!("{own}/{kind}");
            for object in self.api.list(&collection).await? {
                doomed.push(format!("{collection}/{}", name(&object)));
            }
        }
        for collection in [
            "/api/v1/persistentvolumes",
            "/api/v1/nodes",
            "/apis/storage.k8s.io/v1/storageclasses",
            "/api/v1/namespaces",
        ] {
            for object in self.api.list(collection).await? {
                if name(&object) == scope || name(&object).starts_with(&format!("{scope}-")) {
                    doomed.push(format!("{collection}/{}", name(&object)));
                }
            }
        }
        for path in doomed {
            let answer = self.api.json("DELETE", &path, &at_once).await?;
            let held = answer.body["metadata"]["finalizers"].is_array();
            if held {
                self.api.json("PATCH", &path, &free).await?;
            }
        }
        Ok(())
    }
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Something that is different in the next run.
fn clock() -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis())
}

/// With the account that pods have: a real controller makes it, a moment later.
async fn make_namespace(api: &Api, name: &str) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let made = api.json("POST", "/api/v1/namespaces", &namespace).await?;
    if !made.is_ok() {
        bail!("cannot make the namespace {name}: {}", made.message());
    }
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
    let made = api.json("POST", &accounts, &account).await?;
    if !made.is_ok() && made.reason() != "AlreadyExists" {
        bail!("cannot make the account of {name}: {}", made.message());
    }
    Ok(())
}
