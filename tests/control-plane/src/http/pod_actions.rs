//! What is done to a pod by a POST to one of its subresources: `binding` and `eviction`.

use hyper::Response;
use serde_json::{Value, json};

use super::{Call, Server, answer, body::Body, delete, route::Target};
use crate::{
    controllers::object::text,
    meta, resource,
    status::{Cause, Status},
    store::Part,
};

/// Puts a pod on a node, which happens once.
pub(super) fn bind(
    server: &Server,
    target: &Target,
    call: &Call,
) -> Result<Response<Body>, Status> {
    let binding = call.object()?;
    let node = text(&binding["target"]["name"]);
    if node.is_empty() {
        let cause = Cause::required("target.name", "");
        return Err(Status::invalid(&resource::PODS, &target.name, &[cause]));
    }
    let dry_run = call.query.dry_run()?;
    let change = |part: Part, change: &dyn Fn(&Value) -> Result<Value, Status>| {
        let (r, ns, name) = (target.resource, &target.namespace, &target.name);
        server.store.modify(r, ns, name, part, dry_run, change)
    };
    change(Part::Main, &|pod| {
        let name = meta::name(pod);
        let assigned = text(&pod["spec"]["nodeName"]);
        if !assigned.is_empty() {
            let why = format!("pod {name} is already assigned to node {assigned:?}");
            let message = format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}");
            return Err(Status::new(409, "Conflict", message));
        }
        let mut bound = pod.clone();
        bound["spec"]["nodeName"] = node.into();
        Ok(bound)
    })?;
    change(Part::Status, &|pod| {
        let mut pod = pod.clone();
        let condition = json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": meta::now(),
        });
        let status = meta::child_mut(&mut pod, "status");
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Value::Array(conditions) = conditions {
            conditions.retain(|c| c["type"] != "PodScheduled");
            conditions.push(condition);
        }
        Ok(pod)
    })?;
    answer::json(201, &success())
}

/// Deletes a pod, with the options of the eviction. No budget stands against it here.
pub(super) fn evict(
    server: &Server,
    target: &Target,
    call: &Call,
) -> Result<Response<Body>, Status> {
    let eviction = call.object()?;
    let options = delete::options_of(&eviction["deleteOptions"], call)?;
    let (r, ns) = (target.resource, &target.namespace);
    server.store.delete(r, ns, &target.name, &options)?;
    answer::json(201, &success())
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
