//! The run of one scenario: its steps, and the record of its outcome.

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    api::Answer,
    names::Names,
    outcome::{self, Outcome},
    run::{Runner, name},
    scenario::Scenario,
    shown,
    step::{Action, Condition, Request, Step},
    target::Target,
};

pub(crate) struct Play<'a> {
    runner: &'a Runner,
    scenario: &'a Scenario,
    names: Names,
    outcome: Outcome,
}

impl<'a> Play<'a> {
    /// Before its first step, with a namespace of this name.
    pub(crate) fn new(runner: &'a Runner, scenario: &'a Scenario, scope: String) -> Self {
        Self { runner, scenario, names: Names::new(scope), outcome: Outcome::default() }
    }

    /// To its end, or to the step that fails.
    pub(crate) async fn run(mut self) -> Outcome {
        if let Err(error) = self.play().await {
            let failed = self.names.strip_all(&format!("{error:#}").into());
            self.outcome.failed = failed.as_str().map(str::to_owned);
        }
        self.outcome
    }

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
            self.runner.resync(&self.names.scope).await?;
        } else {
            self.runner.settle(&self.names.scope).await?;
        }
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
            Action::Resync => self.runner.resync(&self.names.scope).await?,
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
        let answer = api.send(&request.method, &path, &headers, body).await?;
        if let Some(target) = &request.makes
            && answer.is_ok()
        {
            let uid = answer.body["metadata"]["uid"].as_str();
            self.names.know(uid.unwrap_or_default(), &target.to_string());
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
            if begun.elapsed() > self.runner.pace.timeout {
                let is = outcome::of_object(object.as_ref(), &[], false);
                bail!("waited for {:?}; it is {is}", self.runner.pace.timeout);
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
                self.names.know(uid.unwrap_or_default(), &target.to_string());
            }
            found.push((target, object, events));
        }
        for (target, object, events) in found {
            let mut is = outcome::of_object(object.as_ref(), &events, self.scenario.messages);
            if !self.scenario.waiting.contains(target) {
                outcome::forget_waiting(&mut is);
            }
            let is = self.names.strip_all(&is);
            self.outcome.objects.insert(target.to_string(), is);
        }
        Ok(())
    }
}

fn events_of(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let kind = object["kind"].as_str().unwrap_or_default();
    let selector = format!("involvedObject.name={},involvedObject.kind={kind}", name(object));
    format!("/api/v1/namespaces/{namespace}/events?fieldSelector={selector}")
}

/// A value as it is put into paths and names.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
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
