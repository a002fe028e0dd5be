//! The pod of a cleaning Job: it wipes a device beside the provisioner, and survives its process.

use std::sync::Arc;
use std::time::Duration;

use control_plane::controllers::{HOLD_TERMINATION, RUN};
use control_plane::resource;
use local_volume_provisioner::names::{ENV_DEVICE, ENV_IDENTITY, ENV_PV, LABEL_HOSTNAME};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::checks::Wipe;
use crate::found::identity;
use crate::process;
use crate::world::{NODES, World, pause};

/// Runs a new pod, if it is a Job's.
pub async fn run(world: Arc<World>, pod: Arc<Value>) {
    let Some(pv_uid) = pod["metadata"]["labels"]["pvuuid"].as_str() else {
        return;
    };
    let text = |name: &str| {
        let all = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        let variable = all.iter().find(|it| it["name"] == name).unwrap();
        variable["value"].as_str().unwrap().to_owned()
    };
    let hostname = pod["spec"]["nodeSelector"][LABEL_HOSTNAME].as_str();
    let node = NODES.iter().position(|node| Some(*node) == hostname);
    let wipe = Wipe {
        node: node.unwrap(),
        is_orphan: false,
        path: text(ENV_DEVICE),
        pv: text(ENV_PV),
        pv_uid: pv_uid.to_owned(),
        identity: text(ENV_IDENTITY),
    };
    annotate(&world, &pod, HOLD_TERMINATION, json!("true"));
    while is_running(&world, &pod) {
        pause(3000).await;
        // An image may report success and wipe nothing.
        if fastrand::u8(..8) == 0 || clean(&world, &pod, &wipe).await {
            annotate(&world, &pod, RUN, json!("succeed"));
            break;
        }
        // The kubelet starts the container again.
        sleep(Duration::from_secs(10)).await;
    }
    annotate(&world, &pod, HOLD_TERMINATION, Value::Null);
}

fn is_running(world: &World, pod: &Value) -> bool {
    let metadata = &pod["metadata"];
    let (namespace, name) = (&metadata["namespace"], &metadata["name"]);
    let (namespace, name) = (namespace.as_str().unwrap(), name.as_str().unwrap());
    let found = world.store.get(&resource::PODS, namespace, name);
    found.is_ok_and(|found| {
        let now = &found["metadata"];
        now["uid"] == metadata["uid"] && !now["deletionTimestamp"].is_string()
    })
}

fn annotate(world: &World, pod: &Value, key: &str, value: Value) {
    let metadata = &pod["metadata"];
    let (namespace, name) = (&metadata["namespace"], &metadata["name"]);
    let (namespace, name) = (namespace.as_str().unwrap(), name.as_str().unwrap());
    world.annotate(&resource::PODS, namespace, name, key, value);
}

/// Opens, locks, identifies and wipes the device.
async fn clean(world: &World, pod: &Value, wipe: &Wipe) -> bool {
    let (at, plugged) = {
        let state = world.lock();
        let slot = state.slot(wipe.node, &wipe.path).unwrap();
        let Some(at) = state.slots[slot].disk else {
            return false;
        };
        // The image of the provisioner compares the identity.
        if identity(at, &state.disks[at]) != wipe.identity {
            return false;
        }
        (at, state.disks[at].plugged)
    };
    world.answers(at).await;
    // A foreign image takes no lock.
    let is_foreign = fastrand::bool();
    let lock = if is_foreign { None } else { world.take_lock(at, None) };
    if lock.is_none() && !is_foreign {
        return false;
    }
    let is_there = || world.lock().disks[at].plugged == plugged;
    let (mut is_clean, begun) = (false, process::elapsed());
    for left in (0..fastrand::u32(1..4)).rev() {
        if !is_running(world, pod) || !is_there() {
            break;
        }
        world.lock().disks[at].wiped_since = begun;
        world.check_wipe(at, lock, wipe);
        world.lock().disks[at].is_wiped = true;
        pause(5000).await;
        world.answers(at).await;
        world.lock().disks[at].is_wiped = false;
        is_clean = left == 0 && is_there();
    }
    if is_clean {
        world.check_wipe(at, lock, wipe);
        world.wiped(at);
    }
    if let Some(lock) = lock {
        world.unlock(at, lock);
    }
    is_clean
}
