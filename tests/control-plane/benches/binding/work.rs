//! One measurement.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{Client, client::Body, core::WatchEvent};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    load::{Load, NAME},
    process,
    side::Side,
};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const NAMESPACES: &str = "/api/v1/namespaces";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
/// Requests under way at a time.
const AT_ONCE: usize = 8;
/// The longest that anything takes that is to happen at all.
const PATIENCE: Duration = Duration::from_mins(90);
/// How often both control planes look at everything again.
const RESYNC: Duration = Duration::from_secs(15);

/// What came out. Times are in seconds.
#[derive(Debug)]
pub struct Figures {
    /// From the first volume's creation until all have their phase.
    pub volumes: f64,
    /// From the first claim's creation until the last answer to a creation.
    pub created: f64,
    /// From the first claim's creation until the last of them is bound.
    pub bound: Option<f64>,
    /// From the answer to the last claim's creation.
    pub after_last: Option<f64>,
    /// CPU of the control plane, and of this process, for all that.
    pub cpu: f64,
    pub client_cpu: f64,
    /// CPU of the control plane in the time of one resync, when nothing else is done.
    pub resync: f64,
    /// Writes to anything in that time.
    pub resync_writes: u64,
    /// The most memory of any moment: the sum over the processes, in MiB.
    pub memory: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    volume_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

#[derive(Debug, Deserialize)]
struct Listing {
    metadata: ListMetadata,
    items: Vec<Object>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

fn claims() -> String {
    format!("{NAMESPACES}/{NAME}/persistentvolumeclaims")
}

pub async fn measure(side: &Side, load: Load, count: usize) -> Result<Figures> {
    let client = side.client().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}});
    send(&client, "POST", NAMESPACES, &namespace).await?;
    create(&client, CLASSES, Load::classes()).await?;
    for &process in &side.processes {
        process::forget_peak(process)?;
    }
    let cpu = || {
        side.processes
            .iter()
            .map(|&pid| process::cpu(pid))
            .sum::<Result<f64>>()
    };
    let (cpu_before, client_before) = (cpu()?, process::cpu(std::process::id())?);

    let volumes = (0..count)
        .map(|number| load.volume(number, count))
        .collect();
    let seen = watch(&client, VOLUMES, "Available").await?;
    let begun = Instant::now();
    let (created, seen) = tokio::join!(create(&client, VOLUMES, volumes), seen.wait(count));
    created?;
    let available = seen?.duration_since(begun).as_secs_f64();

    let claims = claims();
    let objects = (0..count).map(|number| load.claim(number)).collect();
    let seen = watch(&client, &claims, "Bound").await?;
    let begun = Instant::now();
    let wanted = load.bound(count);
    let (created, seen) = tokio::join!(create(&client, &claims, objects), seen.wait(wanted));
    let (created, seen) = (created?, seen?);
    let (cpu_after, client_after) = (cpu()?, process::cpu(std::process::id())?);
    check(&client, wanted).await?;

    // Whatever the creations left to do is done in the meantime.
    settle(&client).await?;
    let (before, version) = (cpu()?, revision(&client).await?);
    tokio::time::sleep(RESYNC).await;
    let resync = cpu()? - before;
    let written = revision(&client).await? - version;
    let memory = side
        .processes
        .iter()
        .map(|&pid| process::peak(pid))
        .sum::<Result<f64>>()?;
    let bound = (wanted > 0).then_some(seen);
    Ok(Figures {
        volumes: available,
        created: created.duration_since(begun).as_secs_f64(),
        bound: bound.map(|at| at.duration_since(begun).as_secs_f64()),
        after_last: bound.map(|at| at.saturating_duration_since(created).as_secs_f64()),
        cpu: cpu_after - cpu_before,
        client_cpu: client_after - client_before,
        resync,
        resync_writes: written,
        memory,
    })
}

/// Creates all, some at a time; answers when the last answer came.
async fn create(client: &Client, path: &str, objects: Vec<Value>) -> Result<Instant> {
    stream::iter(objects)
        .map(Ok)
        .try_for_each_concurrent(AT_ONCE, |object| async move {
            send(client, "POST", path, &object).await.map(drop)
        })
        .await?;
    Ok(Instant::now())
}

/// What a watch tells of the objects that reach a phase.
struct Watch<S> {
    events: S,
    phase: &'static str,
}

async fn watch(
    client: &Client,
    path: &str,
    phase: &'static str,
) -> Result<Watch<impl futures::Stream<Item = kube::Result<WatchEvent<Object>>>>> {
    let from = list(client, path).await?.metadata.resource_version;
    let seconds = PATIENCE.as_secs();
    let uri = format!("{path}?watch=1&resourceVersion={from}&timeoutSeconds={seconds}");
    let request = http(&uri, "GET", Vec::new())?;
    Ok(Watch {
        events: client.request_events(request).await?,
        phase,
    })
}

impl<S: futures::Stream<Item = kube::Result<WatchEvent<Object>>>> Watch<S> {
    /// When so many of them had reached it.
    async fn wait(self, count: usize) -> Result<Instant> {
        let mut reached = HashSet::new();
        let mut events = std::pin::pin!(self.events);
        while reached.len() < count {
            match events.try_next().await?.context("the watch has ended")? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    if object.status.phase == self.phase {
                        reached.insert(object.metadata.name);
                    }
                }
                WatchEvent::Bookmark(_) => {}
                other => bail!("the watch tells {other:?}"),
            }
        }
        Ok(Instant::now())
    }
}

/// As many claims as should be are bound, each to a volume of its own.
async fn check(client: &Client, wanted: usize) -> Result<()> {
    let claims = list(client, &claims()).await?.items;
    let bound = claims.iter().filter(|claim| claim.status.phase == "Bound");
    let (all, volumes): (Vec<_>, HashSet<_>) = bound
        .map(|claim| (claim, claim.spec.volume_name.as_str()))
        .unzip();
    ensure!(
        all.len() == wanted && volumes.len() == wanted,
        "{wanted} claims should be bound; {} are, to {} volumes",
        all.len(),
        volumes.len()
    );
    Ok(())
}

/// Waits until a second goes by without a write.
async fn settle(client: &Client) -> Result<()> {
    let begun = Instant::now();
    let mut before = revision(client).await?;
    while begun.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = revision(client).await?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
    bail!("it does not come to rest")
}

async fn revision(client: &Client) -> Result<u64> {
    let list = list(client, &format!("{NAMESPACES}?limit=1")).await?;
    Ok(list.metadata.resource_version.parse()?)
}

async fn list(client: &Client, path: &str) -> Result<Listing> {
    get(client, path).await
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T> {
    Ok(client.request(http(path, "GET", Vec::new())?).await?)
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<()> {
    let request = http(path, method, serde_json::to_vec(body)?)?.map(Body::from);
    let answer = client.send(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect_bytes().await?;
    ensure!(
        status.is_success(),
        "{method} {path}: {status} {}",
        String::from_utf8_lossy(&body)
    );
    Ok(())
}

fn http(uri: &str, method: &str, body: Vec<u8>) -> Result<hyper::Request<Vec<u8>>> {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = hyper::Request::builder().method(method).uri(uri);
    Ok(request.header("content-type", kind).body(body)?)
}

/// Deletes what was made, finalizers or not. The embedded one ends anyway.
pub async fn clean_up(side: &Side) -> Result<()> {
    if !side.is_real() {
        return Ok(());
    }
    let client = &side.client().await?;
    for path in [claims(), VOLUMES.to_owned(), CLASSES.to_owned()] {
        let items = list(client, &path).await?.items;
        let ours = items
            .into_iter()
            .filter(|object| object.metadata.name.starts_with(NAME));
        let path = &path;
        stream::iter(ours)
            .map(Ok)
            .try_for_each_concurrent(AT_ONCE, |object| async move {
                let object = format!("{path}/{}", object.metadata.name);
                send(client, "DELETE", &object, &json!({})).await?;
                // Nobody uses it, but the controllers take their time to say so.
                let free = json!({"metadata": {"finalizers": null}});
                match send(client, "PATCH", &object, &free).await {
                    Err(error) if !error.to_string().contains("404") => Err(error),
                    _ => Ok(()),
                }
            })
            .await?;
    }
    let namespace = format!("{NAMESPACES}/{NAME}");
    send(client, "DELETE", &namespace, &json!({})).await?;
    let begun = Instant::now();
    while get::<Value>(client, &namespace).await.is_ok() {
        ensure!(begun.elapsed() < PATIENCE, "{namespace} does not go");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
