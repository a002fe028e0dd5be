//! A bound claim that asks for more: says who has to make its volume grow, as
//! kube-controller-manager's expand controller does. It makes none grow itself, but for
//! `flexVolume`, which grows on its node alone.

use serde_json::{Value, json};

use crate::{
    controllers::{
        Change, Context, SyncError,
        object::{Claim, Key, Volume, items, list_mut, set_annotation, text},
    },
    meta,
    pv_controller::{
        PRE_RESIZE_CAPACITY,
        migration::{self, Migrated},
    },
    recorder::Severity::Normal,
    resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES},
    store::{EventKind, Part},
};

/// The name that its events carry.
const COMPONENT: &str = "volume_expand";
/// On a claim: who makes its volume grow.
const RESIZER: &str = "volume.kubernetes.io/storage-resizer";

/// Queues a bound claim that is new here, or whose request or capacity grew.
pub(crate) fn observe(cx: &mut Context, change: &Change) {
    if change.resource != &PERSISTENT_VOLUME_CLAIMS || change.kind == EventKind::Deleted {
        return;
    }
    let claim = Claim(change.object.clone());
    let grew = change.previous.as_ref().is_none_or(|previous| {
        let previous = Claim(previous.clone());
        claim.request() > previous.request() || claim.capacity() > previous.capacity()
    });
    if grew && claim.phase() == "Bound" {
        cx.queues.expansions.add(claim.key());
    }
}

/// Looks whether a claim wants more than it has.
pub(crate) fn sync(cx: &mut Context, key: &Key) -> Result<(), SyncError> {
    let Some(claim) = cx.cache.claims.get(key) else {
        return Ok(());
    };
    let Some(volume) = cx.cache.volumes.get(claim.volume_name()) else {
        return Ok(());
    };
    let is_its = |owner: &str| owner == claim.uid();
    if !volume.claim_ref().is_some_and(|owner| is_its(owner.uid)) {
        return Ok(());
    }
    let satisfied = claim.request() <= claim.capacity();
    if satisfied && volume.annotation(PRE_RESIZE_CAPACITY).is_none() {
        return Ok(());
    }
    if let Some(Migrated { plugin, driver, .. }) = migration::of_source(&volume) {
        let message = format!(
            "CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc"
        );
        tell(cx, &claim, message);
        return name_resizer(cx, claim, driver).map(drop);
    }
    if volume["spec"]["flexVolume"].is_object() {
        return grow_on_node(cx, claim, &volume);
    }
    let message = "waiting for an external controller to expand this PVC";
    tell(cx, &claim, message.to_owned());
    Ok(())
}

fn tell(cx: &mut Context, claim: &Claim, message: String) {
    let about = (&PERSISTENT_VOLUME_CLAIMS, &**claim);
    cx.tell_as(COMPONENT, about, Normal, "ExternalExpanding", message);
}

fn name_resizer(cx: &mut Context, claim: Claim, name: &str) -> Result<Claim, SyncError> {
    if claim.annotation(RESIZER) == Some(name) {
        return Ok(claim);
    }
    let mut new = (*claim.0).clone();
    set_annotation(&mut new, RESIZER, name);
    cx.update(&PERSISTENT_VOLUME_CLAIMS, new, Part::Main)
        .map(Claim)
}

/// The volume has its new size at once; the rest is the node's: the claim waits for its filesystem
/// to grow, and the volume remembers the size until then.
fn grow_on_node(cx: &mut Context, claim: Claim, volume: &Volume) -> Result<(), SyncError> {
    if volume.capacity() >= claim.request()
        && !claim["status"]["allocatedResourceStatuses"]["storage"].is_null()
    {
        return Ok(());
    }
    let driver = text(&volume["spec"]["flexVolume"]["driver"]).to_owned();
    let claim = name_resizer(cx, claim, &driver)?;
    let size = claim["spec"]["resources"]["requests"]["storage"].clone();
    let before = text(&claim["status"]["capacity"]["storage"]).to_owned();

    let claim = mark(cx, &claim, |status| {
        status["allocatedResources"]["storage"] = size.clone();
        status["allocatedResourceStatuses"]["storage"] = "ControllerResizeInProgress".into();
        add_condition(status, "Resizing", "");
    })?;
    let mut grown = (*volume.0).clone();
    grown["spec"]["capacity"]["storage"] = size;
    if volume.annotation(PRE_RESIZE_CAPACITY).is_none() {
        set_annotation(&mut grown, PRE_RESIZE_CAPACITY, &before);
    }
    cx.update(&PERSISTENT_VOLUMES, grown, Part::Main)?;
    mark(cx, &claim, |status| {
        status["allocatedResourceStatuses"]["storage"] = "NodeResizePending".into();
        add_condition(
            status,
            "FileSystemResizePending",
            "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
        );
    })?;
    Ok(())
}

fn mark(
    cx: &mut Context,
    claim: &Claim,
    edit: impl FnOnce(&mut Value),
) -> Result<Claim, SyncError> {
    let mut new = (*claim.0).clone();
    edit(&mut new["status"]);
    cx.update(&PERSISTENT_VOLUME_CLAIMS, new, Part::Status)
        .map(Claim)
}

fn add_condition(status: &mut Value, kind: &str, message: &str) {
    if items(&status["conditions"]).any(|condition| condition["type"] == kind) {
        return;
    }
    let mut condition = json!({
        "type": kind,
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": meta::now(),
    });
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    if let Some(status) = status.as_object_mut() {
        list_mut(status, "conditions").push(condition);
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        controllers::tests::{World, but, claim, volume},
        resource::{PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES},
    };
    use serde_json::{Value, json};

    /// A claim bound to a volume of this kind, after it asked for more.
    fn grown(source: &str, value: Value) -> World {
        let mut world = World::new();
        let of_kind = but(volume("v", "1Gi"), |v| {
            v["spec"].as_object_mut().unwrap().remove("local");
            v["spec"][source] = value;
        });
        world.create(&VOLUMES, of_kind);
        world.create(&CLAIMS, claim("c", "1Gi"));
        assert_eq!(world.reasons("c"), [""; 0]);
        world.change(&CLAIMS, "c", |c| {
            c["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        });
        world
    }

    #[test]
    fn who_has_to_make_a_volume_grow() {
        for (source, value, message, resizer) in [
            (
                "local",
                json!({"path": "/mnt/v"}),
                "waiting for an external controller to expand this PVC",
                None,
            ),
            (
                "csi",
                json!({"driver": "d", "volumeHandle": "h"}),
                "waiting for an external controller to expand this PVC",
                None,
            ),
            (
                "awsElasticBlockStore",
                json!({"volumeID": "v"}),
                "CSI migration enabled for kubernetes.io/aws-ebs; waiting for external resizer to \
                 expand the pvc",
                Some("ebs.csi.aws.com"),
            ),
        ] {
            let world = grown(source, value);
            assert_eq!(world.reasons("c"), ["ExternalExpanding"], "{source}");
            assert_eq!(world.messages("c"), [message], "{source}");
            let claim = world.claim("c");
            let named = &claim["metadata"]["annotations"]["volume.kubernetes.io/storage-resizer"];
            assert_eq!(named.as_str(), resizer, "{source}");
            assert_eq!(claim["status"]["capacity"]["storage"], "1Gi", "{source}");
            assert_eq!(world.volume("v")["spec"]["capacity"]["storage"], "1Gi");
        }
    }

    #[test]
    fn a_flex_volume_waits_for_its_node() {
        let mut world = grown("flexVolume", json!({"driver": "d/e"}));
        world.resync();
        let claim = world.claim("c");
        let status = &claim["status"];
        assert_eq!(status["capacity"]["storage"], "1Gi");
        assert_eq!(status["allocatedResources"]["storage"], "2Gi");
        assert_eq!(
            status["allocatedResourceStatuses"]["storage"],
            "NodeResizePending"
        );
        let kinds: Vec<_> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|condition| &condition["type"])
            .collect();
        assert_eq!(kinds, ["Resizing", "FileSystemResizePending"]);
        let volume = world.volume("v");
        assert_eq!(volume["spec"]["capacity"]["storage"], "2Gi");
        let before =
            &volume["metadata"]["annotations"]["volume.alpha.kubernetes.io/pre-resize-capacity"];
        assert_eq!(before, "1Gi");
        assert_eq!(world.reasons("c"), [""; 0]);
    }
}
