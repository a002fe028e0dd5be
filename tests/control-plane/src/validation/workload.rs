//! Pods and Jobs: only what no client could do without.

use serde_json::Value;

use super::one_of;
use crate::status::Cause;

pub(super) fn pod_spec(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    for (i, container) in containers.iter().enumerate() {
        for field in ["name", "image"] {
            if container[field].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::required(format!("{path}.containers[{i}].{field}"), ""));
            }
        }
    }
    let policies = ["Always", "OnFailure", "Never"];
    one_of(spec, "restartPolicy", &format!("{path}."), &policies, causes);
}

pub(super) fn job(spec: &Value, causes: &mut Vec<Cause>) {
    let pod = &spec["template"]["spec"];
    pod_spec(pod, "spec.template.spec", causes);
    let policy = &pod["restartPolicy"];
    if policy == "Always" {
        let field = "spec.template.spec.restartPolicy";
        let detail = "valid values: \"OnFailure\", \"Never\"";
        causes.push(Cause::required(field, detail));
    }
    for field in ["parallelism", "completions", "backoffLimit"] {
        if spec[field].as_i64().is_some_and(|n| n < 0) {
            let detail = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("spec.{field}"), &spec[field], detail));
        }
    }
}

/// What a Job runs is fixed when it is created.
pub(super) fn job_change(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    for field in ["completions", "selector", "template", "completionMode", "podFailurePolicy"] {
        if old[field] != new[field] {
            let path = format!("spec.{field}");
            causes.push(Cause::invalid(path, &new[field], "field is immutable"));
        }
    }
}
