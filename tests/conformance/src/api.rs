//! Requests as they are, with the answers as they are.

use std::time::Duration;

use anyhow::Context;
use http::HeaderMap;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct Api {
    client: Client,
}

#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    /// The body: an object, a Status, or, where there are several lines of JSON, a list of them.
    pub body: Value,
}

impl Answer {
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }

    pub fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    /// The message of a Status, or the text that is not JSON.
    pub fn message(&self) -> &str {
        let message = self.body["message"].as_str().or(self.body.as_str());
        message.unwrap_or_default()
    }
}

impl Api {
    pub async fn new(kubeconfig: Kubeconfig) -> anyhow::Result<Self> {
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .context("the kubeconfig is not usable")?;
        // What a scenario is answered is what it is about.
        config.default_retry = false;
        config.read_timeout = Some(Duration::from_mins(1));
        let client = Client::try_from(config)?;
        Ok(Self { client })
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> anyhow::Result<Answer> {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body)).with_context(|| format!("{method} {path}"))?;
        let response = self.client.send(request).await;
        let (head, body) = response.with_context(|| format!("{method} {path}"))?.into_parts();
        let body = body.collect_bytes().await?;
        Ok(Answer {
            code: head.status.as_u16(),
            headers: head.headers,
            body: read(&body, path.contains("watch=")),
        })
    }

    pub async fn json(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let headers = [("content-type".to_owned(), kind.to_owned())];
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        self.send(method, path, &headers, bytes).await
    }

    /// An object; `None` if there is none.
    pub async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let answer = self.json("GET", path, &Value::Null).await?;
        match answer.code {
            200 => Ok(Some(answer.body)),
            404 => Ok(None),
            code => anyhow::bail!("GET {path}: {code} {}", answer.message()),
        }
    }

    pub async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let list = self.get(path).await?.unwrap_or_default();
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }
}

/// JSON, lines of JSON as a watch has them (an event may be the only one), or text.
fn read(body: &[u8], watch: bool) -> Value {
    match serde_json::from_slice::<Value>(body) {
        Ok(event) if watch && event["object"].is_object() => return json!([event]),
        Ok(value) => return value,
        Err(_) => {}
    }
    let lines: Result<Vec<Value>, _> =
        serde_json::Deserializer::from_slice(body).into_iter().collect();
    lines.map_or_else(|_| json!(String::from_utf8_lossy(body)), Value::Array)
}
