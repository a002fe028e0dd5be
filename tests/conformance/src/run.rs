//! Runs scenarios, many at a time, and records how they end.

use std::{
    sync::atomic::AtomicUsize,
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use futures::{StreamExt, stream};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::{
    activity::Activity,
    api::Api,
    heartbeat::Heartbeat,
    outcome::{Outcome, Record},
    play::Play,
    scenario::Scenario,
};

/// How long things take on an API server.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Nothing has changed for so long: nothing more will come of it.
    pub quiet: Duration,
    /// How long a step waits for what it expects.
    pub timeout: Duration,
    pub parallel: usize,
}

impl Pace {
    /// A real cluster with the defaults of its components.
    pub const REAL: Self =
        Self { quiet: Duration::from_secs(1), timeout: Duration::from_mins(2), parallel: 48 };
}

pub struct Runner {
    pub(crate) api: Api,
    pub(crate) pace: Pace,
    /// The first word of all names of this run.
    pub(crate) id: String,
    pub(crate) activity: Activity,
    pub(crate) heartbeat: Heartbeat,
    /// Makes the names of what waits for a resync unique.
    pub(crate) resyncs: AtomicUsize,
}

impl Runner {
    pub async fn start(kubeconfig: Kubeconfig, pace: Pace) -> anyhow::Result<Self> {
        let api = Api::new(kubeconfig).await?;
        let id = format!("c{:05x}", clock() & 0xf_ffff);
        let activity = Activity::watch(&api.client()).await?;
        let namespace = format!("{id}-heartbeat");
        make_namespace(&api, &namespace).await?;
        let heartbeat = Heartbeat::start(api.clone(), namespace, pace.quiet / 3);
        Ok(Self { api, pace, id, activity, heartbeat, resyncs: AtomicUsize::new(0) })
    }

    /// Runs them all; those that need the cluster for themselves come last.
    pub async fn run(&self, scenarios: &[Scenario]) -> anyhow::Result<Record> {
        let version = self.api.get("/version").await?.unwrap_or_default();
        let server = version["gitVersion"].as_str().unwrap_or_default();
        let mut record = Record { server: server.to_owned(), ..Record::default() };
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
        self.clean(&format!("{}-heartbeat", self.id), None).await?;
        Ok(record)
    }

    async fn scenario(
        &self,
        number: usize,
        scenario: &Scenario,
    ) -> anyhow::Result<(String, Outcome)> {
        let scope = format!("{}-{number:03}", self.id);
        make_namespace(&self.api, &scope).await.with_context(|| scenario.name.clone())?;
        let outcome = Play::new(self, scenario, scope.clone()).run().await;
        self.clean(&scope, Some(scenario))
            .await
            .with_context(|| format!("cannot remove what {} made", scenario.name))?;
        Ok((scenario.name.clone(), outcome))
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
