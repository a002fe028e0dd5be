//! What a container's process gets to see: its command line and its environment, with the
//! references in them resolved as Kubernetes does it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::controllers::object::{Pod, items, text};

/// The environment that the container declares.
pub(super) fn environment(
    pod: &Pod,
    container: &Value,
) -> Result<BTreeMap<String, String>, String> {
    let mut env = BTreeMap::from([("HOSTNAME".to_owned(), pod.name().to_owned())]);
    for variable in items(&container["env"]) {
        let source = &variable["valueFrom"];
        if !source.is_null() {
            return Err(format!("valueFrom {source} is not supported here"));
        }
        // A reference reaches the variables before it.
        let value = expand(text(&variable["value"]), &env);
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
    use super::*;

    #[test]
    fn references() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (given, expected) in [
            ("plain", "plain"),
            ("x$(A)$(A)y", "x11y"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A ${A} $", "$A ${A} $"),
            ("$(A", "$(A"),
            ("ä$(A)ö", "ä1ö"),
        ] {
            assert_eq!(expand(given, &env), expected, "{given}");
        }
    }
}
