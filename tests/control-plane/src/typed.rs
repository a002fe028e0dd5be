//! Which fields each type has, and of what type they are: k8s-openapi knows.
//!
//! A field that there is not is dropped, as a decoder into typed objects does, and told.

use k8s_openapi::{
    api::{apps, batch, coordination, core, events, rbac, storage},
    serde::{Serialize, de::DeserializeOwned},
};
use serde_json::Value;

use crate::resource::{self, Resource};

/// Drops what `r` does not know, and answers the paths of it.
///
/// # Errors
/// A field is of another type; the text says which type was wanted.
pub(crate) fn prune(r: &'static Resource, object: &mut Value) -> Result<Vec<String>, String> {
    let mut plain = object.clone();
    plain["apiVersion"] = r.api_version().into();
    plain["kind"] = r.kind.into();
    simplify(&mut plain);
    let known = known(r, plain)?;
    let mut unknown = Vec::new();
    retain(object, &known, "", &mut unknown);
    Ok(unknown)
}

/// To the type of a resource and back.
type Through = fn(Value) -> serde_json::Result<Value>;

/// The object with the fields that its type has. A type without a row here is taken as it is.
fn known(r: &'static Resource, object: Value) -> Result<Value, String> {
    let types: &[(&Resource, Through)] = &[
        (&resource::CONFIG_MAPS, through::<core::v1::ConfigMap>),
        (&resource::EVENTS, through::<core::v1::Event>),
        (&resource::NAMESPACES, through::<core::v1::Namespace>),
        (&resource::NODES, through::<core::v1::Node>),
        (
            &resource::PERSISTENT_VOLUME_CLAIMS,
            through::<core::v1::PersistentVolumeClaim>,
        ),
        (
            &resource::PERSISTENT_VOLUMES,
            through::<core::v1::PersistentVolume>,
        ),
        (&resource::PODS, through::<core::v1::Pod>),
        (&resource::SECRETS, through::<core::v1::Secret>),
        (
            &resource::SERVICE_ACCOUNTS,
            through::<core::v1::ServiceAccount>,
        ),
        (&resource::SERVICES, through::<core::v1::Service>),
        (&resource::DAEMON_SETS, through::<apps::v1::DaemonSet>),
        (&resource::DEPLOYMENTS, through::<apps::v1::Deployment>),
        (&resource::JOBS, through::<batch::v1::Job>),
        (&resource::LEASES, through::<coordination::v1::Lease>),
        (&resource::EVENTS_V1, through::<events::v1::Event>),
        (
            &resource::CLUSTER_ROLE_BINDINGS,
            through::<rbac::v1::ClusterRoleBinding>,
        ),
        (&resource::CLUSTER_ROLES, through::<rbac::v1::ClusterRole>),
        (&resource::ROLE_BINDINGS, through::<rbac::v1::RoleBinding>),
        (&resource::ROLES, through::<rbac::v1::Role>),
        (
            &resource::STORAGE_CLASSES,
            through::<storage::v1::StorageClass>,
        ),
    ];
    match types.iter().find(|(known, _)| *known == r) {
        Some((_, through)) => through(object).map_err(|error| error.to_string()),
        None => Ok(object),
    }
}

fn through<T: DeserializeOwned + Serialize>(object: Value) -> serde_json::Result<Value> {
    serde_json::to_value(serde_json::from_value::<T>(object)?)
}

/// Nulls are fields that are not there, and quantities may be written as numbers.
fn simplify(value: &mut Value) {
    const QUANTITIES: [&str; 5] = [
        "capacity",
        "requests",
        "limits",
        "allocatable",
        "allocatedResources",
    ];
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            for (key, value) in fields {
                match value {
                    Value::Object(amounts) if QUANTITIES.contains(&key.as_str()) => {
                        for amount in amounts.values_mut().filter(|a| a.is_number()) {
                            *amount = amount.to_string().into();
                        }
                    }
                    value => simplify(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

fn retain(value: &mut Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.retain(|key, value| {
            let path = match path {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            if value.is_null() {
                return true;
            }
            let Some(known) = known.get(key) else {
                unknown.push(path);
                return false;
            };
            retain(value, known, &path, unknown);
            true
        }),
        Value::Array(items) => {
            // An item that is null was left out of what is known.
            let items = items.iter_mut().filter(|item| !item.is_null());
            for (i, (item, known)) in items
                .zip(known.as_array().into_iter().flatten())
                .enumerate()
            {
                retain(item, known, &format!("{path}[{i}]"), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_go() {
        let mut volume = json!({
            "metadata": {"name": "a", "lables": {}, "labels": {"x": "1"}, "annotations": null},
            "spec": {"capacity": {"storage": 5}, "storageClass": "x", "accessModes": [],
                     "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpression": []}]}}},
        });
        let unknown = prune(&resource::PERSISTENT_VOLUMES, &mut volume);
        let list = "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpression";
        let expected = ["metadata.lables", list, "spec.storageClass"];
        assert_eq!(unknown, Ok(expected.map(str::to_owned).to_vec()));
        assert_eq!(volume["spec"]["capacity"], json!({"storage": 5}));
        assert_eq!(volume["metadata"]["labels"], json!({"x": "1"}));
        assert!(volume["spec"].get("storageClass").is_none());
    }

    #[test]
    fn other_types_are_told() {
        let mut map = json!({"data": {"x": 1}});
        let error = prune(&resource::CONFIG_MAPS, &mut map).unwrap_err();
        assert!(error.contains("expected a string"), "{error}");
    }

    #[test]
    fn every_type_has_its_fields() {
        for r in resource::all() {
            let mut object = json!({"metadata": {"name": "a"}, "no-such-field": 1});
            let unknown = prune(r, &mut object);
            assert_eq!(
                unknown,
                Ok(vec!["no-such-field".to_owned()]),
                "{}",
                r.qualified()
            );
        }
    }
}
