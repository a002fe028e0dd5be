//! A client that shows the API as it is: status codes, bodies, headers, watch lines.
#![allow(dead_code, reason = "every test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use control_plane::{
    ControlPlane, Faults, Front, Options, Requests,
    front::{Answering, Upstream},
};
use http_body_util::BodyExt;
use hyper::{body::Bytes, http};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// How long anything may take that is expected to happen.
pub const SOON: Duration = Duration::from_secs(10);
/// How long nothing must happen where nothing is expected.
pub const A_MOMENT: Duration = Duration::from_millis(150);

pub const PVS: &str = "/api/v1/persistentvolumes";
pub const PVCS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub const CMS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";

pub const JSON: &str = "application/json";
pub const MERGE: &str = "application/merge-patch+json";

/// Waits until a look finds something.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A control plane and a client that neither retries nor interprets.
pub struct Api {
    pub control_plane: ControlPlane,
    pub client: Client,
    /// What the client talks to, if not to the control plane itself.
    front: Option<(Front, Runtime)>,
}

pub struct Answer {
    pub code: u16,
    pub headers: http::HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The object, of an answer that must be a success.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{}: {}", self.code, self.body);
        self.body
    }

    /// The message, of an answer that must be this error with a real Status as its body.
    #[track_caller]
    pub fn refused(self, code: u16, reason: &str) -> String {
        assert_eq!(
            (self.code, self.body["reason"].as_str()),
            (code, Some(reason)),
            "{}",
            self.body
        );
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["apiVersion"], "v1");
        assert_eq!(self.body["status"], "Failure");
        assert_eq!(self.body["code"], code);
        self.body["message"].as_str().unwrap().to_owned()
    }
}

pub async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

impl Api {
    /// An API server alone.
    pub async fn start() -> Self {
        Self::with(Options { controllers: false, ..Options::default() }).await
    }

    pub async fn with(options: Options) -> Self {
        let control_plane = ControlPlane::start(options).unwrap();
        let client = client(&control_plane.kubeconfig()).await;
        Self { control_plane, client, front: None }
    }

    /// An API server alone, and a front before it.
    pub async fn behind_a_front() -> Self {
        let mut api = Self::start().await;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let kubeconfig = api.control_plane.kubeconfig();
        let upstream = runtime.spawn(async move { Through(client(&kubeconfig).await) });
        let upstream = Arc::new(upstream.await.unwrap());
        let front = Front::start(runtime.handle(), upstream).unwrap();
        api.client = client(&front.kubeconfig()).await;
        api.front = Some((front, runtime));
        api
    }

    /// The faults that this client runs into.
    pub fn faults(&self) -> &Faults {
        let front = self.front.as_ref();
        front.map_or(self.control_plane.faults(), |(front, _)| front.faults())
    }

    /// What this client has asked.
    pub fn requests(&self) -> &Requests {
        let front = self.front.as_ref();
        front.map_or(self.control_plane.requests(), |(front, _)| front.requests())
    }

    pub fn is_behind_a_front(&self) -> bool {
        self.front.is_some()
    }

    /// One request; an error is a broken connection.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Answer, kube::Error> {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.send(request.body(Body::from(body)).unwrap()).await?;
        let (head, body) = response.into_parts();
        let body = body.collect_bytes().await?;
        Ok(Answer {
            code: head.status.as_u16(),
            headers: head.headers,
            body: serde_json::from_slice(&body)
                .unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))),
        })
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], Vec::new()).await.unwrap()
    }

    pub async fn post(&self, path: &str, object: &Value) -> Answer {
        self.with_body("POST", path, JSON, object).await
    }

    pub async fn patch(&self, path: &str, kind: &str, change: &Value) -> Answer {
        self.with_body("PATCH", path, kind, change).await
    }

    pub async fn delete(&self, path: &str, options: &Value) -> Answer {
        self.with_body("DELETE", path, JSON, options).await
    }

    pub async fn with_body(&self, method: &str, path: &str, kind: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.send(method, path, &[("content-type", kind)], bytes).await.unwrap()
    }

    /// The lines of a watch.
    pub async fn watch(&self, path: &str) -> Lines {
        self.try_watch(path, JSON).await.unwrap()
    }

    /// The lines of a watch; an error is a broken connection.
    pub async fn try_watch(&self, path: &str, accept: &str) -> Result<Lines, kube::Error> {
        let request = http::Request::get(path).header("accept", accept);
        let request = request.body(Body::empty()).unwrap();
        let response = self.client.send(request).await?;
        assert_eq!(response.status(), 200, "{path}");
        Ok(Lines { body: response.into_body(), buffer: Vec::new() })
    }
}

struct Through(Client);

impl Upstream for Through {
    fn ask(&self, request: http::Request<Bytes>) -> Answering {
        let client = self.0.clone();
        Box::pin(async move {
            let answer = client.send(request.map(Body::from)).await;
            let answer = answer.map_err(io::Error::other)?;
            Ok(answer.map(|body| body.map_err(io::Error::other).boxed_unsync()))
        })
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Some((_, runtime)) = self.front.take() {
            runtime.shutdown_background();
        }
    }
}

/// A running watch.
pub struct Lines {
    body: Body,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next line; `None` at the end of the stream, an error if it broke.
    pub async fn try_next(&mut self) -> Result<Option<Value>, kube::Error> {
        let line = tokio::time::timeout(SOON, self.line());
        line.await.expect("a line or an end within ten seconds")
    }

    async fn line(&mut self) -> Result<Option<Value>, kube::Error> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<_> = self.buffer.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).unwrap()));
            }
            match self.body.frame().await.transpose()? {
                Some(frame) => self.buffer.extend(frame.into_data().unwrap_or_default()),
                None => return Ok(None),
            }
        }
    }

    pub async fn next(&mut self) -> Value {
        self.try_next().await.unwrap().expect("another event")
    }

    /// The next event in short: its type and the object's name.
    pub async fn next_short(&mut self) -> (String, String) {
        short(&self.next().await)
    }

    /// Checks that nothing comes for a moment.
    pub async fn expect_silence(&mut self) {
        let next = tokio::time::timeout(A_MOMENT, self.line()).await;
        assert!(next.is_err(), "unexpected: {next:?}");
    }
}

pub fn short(event: &Value) -> (String, String) {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
}

pub fn is(kind: &str, name: &str) -> (String, String) {
    (kind.into(), name.into())
}

pub fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

pub fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

pub fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

pub fn volume(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"example.com/owner": "me"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "fast",
            "local": {"path": "/mnt/fast/a"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
            ]}]}},
        },
    })
}

pub fn claim(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

pub fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}
