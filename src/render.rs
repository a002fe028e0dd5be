//! From a plan's drafts to API objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::names::{FINALIZER, LABEL_HOSTNAME};
use crate::plan::{Patch, PvDraft};
use crate::quantity;

/// The PV, under the draft's first name.
#[must_use]
pub fn persistent_volume(draft: &PvDraft) -> PersistentVolume {
    let own_node = NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: LABEL_HOSTNAME.into(),
            operator: "In".into(),
            values: Some(vec![draft.hostname.clone()]),
        }]),
        match_fields: None,
    };
    let terms = std::iter::once(own_node)
        .chain(draft.selector.iter().cloned())
        .collect();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(draft.name.clone()),
            labels: Some(draft.labels.clone()),
            annotations: Some(draft.annotations.clone()),
            finalizers: draft.finalizer.then(|| vec![FINALIZER.into()]),
            owner_references: draft.owner.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(vec![draft.access_mode.to_string()]),
            capacity: Some(BTreeMap::from([(
                "storage".into(),
                Quantity(quantity::format(draft.capacity)),
            )])),
            local: Some(LocalVolumeSource {
                fs_type: draft.fs_type.clone(),
                path: draft.path.as_str().into(),
            }),
            mount_options: (!draft.mount_options.is_empty()).then(|| draft.mount_options.clone()),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector {
                    node_selector_terms: terms,
                }),
            }),
            persistent_volume_reclaim_policy: Some(draft.policy.as_str().into()),
            storage_class_name: Some(draft.class.clone()),
            volume_mode: Some(draft.mode.as_str().into()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// What to merge into the PV.
#[must_use]
pub fn patched(patch: &Patch) -> Value {
    let mut metadata = json!({});
    for (key, value) in &patch.annotations {
        metadata["annotations"][*key] = json!(value);
    }
    if let Some(hostname) = &patch.hostname_label {
        metadata["labels"][LABEL_HOSTNAME] = json!(hostname);
    }
    if let Some(finalizers) = &patch.finalizers {
        metadata["finalizers"] = json!(finalizers);
    }
    if let Some(owners) = &patch.owners {
        metadata["ownerReferences"] = json!(owners);
    }
    let mut patched = json!({ "metadata": metadata });
    if let Some(bytes) = patch.capacity {
        patched["spec"]["capacity"]["storage"] = quantity::format(bytes).into();
    }
    patched
}
