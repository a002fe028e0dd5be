//! Whether the DaemonSets of other installations are absent, as long as PVs of this node name them.
//!
//! Only a DaemonSet that every read has found absent counts. A failed read proves nothing, a denied one neither.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;

/// How often a DaemonSet is read within the time for which it must be absent.
const READS: u32 = 3;

/// The DaemonSets of the installations that PVs of this node name instead of ours.
#[derive(Debug)]
pub struct InstallationCache {
    cluster: Cluster,
    period: Duration,
    wake: Arc<Notify>,
    /// By installation, `<namespace>/<DaemonSet>`: for how long each read has found it absent, and the task that reads.
    /// A DaemonSet that is no longer named may come back unseen, so its entry is dropped.
    followed: BTreeMap<String, (watch::Receiver<Option<Duration>>, JoinSet<()>)>,
}

impl InstallationCache {
    /// A cache that reads a DaemonSet several times within `limit`, and notifies `wake` of changes.
    pub fn new(cluster: &Cluster, limit: Duration, wake: Arc<Notify>) -> Self {
        Self { cluster: cluster.clone(), period: limit / READS, wake, followed: BTreeMap::new() }
    }

    /// Follows the installations that PVs name, and no others.
    pub fn follow(&mut self, names: &BTreeSet<String>) {
        self.followed.retain(|name, _| names.contains(name));
        for name in names {
            self.followed.entry(name.clone()).or_insert_with(|| {
                let (known, absent_for) = watch::channel(None);
                let (cluster, wake) = (self.cluster.clone(), Arc::clone(&self.wake));
                let task = read(cluster, name.clone(), known, self.period, wake);
                (absent_for, JoinSet::from_iter([task]))
            });
        }
    }

    /// By installation, for how long each read has found its DaemonSet absent.
    pub fn absent_for(&self) -> BTreeMap<String, Duration> {
        let followed = self.followed.iter();
        let absent = followed.filter_map(|(name, (it, _))| Some((name.clone(), (*it.borrow())?)));
        absent.collect()
    }
}

async fn read(
    cluster: Cluster,
    name: String,
    known: watch::Sender<Option<Duration>>,
    period: Duration,
    wake: Arc<Notify>,
) {
    let mut since = None;
    loop {
        let asked = Instant::now();
        let is_absent = is_absent(&cluster, &name).await;
        since = is_absent.then(|| since.unwrap_or_else(Instant::now));
        let absent_for = since.map(|since| asked.saturating_duration_since(since));
        if known.send_replace(absent_for) != absent_for {
            wake.notify_one();
        }
        sleep(period).await;
    }
}

async fn is_absent(cluster: &Cluster, installation: &str) -> bool {
    // Others would change the path of the request.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let is_name = |it: &str| it.starts_with(char::is_alphanumeric) && it.bytes().all(is_plain);
    let names = installation.split_once('/');
    let Some((namespace, name)) = names.filter(|names| is_name(names.0) && is_name(names.1)) else {
        return false;
    };
    let found = cluster.daemon_set(namespace, name).await;
    if let Err(error) = &found {
        tracing::debug!(installation, %error, "reading the DaemonSet failed; its PVs are left alone");
    }
    matches!(found, Ok(None))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use kube::Client;
    use serde_json::json;

    use crate::metrics::Metrics;

    use super::*;

    const OTHER: &str = "storage/lvp";
    const LIMIT: Duration = Duration::from_mins(1);

    /// A cache, the code of the server's next answers, and the paths that were read.
    fn cache() -> (InstallationCache, watch::Sender<StatusCode>, Arc<Mutex<Vec<String>>>) {
        let (code, codes) = watch::channel(StatusCode::NOT_FOUND);
        let read = Arc::<Mutex<Vec<String>>>::default();
        let paths = Arc::clone(&read);
        let server = Router::new().fallback(move |uri: Uri| {
            paths.lock().unwrap().push(uri.path().to_owned());
            let code = *codes.borrow();
            let mut answer = json!({ "metadata": { "name": "lvp" } });
            if code != StatusCode::OK {
                let reason = code.canonical_reason().unwrap().replace(' ', "");
                answer = json!({ "status": "Failure", "reason": reason, "code": code.as_u16() });
            }
            std::future::ready((code, answer.to_string()))
        });
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(server, "default"), metrics);
        let cache = InstallationCache::new(&cluster, LIMIT, Arc::default());
        (cache, code, read)
    }

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    async fn seconds(seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn daemon_set_is_absent_only_while_each_read_finds_it_absent() {
        let (mut cache, code, read) = cache();
        seconds(100).await;
        assert_eq!(read.lock().unwrap().len(), 0, "no PV names an installation");
        cache.follow(&names([OTHER, "no-slash", "/", "../x"]));
        seconds(1).await;
        let path = "/apis/apps/v1/namespaces/storage/daemonsets/lvp".to_owned();
        assert_eq!(*read.lock().unwrap(), [path], "the others are no names");
        assert_eq!(cache.absent_for(), [(OTHER.into(), Duration::ZERO)].into());
        seconds(58).await;
        assert!(cache.absent_for()[OTHER] < LIMIT);
        seconds(2).await;
        assert!(cache.absent_for()[OTHER] >= LIMIT);
        for other in [StatusCode::OK, StatusCode::FORBIDDEN, StatusCode::INTERNAL_SERVER_ERROR] {
            code.send_replace(other);
            seconds(20).await;
            assert_eq!(cache.absent_for(), BTreeMap::new(), "{other}");
            code.send_replace(StatusCode::NOT_FOUND);
            seconds(20).await;
            assert!(cache.absent_for()[OTHER] < LIMIT, "{other}");
        }
        // It was not read for a while.
        seconds(60).await;
        cache.follow(&BTreeSet::new());
        seconds(20).await;
        let reads = read.lock().unwrap().len();
        seconds(1000).await;
        assert_eq!(read.lock().unwrap().len(), reads);
        cache.follow(&names([OTHER]));
        seconds(1).await;
        assert_eq!(cache.absent_for(), [(OTHER.into(), Duration::ZERO)].into());
    }
}
