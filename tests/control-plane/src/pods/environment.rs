//! What a container's process gets to see: its command line and its environment, with the
//! references in them resolved as Kubernetes does it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::controllers::object::{Pod, items, text};

/// The environment that the container declares.
///
/// # Errors
/// It wants something that is not known here, which is then named.
pub(super) fn environment(
    pod: &Pod,
    container: &Value,
) -> Result<BTreeMap<String, String>, String> {
    let mut env = BTreeMap::from([("HOSTNAME".to_owned(), pod.name().to_owned())]);
    if items(&container["envFrom"]).next().is_some() {
        return Err("envFrom is not supported here".to_owned());
    }
    for variable in items(&container["env"]) {
        let source = &variable["valueFrom"];
        let value = if source.is_null() {
            // A reference reaches the variables before it.
            expand(text(&variable["value"]), &env)
        } else {
            let field = source["fieldRef"]["fieldPath"].as_str();
            let known = field.and_then(|path| self::field(pod, path));
            known.ok_or_else(|| format!("valueFrom {source} is not supported here"))?
        };
        env.insert(text(&variable["name"]).to_owned(), value);
    }
    Ok(env)
}

/// `command` and `args`, expanded.
pub(super) fn command_line(container: &Value, env: &BTreeMap<String, String>) -> Vec<String> {
    items(&container["command"])
        .chain(items(&container["args"]))
        .map(|arg| expand(text(arg), env))
        .collect()
}

/// A field of the pod, by the path that the downward API has for it.
fn field(pod: &Pod, path: &str) -> Option<String> {
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        let map = match map {
            "metadata.labels" => &pod["metadata"]["labels"],
            "metadata.annotations" => &pod["metadata"]["annotations"],
            _ => return None,
        };
        return Some(text(&map[key]).to_owned());
    }
    Some(match path {
        "metadata.name" => pod.name().to_owned(),
        "metadata.namespace" => pod.namespace().to_owned(),
        "metadata.uid" => pod.uid().to_owned(),
        "spec.nodeName" => pod.node().to_owned(),
        "spec.serviceAccountName" => text(&pod["spec"]["serviceAccountName"]).to_owned(),
        // Everything is on this machine.
        "status.hostIP" | "status.hostIPs" | "status.podIP" | "status.podIPs" => {
            "127.0.0.1".to_owned()
        }
        _ => return None,
    })
}

/// Replaces `$(NAME)` by the variable's value; `$$` is a plain `$`, and what is unknown stays.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            let value = env.get(name).cloned();
            expanded.push_str(&value.unwrap_or_else(|| format!("$({name})")));
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn references() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (given, expected) in [
            ("plain", "plain"),
            ("$(A)$(A)", "11"),
            ("x$(A)y", "x1y"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A ${A} $", "$A ${A} $"),
            ("$(A", "$(A"),
            ("$()", "$()"),
            ("ä$(A)ö", "ä1ö"),
        ] {
            assert_eq!(expand(given, &env), expected, "{given}");
        }
    }

    #[test]
    fn environments() {
        let pod = Pod(Arc::new(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a/b": "l"}},
            "spec": {"nodeName": "n"},
        })));
        let from =
            |path: &str| json!({"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}});
        for (path, expected) in [
            ("metadata.name", Some("p")),
            ("metadata.namespace", Some("ns")),
            ("metadata.uid", Some("u")),
            ("metadata.labels['a/b']", Some("l")),
            ("metadata.annotations['none']", Some("")),
            ("spec.nodeName", Some("n")),
            ("status.podIP", Some("127.0.0.1")),
            ("status.qosClass", None),
            ("spec['x']", None),
        ] {
            let env = environment(&pod, &json!({"env": [from(path)]}));
            let value = env.as_ref().ok().map(|env| env["V"].as_str());
            assert_eq!(value, expected, "{path}: {env:?}");
        }
        let secret = json!({"env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "s"}}}]});
        let why = environment(&pod, &secret).unwrap_err();
        assert!(why.contains("secretKeyRef"), "{why}");
        let container = json!({
            "env": [
                {"name": "B", "value": "$(C)$(HOSTNAME)"},
                {"name": "C", "value": "$(B)!"},
                {"name": "D"},
            ],
            "command": ["run", "$(C)"],
            "args": ["$(D)", "$(E)"],
        });
        let env = environment(&pod, &container).unwrap();
        assert_eq!(
            (&*env["B"], &*env["C"], &*env["D"]),
            ("$(C)p", "$(C)p!", "")
        );
        assert_eq!(
            command_line(&container, &env),
            ["run", "$(C)p!", "", "$(E)"]
        );
    }
}
