//! Makes the claims of generic ephemeral volumes: each belongs to its pod, and goes with it.

use serde_json::{Value, json};

use crate::{
    controllers::{
        Change, Context, SyncError,
        object::{Key, Pod, controller, items, text},
    },
    recorder::Severity::Warning,
    resource::{PERSISTENT_VOLUME_CLAIMS, PODS},
    store::EventKind,
};

/// The name that its events carry.
const COMPONENT: &str = "ephemeral_volume";

/// Queues what a change concerns.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    if change.resource == &PODS && change.kind != EventKind::Deleted {
        let pod = Pod(change.object.clone());
        if pod.claims_with_origin().any(|(_, own)| own) {
            cx.queues.ephemeral.add(pod.key());
        }
    } else if change.resource == &PERSISTENT_VOLUME_CLAIMS && change.kind == EventKind::Deleted {
        for pod in cx.cache.users(&Key::of(&change.object)) {
            cx.queues.ephemeral.add(pod.key());
        }
    }
}

/// Makes the claims that a pod lacks.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(pod) = cx.cache.pods.get(key).cloned() else {
        return Ok(());
    };
    if pod.is_terminating() {
        return Ok(());
    }
    for volume in items(&pod["spec"]["volumes"]) {
        if volume["ephemeral"].is_object() {
            make(cx, &pod, volume)?;
        }
    }
    Ok(())
}

fn make(cx: &mut Context, pod: &Pod, volume: &Value) -> Result<(), SyncError> {
    let name = text(&volume["name"]);
    let key = Key::new(pod.namespace(), &format!("{}-{name}", pod.name()));
    let present = cx.read(&PERSISTENT_VOLUME_CLAIMS, &key)?;
    let why = match present {
        Some(claim) if belongs_to(&claim, pod) => return Ok(()),
        Some(_) => format!(
            "PVC {key} was not created for pod {} (pod is not owner)",
            pod.key()
        ),
        None => {
            let claim = claim_of(pod, &key, &volume["ephemeral"]["volumeClaimTemplate"]);
            let made = cx
                .store
                .create(&PERSISTENT_VOLUME_CLAIMS, &key.namespace, claim);
            match made {
                Ok(made) => {
                    cx.cache.store(&PERSISTENT_VOLUME_CLAIMS, &made);
                    return Ok(());
                }
                Err(status) => format!("create PVC {}: {}", key.name, status.message),
            }
        }
    };
    let about = (&PODS, &**pod);
    let message = format!("ephemeral volume {name}: {why}");
    cx.tell_as(COMPONENT, about, Warning, "FailedBinding", message);
    Err(SyncError::Ephemeral {
        pod: pod.key(),
        volume: name.to_owned(),
        why,
    })
}

/// Whether a claim was made for this very pod.
pub(crate) fn belongs_to(claim: &Value, pod: &Pod) -> bool {
    controller(claim).is_some_and(|owner| owner["uid"] == pod.uid())
}

fn claim_of(pod: &Pod, key: &Key, template: &Value) -> Value {
    json!({
        "metadata": {
            "name": *key.name,
            "annotations": template["metadata"]["annotations"],
            "labels": template["metadata"]["labels"],
            "ownerReferences": [{
                "apiVersion": PODS.api_version(),
                "kind": PODS.kind,
                "name": pod.name(),
                "uid": pod.uid(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": template["spec"],
    })
}

#[cfg(test)]
mod tests {
    use crate::{
        controllers::tests::{World, but, claim, class, pod, volume},
        resource::{
            PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES, PODS,
            STORAGE_CLASSES as CLASSES,
        },
        store::DeleteOptions,
    };
    use serde_json::{Value, json};

    fn ephemeral(name: &str) -> Value {
        but(pod(name, &[]), |p| {
            p["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
                "metadata": {"labels": {"for": "tests"}},
                "spec": claim("x", "1Gi")["spec"],
            }}}]);
        })
    }

    #[test]
    fn a_pod_gets_its_claim_and_takes_it_along() {
        let mut world = World::new();
        world.add_node("n1");
        world.create(&CLASSES, class("fast", "WaitForFirstConsumer"));
        world.create(&VOLUMES, volume("v", "1Gi"));
        let pod = world.create(&PODS, ephemeral("p"));
        assert_eq!(world.bound("p-scratch").as_deref(), Some("v"));
        let made = world.claim("p-scratch");
        assert_eq!(made["metadata"]["labels"]["for"], "tests");
        let owner = &made["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], pod["metadata"]["uid"]);
        assert_eq!(world.phase(&PODS, "p"), "Running");
        world.delete(&PODS, "p");
        assert!(world.get(&CLAIMS, "p-scratch").is_none());
        assert_eq!(world.phase(&VOLUMES, "v"), "Released");
    }

    #[test]
    fn a_claim_of_somebody_else_is_not_taken() {
        let mut world = World::new();
        world.add_node("n1");
        world.create(&CLASSES, class("fast", "WaitForFirstConsumer"));
        world.create(&CLAIMS, claim("p-scratch", "1Gi"));
        world.create(&PODS, ephemeral("p"));
        assert_eq!(world.reasons("p"), ["FailedBinding", "FailedScheduling"]);
        let why = "PVC default/p-scratch was not created for pod default/p (pod is not owner)";
        assert!(
            world
                .messages("p")
                .contains(&format!("ephemeral volume scratch: {why}"))
        );
        assert_eq!(world.bound("p-scratch"), None);
    }

    /// A pod that waits for its claim to go, and a claim that waits for its pod.
    #[test]
    fn a_pod_that_was_shut_down_protects_only_the_claims_of_others() {
        let mut world = World::new();
        world.add_node("n1");
        world.create(&CLASSES, class("fast", "WaitForFirstConsumer"));
        for name in ["v", "w"] {
            world.create(&VOLUMES, volume(name, "1Gi"));
        }
        world.create(&CLAIMS, claim("c", "1Gi"));
        let held = but(ephemeral("p"), |p| {
            p["metadata"]["finalizers"] = json!(["example.com/held"]);
            let shared = json!({"name": "shared", "persistentVolumeClaim": {"claimName": "c"}});
            p["spec"]["volumes"].as_array_mut().unwrap().push(shared);
        });
        world.create(&PODS, held);
        world.delete(&CLAIMS, "p-scratch");
        world.delete(&CLAIMS, "c");
        assert!(world.get(&CLAIMS, "p-scratch").is_some(), "in use");
        let at_once = DeleteOptions {
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        world.delete_with(&PODS, "p", &at_once);
        assert!(world.get(&PODS, "p").is_some(), "held");
        assert!(world.get(&CLAIMS, "p-scratch").is_none());
        assert!(world.get(&CLAIMS, "c").is_some());
    }
}
