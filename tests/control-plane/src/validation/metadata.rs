//! Names, labels, annotations, finalizers and owner references.

use serde_json::Value;

use crate::{
    meta,
    resource::{self, Resource},
    status::Cause,
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an \
    optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const TOO_LONG_63: &str = "must be no more than 63 characters";
const TOO_LONG_253: &str = "must be no more than 253 characters";
/// All keys and values together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The first field of the metadata that is not of the JSON type it has to be.
pub(crate) fn mistyped(object: &Value) -> Option<&'static str> {
    let metadata = &object["metadata"];
    if metadata.is_null() {
        return None;
    }
    if !metadata.is_object() {
        return Some("");
    }
    let string = |v: &Value| v.is_null() || v.is_string();
    let strings = |v: &Value| v.as_array().is_some_and(|a| a.iter().all(Value::is_string));
    let map = |v: &Value| v.as_object().is_some_and(|m| m.values().all(string));
    for field in ["name", "generateName", "namespace", "uid", "resourceVersion"] {
        if !string(&metadata[field]) {
            return Some(field);
        }
    }
    let bad_map = |field| !metadata[field].is_null() && !map(&metadata[field]);
    ["labels", "annotations"].into_iter().find(|f| bad_map(*f)).or_else(|| {
        let finalizers = &metadata["finalizers"];
        (!finalizers.is_null() && !strings(finalizers)).then_some("finalizers")
    })
}

/// Checks the metadata of an object on its way in.
pub(crate) fn metadata(r: &'static Resource, object: &Value, causes: &mut Vec<Cause>) {
    let name = meta::name(object);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(fault) = object_name(r, name) {
        causes.push(Cause::invalid("metadata.name", &object["metadata"]["name"], fault));
    }
    let metadata = &object["metadata"];
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        if let Some(fault) = qualified_name(key) {
            causes.push(Cause::invalid("metadata.labels", &Value::from(key.as_str()), fault));
        }
        if let Some(fault) = label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid("metadata.labels", value, fault));
        }
    }
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        // Kubernetes is lenient about case here, for the sake of old annotations.
        if let Some(fault) = qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &Value::from(key.as_str()), fault));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS {
        let detail = format!("may not be more than {MAX_ANNOTATIONS} bytes");
        causes.push(Cause::too_long("metadata.annotations", &detail));
    }
    for (i, finalizer) in meta::finalizers(object).enumerate() {
        if let Some(fault) = finalizer_name(finalizer) {
            causes.push(Cause::invalid(
                format!("metadata.finalizers[{i}]"),
                &Value::from(finalizer),
                fault,
            ));
        }
    }
    owners(&metadata["ownerReferences"], causes);
}

fn owners(owners: &Value, causes: &mut Vec<Cause>) {
    for (i, owner) in owners.as_array().into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences[{i}].{field}");
                causes.push(Cause::required(path, "must not be empty"));
            }
        }
    }
}

fn object_name(r: &'static Resource, name: &str) -> Option<&'static str> {
    if r == &resource::NAMESPACES || r == &resource::SERVICES {
        return label(name);
    }
    if r.group == "rbac.authorization.k8s.io" {
        return match name {
            "." | ".." => Some("may not be '.' or '..'"),
            _ if name.contains(['/', '%']) => Some("may not contain '/' or '%'"),
            _ => None,
        };
    }
    subdomain(name)
}

/// Why `name` is no DNS-1123 subdomain.
pub(super) fn subdomain(name: &str) -> Option<&'static str> {
    if name.len() > 253 {
        return Some(TOO_LONG_253);
    }
    (!name.split('.').all(is_label)).then_some(SUBDOMAIN)
}

/// Why `name` is no DNS-1123 label.
fn label(name: &str) -> Option<&'static str> {
    if name.len() > 63 {
        return Some(TOO_LONG_63);
    }
    let parts_fit = || name.split('.').all(is_label);
    match is_label(name) {
        true => None,
        false if parts_fit() => Some("must not contain dots"),
        false => Some(LABEL),
    }
}

fn is_label(part: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
}

/// Why `key` is no qualified name, `[subdomain/]name`.
pub(crate) fn qualified_name(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.contains('/') {
        return Some(LABEL_KEY);
    }
    if name.is_empty() {
        return Some("name part must be non-empty");
    }
    if let Some(fault) = prefix.and_then(subdomain) {
        return Some(fault);
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes");
    }
    (!is_name_part(name)).then_some(QUALIFIED)
}

fn label_value(value: &str) -> Option<&'static str> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!value.is_empty() && !is_name_part(value)).then_some(LABEL_VALUE)
}

fn is_name_part(part: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = part.as_bytes();
    part.bytes().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

fn finalizer_name(name: &str) -> Option<&'static str> {
    const STANDARD: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];
    qualified_name(name).or_else(|| {
        (!name.contains('/') && !STANDARD.contains(&name))
            .then_some("name is neither a standard finalizer name nor is it fully qualified")
    })
}
