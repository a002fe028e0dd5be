use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use kube::Client;
use serde_json::{Value, json};

use crate::metrics::Metrics;

use super::*;

/// What the API server has: the UIDs of kube-system, of our Pod and of a PV, each with the code of the answer.
#[derive(Clone, Debug)]
struct Served {
    cluster: (u16, &'static str),
    pod: (u16, &'static str),
    pv: (u16, &'static str),
}

const OURS: Served = Served { cluster: (200, "cluster"), pod: (200, "pod"), pv: (200, "pv") };

struct World {
    cluster: Cluster,
    served: Arc<Mutex<Served>>,
    requests: Arc<Mutex<Vec<(Method, String)>>>,
}

impl World {
    fn serve(served: Served) -> Self {
        let served = Arc::new(Mutex::new(served));
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let (now, seen) = (Arc::clone(&served), Arc::clone(&requests));
        let router = Router::new().fallback(move |method: Method, uri: Uri| {
            let path = uri.path().to_owned();
            seen.lock().push((method.clone(), path.clone()));
            let now = now.lock().clone();
            let (code, uid) = match &*path {
                "/api/v1/namespaces/kube-system" => now.cluster,
                "/api/v1/namespaces/here/pods/provisioner" => now.pod,
                _ if method == Method::GET => now.pv,
                _ => (201, "new"),
            };
            let answer: Value = match code {
                200 | 201 if uid.is_empty() => {
                    json!({ "metadata": { "name": "it" }, "spec": {} })
                }
                200 | 201 => json!({ "metadata": { "name": "it", "uid": uid }, "spec": {} }),
                403 => json!({
                    "status": "Failure", "reason": "Forbidden", "code": code,
                    "message": r#"it is forbidden: User "lvp" cannot get it"#,
                }),
                _ => json!({ "status": "Failure", "reason": "NotFound", "code": code }),
            };
            std::future::ready((StatusCode::from_u16(code).unwrap(), answer.to_string()))
        });
        let metrics = Arc::new(Metrics::new().unwrap());
        let cluster = Cluster::new(Client::new(router, "default"), metrics);
        let pod = ObjectReference {
            namespace: Some("here".to_owned()),
            name: Some("provisioner".to_owned()),
            uid: Some("pod".to_owned()),
            ..ObjectReference::default()
        };
        cluster.origin.compare(&pod, true);
        Self { cluster, served, requests }
    }

    fn lead_to(&self, served: Served) {
        *self.served.lock() = served;
    }

    async fn write(&self) -> Result<(), ApiError> {
        let pv = json!({ "metadata": { "name": "new" } });
        self.cluster.create_pv(&pv).await.map(drop)
    }

    fn writes(&self) -> usize {
        let requests = self.requests.lock();
        let writes = requests.iter().filter(|(it, _)| *it != Method::GET);
        writes.count()
    }
}

fn others() -> [Served; 5] {
    let gone = (404, "");
    [
        Served { cluster: (200, "another"), ..OURS },
        Served { cluster: gone, ..OURS },
        Served { pod: gone, ..OURS },
        Served { pod: (200, "another"), ..OURS },
        Served { cluster: (200, "another"), pod: gone, pv: gone },
    ]
}

#[tokio::test]
async fn missing_pv_and_writes_count_only_in_our_cluster() {
    let without_pv = Served { pv: (404, ""), ..OURS };
    for other in others() {
        let world = World::serve(without_pv.clone());
        world.write().await.unwrap();
        assert!(world.cluster.pv("pv").await.unwrap().is_none());
        world.lead_to(Served { pv: (404, ""), ..other.clone() });
        let error = world.cluster.pv("pv").await.unwrap_err();
        assert!(error.is_passing(), "{other:?}: {error}");
        let why = world.cluster.origin.other().unwrap();
        let error = world.write().await.unwrap_err();
        assert!(error.is_passing() && error.to_string().contains(&why), "{error}");
        assert_eq!(world.writes(), 1, "{other:?}");
        // Reads go on.
        world.lead_to(other.clone());
        let found = world.cluster.pv("pv").await;
        assert_eq!(found.is_ok(), other.pv.0 == 200, "{other:?}");
        world.lead_to(OURS);
        world.write().await.unwrap();
        assert_eq!(world.cluster.origin.other(), None);
    }
}

#[tokio::test]
async fn check_follows_a_failed_connection_and_no_other_write() {
    let world = World::serve(OURS);
    world.write().await.unwrap();
    let before = world.requests.lock().len();
    world.write().await.unwrap();
    assert_eq!(world.requests.lock().len(), before + 1);
    for other in others() {
        world.cluster.ensure_known().await.unwrap();
        world.lead_to(other.clone());
        world.cluster.origin.doubt("the connection failed");
        assert_eq!(world.cluster.origin.other(), None);
        world.write().await.unwrap_err();
        assert_eq!(world.writes(), 2, "{other:?}");
        world.lead_to(OURS);
    }
}

#[tokio::test]
async fn only_what_may_be_read_is_compared() {
    let denied = (403, "");
    for (start, later, is_known) in [
        (Served { pod: denied, ..OURS }, Served { pod: (404, ""), ..OURS }, false),
        (Served { pod: denied, ..OURS }, Served { pod: denied, ..OURS }, true),
        (Served { cluster: denied, ..OURS }, OURS, true),
        (
            Served { cluster: denied, pod: denied, ..OURS },
            Served { cluster: denied, pod: denied, ..OURS },
            true,
        ),
        (
            Served { pod: denied, ..OURS },
            Served { cluster: (200, "another"), pod: denied, ..OURS },
            false,
        ),
        // As an API server that starts answers.
        (OURS, Served { cluster: denied, pod: denied, ..OURS }, false),
    ] {
        let world = World::serve(start);
        world.cluster.ensure_known().await.unwrap();
        world.lead_to(later.clone());
        let known = world.cluster.ensure_known().await;
        assert_eq!(known.is_ok(), is_known, "{later:?}: {known:?}");
    }
}

#[tokio::test]
async fn uid_of_a_cluster_without_our_pod_is_not_recorded() {
    let world = World::serve(Served { cluster: (200, "another"), pod: (404, ""), ..OURS });
    world.cluster.ensure_known().await.unwrap_err();
    world.lead_to(OURS);
    world.cluster.ensure_known().await.unwrap();
    assert_eq!(world.cluster.origin.uid().as_deref(), Some("cluster"));
}

#[tokio::test]
async fn response_without_a_uid_is_a_failed_request() {
    let world = World::serve(OURS);
    world.write().await.unwrap();
    for served in [
        Served { pv: (200, ""), ..OURS },
        Served { pv: (404, ""), pod: (200, ""), ..OURS },
        Served { pv: (404, ""), cluster: (200, ""), ..OURS },
    ] {
        world.lead_to(served.clone());
        let error = world.cluster.pv("pv").await.unwrap_err();
        assert!(error.is_passing(), "{served:?}: {error}");
        assert_eq!(world.cluster.origin.other(), None, "{served:?}");
    }
}
