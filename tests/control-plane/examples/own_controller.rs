//! A controller of another project, and its tests: it needs this crate, a Kubernetes client, and
//! nothing else of this repository.
//!
//! The controller labels every volume with the namespace of its claim. `cargo test --example
//! own_controller` runs the tests; `cargo run --example own_controller` runs it against whatever
//! `KUBECONFIG` points to.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;

const LABEL: &str = "example.com/tenant";

/// Labels volumes, for as long as it is polled.
async fn run(client: Client) {
    let volumes: Api<PersistentVolume> = Api::all(client);
    let changes = watcher(volumes.clone(), watcher::Config::default());
    let mut changes = changes.default_backoff().applied_objects().boxed();
    loop {
        match changes.try_next().await {
            Ok(Some(volume)) => label(&volumes, &volume).await,
            Ok(None) => return,
            Err(error) => eprintln!("the watch is taken up again: {error}"),
        }
    }
}

/// Tries until the label is there.
async fn label(volumes: &Api<PersistentVolume>, volume: &PersistentVolume) {
    let claim = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref());
    let tenant = claim.and_then(|claim| claim.namespace.as_deref());
    if volume.labels().get(LABEL).map(String::as_str) == tenant {
        return;
    }
    let patch = json!({"metadata": {"labels": {LABEL: tenant}}});
    while let Err(error) = volumes
        .patch(
            &volume.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await
    {
        eprintln!("tried again: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(Client::try_default().await?).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use control_plane::{
        ControlPlane, Options,
        faults::Answer,
        requests::{Request, Verb},
        resource,
    };
    use kube::Config;
    use serde_json::Value;

    use super::*;

    /// A control plane with a volume that is reserved for somebody, and the controller on it.
    struct Scene {
        control_plane: ControlPlane,
        controller: tokio::task::JoinHandle<()>,
    }

    impl Scene {
        fn new() -> Self {
            Self::with(Options::default())
        }

        fn with(options: Options) -> Self {
            let control_plane = ControlPlane::start(options).unwrap();
            let mut config = Config::new(control_plane.url().parse().unwrap());
            // So that what is counted is what the controller itself does.
            config.default_retry = false;
            let client = Client::try_from(config).unwrap();
            let controller = tokio::spawn(run(client));
            Self {
                control_plane,
                controller,
            }
        }

        fn reserve_volume(&self) {
            let volume = json!({
                "metadata": {"name": "disk"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": "/nowhere"},
                    "claimRef": {"namespace": "shop", "name": "data"},
                },
            });
            let store = self.control_plane.store();
            store
                .create(&resource::PERSISTENT_VOLUMES, "", volume)
                .unwrap();
        }

        fn label(&self) -> Value {
            let store = self.control_plane.store();
            let volume = store
                .get(&resource::PERSISTENT_VOLUMES, "", "disk")
                .unwrap();
            volume["metadata"]["labels"][LABEL].clone()
        }

        /// Waits for a request of the controller that is answered with success.
        async fn expect_success(&self, verb: Verb) {
            let requests = self.control_plane.requests();
            for _ in 0..500 {
                if requests.count(|request| request.verb == verb && request.status() == 200) > 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            panic!("no successful {verb} within five seconds");
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            self.controller.abort();
        }
    }

    #[tokio::test]
    async fn a_volume_is_labelled() {
        let scene = Scene::new();
        scene.reserve_volume();
        scene.expect_success(Verb::Patch).await;
        assert_eq!(scene.label(), "shop");
    }

    #[tokio::test]
    async fn what_fails_is_tried_again() {
        let scene = Scene::new();
        let faults = scene.control_plane.faults();
        let conflict = faults.on(Verb::Patch).times(1).answer(Answer::code(409));
        // The second time the API server does it, but nobody hears of that.
        let lost = faults.on(Verb::Patch).times(1).reset_after();
        scene.reserve_volume();
        scene.expect_success(Verb::Patch).await;
        assert_eq!((conflict.hits(), lost.hits()), (1, 1));
        assert_eq!(scene.label(), "shop");
    }

    #[tokio::test]
    async fn a_watch_that_has_expired_is_begun_anew() {
        let scene = Scene::new();
        scene.expect_success(Verb::Watch).await;
        scene.control_plane.store().compact();
        scene
            .control_plane
            .faults()
            .cut_watches("persistentvolumes");
        scene.reserve_volume();
        scene.expect_success(Verb::Patch).await;
        assert_eq!(scene.label(), "shop");
    }

    #[tokio::test]
    async fn an_idle_second_makes_no_request() {
        // With nobody else who writes: a change that comes before the label would be one more reason.
        let scene = Scene::with(Options {
            controllers: false,
            ..Options::default()
        });
        scene.reserve_volume();
        scene.expect_success(Verb::Patch).await;
        // The watch tells of the label itself, which is no reason to do anything.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let requests = scene.control_plane.requests();
        let mark = requests.mark();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let late = requests.since(mark);
        assert!(late.is_empty(), "{late:?}");
        let writes = requests.count(Request::writes);
        assert_eq!(writes, 1, "one volume, one write");
    }
}
