//! Runs scenarios, many at a time, and records how they end.

use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use futures::{StreamExt, stream};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    activity::Activity,
    api::{Answer, Api},
    names::Names,
    outcome::{self, Outcome, Record},
    pulse::Pulse,
    scenario::Scenario,
    shown,
    step::{Action, Condition, Request, Step},
    target::Target,
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
        resync: Duration::from_millis(15_500),
        patience: Duration::from_mins(1),
        parallel: 32,
    };
}

/// Runs scenarios on one API server.
pub struct Runner {
    api: Api,
    pace: Pace,
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
        let mut play = Play {
            runner: self,
            scenario,
            names: Names::new(scope.clone()),
            outcome: Outcome::default(),
        };
        if let Err(error) = play.play().await {
            let failed = play.names.strip_all(&format!("{error:#}").into());
            play.outcome.failed = failed.as_str().map(str::to_owned);
        }
        let outcome = play.outcome;
        self.clean(&scope)
            .await
            .with_context(|| format!("cannot remove what {} made", scenario.name))?;
        Ok((scenario.name.clone(), outcome))
    }

    /// Waits until nothing of a scope has changed for a while, with the controllers past it.
    async fn settle(&self, scope: &str) -> anyhow::Result<()> {
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

fn name(object: &Value) -> &str {
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

/// One scenario at work.
struct Play<'a> {
    runner: &'a Runner,
    scenario: &'a Scenario,
    names: Names,
    outcome: Outcome,
}

impl Play<'_> {
    async fn play(&mut self) -> anyhow::Result<()> {
        for step in &self.scenario.steps {
            if let Action::Together(steps) = &step.action {
                for step in steps {
                    self.step(step, false).await?;
                }
                self.runner.settle(&self.names.scope).await?;
            } else {
                self.step(step, true).await?;
            }
        }
        if self.scenario.record.is_empty() {
            return Ok(());
        }
        if self.scenario.resync {
            sleep(self.runner.pace.resync).await;
        }
        self.runner.settle(&self.names.scope).await?;
        self.record().await
    }

    async fn step(&mut self, step: &Step, settle: bool) -> anyhow::Result<()> {
        let called = format!("{} {}", step.number, step.title);
        let acted = self.act(&called, &step.action, settle).await;
        acted.with_context(|| format!("step {called}"))
    }

    async fn act(&mut self, called: &str, action: &Action, settle: bool) -> anyhow::Result<()> {
        match action {
            Action::Request(request) => {
                self.request(called, request).await?;
                if settle && request.concerns_controllers {
                    self.runner.settle(&self.names.scope).await?;
                }
            }
            Action::Wait(target, condition) => self.wait(target, condition).await?,
            Action::Keep(variable, target, pointer) => {
                let path = self.names.fill(&target.path());
                let object = self.runner.api.get(&path).await?;
                let object = object.with_context(|| format!("there is no {target}"))?;
                let value = object.pointer(pointer);
                let value = value.with_context(|| format!("{target} has no {pointer}"))?;
                self.names.keep(variable.clone(), plain(value));
            }
            Action::Settle => self.runner.settle(&self.names.scope).await?,
            Action::Resync => {
                sleep(self.runner.pace.resync).await;
                self.runner.settle(&self.names.scope).await?;
            }
            Action::Together(_) => bail!("a list in a list says nothing more"),
        }
        Ok(())
    }

    async fn request(&mut self, key: &str, request: &Request) -> anyhow::Result<()> {
        let path = self.names.fill(&request.path);
        let mut headers = vec![("content-type".to_owned(), request.content_type.clone())];
        headers.extend(request.headers.clone());
        let body = match &request.body {
            Value::Null => Vec::new(),
            // Not JSON, as it is.
            Value::String(text) => self.names.fill(text).into_bytes(),
            body => self.names.fill_all(body).to_string().into_bytes(),
        };
        let api = &self.runner.api;
        let answer = api.send(request.method, &path, &headers, body).await?;
        if let Some(target) = &request.makes
            && answer.is_ok()
        {
            let uid = answer.body["metadata"]["uid"].as_str();
            self.names
                .know(uid.unwrap_or_default(), &target.to_string());
        }
        self.judge(request, &answer)?;
        for (variable, pointer) in &request.keeps {
            let value = answer.body.pointer(pointer);
            let value = value.with_context(|| format!("the answer has no {pointer}"))?;
            self.names.keep(variable.clone(), plain(value));
        }
        if request.answers.is_some() || !request.shows.is_empty() {
            let shown = self.names.strip_all(&shown::of(request, &answer));
            self.outcome.answers.insert(key.to_owned(), shown);
        }
        Ok(())
    }

    fn judge(&self, request: &Request, answer: &Answer) -> anyhow::Result<()> {
        let said = format!("{} {} {}", answer.code, answer.reason(), answer.message());
        match &request.answers {
            None if answer.is_ok() => {}
            None => bail!("was answered {said}"),
            Some(expected) => {
                let reason = expected.reason.as_deref();
                let message = self.names.fill(&expected.message);
                if answer.code != expected.code
                    || reason.is_some_and(|reason| reason != answer.reason())
                    || !answer.message().contains(&message)
                {
                    bail!("was answered {said}");
                }
            }
        }
        Ok(())
    }

    async fn wait(&mut self, target: &Target, condition: &Condition) -> anyhow::Result<()> {
        let path = self.names.fill(&target.path());
        let begun = Instant::now();
        loop {
            let object = self.runner.api.get(&path).await?;
            let is_so = match (condition, &object) {
                (Condition::Gone, object) => object.is_none(),
                (_, None) => false,
                (Condition::Phase(phase), Some(object)) => object["status"]["phase"] == **phase,
                (Condition::Has(fields), Some(object)) => {
                    contains(object, &self.names.fill_all(fields))
                }
            };
            if is_so {
                return Ok(());
            }
            if begun.elapsed() > self.runner.pace.patience {
                let is = outcome::of_object(object.as_ref(), &[], false);
                bail!("waited for {:?}; it is {is}", self.runner.pace.patience);
            }
            sleep(self.runner.pace.quiet / 10).await;
        }
    }

    async fn record(&mut self) -> anyhow::Result<()> {
        let api = &self.runner.api;
        let mut found = Vec::new();
        for target in &self.scenario.record {
            let object = api.get(&self.names.fill(&target.path())).await?;
            let events = match &object {
                None => Vec::new(),
                Some(object) => api.list(&events_of(object)).await?,
            };
            if let Some(object) = &object {
                let uid = object["metadata"]["uid"].as_str();
                self.names
                    .know(uid.unwrap_or_default(), &target.to_string());
            }
            found.push((target, object, events));
        }
        for (target, object, events) in found {
            let is = outcome::of_object(object.as_ref(), &events, self.scenario.messages);
            let is = self.names.strip_all(&is);
            self.outcome.objects.insert(target.to_string(), is);
        }
        Ok(())
    }
}

fn events_of(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    let kind = object["kind"].as_str().unwrap_or_default();
    let selector = format!(
        "involvedObject.name={},involvedObject.kind={kind}",
        name(object)
    );
    format!("/api/v1/namespaces/{namespace}/events?fieldSelector={selector}")
}

/// A value as it is put into paths and names.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether all of `part` is in `whole`. A null is a field that is not there.
fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| contains(whole.get(key).unwrap_or(&Value::Null), value)),
        part => whole == part,
    }
}
