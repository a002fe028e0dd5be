//! Shows the progress of the volume controller.
//!
//! It works through its queues in order, and a real one may send 20 requests a second. So the silence
//! of a volume means nothing while others wait before it. A volume and a claim of the heartbeat's own
//! that were made later than a step, and were seen to, mean that the controller is past the step.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::api::Api;

pub struct Heartbeat {
    passed: watch::Receiver<Option<Instant>>,
    task: JoinHandle<()>,
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Heartbeat {
    pub fn start(api: Api, namespace: String, pause: Duration) -> Self {
        let (sender, passed) = watch::channel(None);
        let sender = Arc::new(sender);
        let task = tokio::spawn(async move {
            for number in 0_u64.. {
                let begun = Instant::now();
                if beat(&api, &namespace, number, pause).await.is_ok() {
                    sender.send_replace(Some(begun));
                }
                sleep(pause).await;
            }
        });
        Self { passed, task }
    }

    /// Whether the controller is past everything that was known at this moment.
    pub fn is_past(&self, moment: Instant) -> bool {
        self.passed.borrow().is_some_and(|passed| passed > moment)
    }
}

/// A volume that only the claim of the same name fits.
pub(crate) fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"], "storageClassName": name,
                 "hostPath": {"path": "/conformance"}},
    })
}

/// A claim that only the volume of the same name fits.
pub(crate) fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"resources": {"requests": {"storage": "1"}}, "accessModes": ["ReadWriteOnce"],
                 "storageClassName": name},
    })
}

/// A volume becomes Available, and a claim that seems to be bound to nothing becomes Lost: one write
/// of the controller each.
async fn beat(api: &Api, namespace: &str, number: u64, pause: Duration) -> anyhow::Result<()> {
    let name = format!("{namespace}-{number}");
    let volumes = "/api/v1/persistentvolumes";
    let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    let mut claim = claim(&name);
    claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    claim["spec"]["volumeName"] = json!(format!("{name}-nowhere"));
    let made = [(volumes, volume(&name), "Available"), (claims.as_str(), claim, "Lost")];
    for (collection, object, _) in &made {
        api.json("POST", collection, object).await?;
    }
    for (collection, _, phase) in &made {
        let path = format!("{collection}/{name}");
        while api.get(&path).await?.is_some_and(|object| object["status"]["phase"] != *phase) {
            sleep(pause / 4).await;
        }
    }
    for (collection, _, _) in &made {
        let path = format!("{collection}/{name}");
        api.json("DELETE", &path, &Value::Null).await?;
    }
    Ok(())
}
