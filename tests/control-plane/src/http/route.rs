//! Paths: which object or collection a URL means.

use super::query::decode;
use crate::resource::{self, Resource};

#[derive(Debug)]
pub(crate) enum Route {
    Resource(Target),
    /// Discovery, health, version and everything that does not exist.
    Other(String),
}

/// An object, a collection or a subresource.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) resource: &'static Resource,
    /// "" for cluster-scoped types, and for a collection over all namespaces.
    pub(super) namespace: String,
    /// "" for a collection.
    pub(super) name: String,
    /// "" for the object itself.
    pub(super) subresource: String,
}

impl Target {
    /// The namespace that a listing is limited to.
    pub(super) fn list_namespace(&self) -> Option<&str> {
        (self.resource.namespaced && !self.namespace.is_empty()).then_some(&*self.namespace)
    }
}

pub(super) fn parse(path: &str) -> Route {
    let segments: Vec<_> = path
        .split('/')
        .filter(|s| !s.is_empty())
        .map(decode)
        .collect();
    let segments: Vec<_> = segments.iter().map(String::as_str).collect();
    let target = match segments.as_slice() {
        ["api", version, rest @ ..] => resource_target("", version, rest),
        ["apis", group, version, rest @ ..] => resource_target(group, version, rest),
        _ => None,
    };
    target.map_or_else(|| Route::Other(path.to_owned()), Route::Resource)
}

fn resource_target(group: &str, version: &str, rest: &[&str]) -> Option<Target> {
    let find = |plural: &str| resource::find(group, version, plural);
    // "namespaces/x" is the namespace itself, "namespaces/x/pods" what is in it.
    let (namespace, resource, rest) = match rest {
        ["namespaces", namespace, plural, rest @ ..]
            if find(plural).is_some_and(|r| r.namespaced) =>
        {
            (*namespace, find(plural)?, rest)
        }
        [plural, rest @ ..] => ("", find(plural)?, rest),
        [] => return None,
    };
    let (name, subresource) = match rest {
        [] => ("", ""),
        [name] => (*name, ""),
        [name, subresource] => (*name, *subresource),
        _ => return None,
    };
    // An object of a namespaced type is only reached through its namespace.
    if resource.namespaced && namespace.is_empty() && !name.is_empty() {
        return None;
    }
    let known = match subresource {
        "" => true,
        "status" => resource.status,
        "log" => resource == &resource::PODS,
        "finalize" => resource == &resource::NAMESPACES,
        _ => false,
    };
    known.then(|| Target {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (path, expected) in [
            ("/api/v1/persistentvolumes", Some("persistentvolumes|||")),
            (
                "/api/v1/persistentvolumes/a/status",
                Some("persistentvolumes||a|status"),
            ),
            ("/api/v1/namespaces/x/pods/p", Some("pods|x|p|")),
            ("/api/v1/pods", Some("pods|||")),
            ("/api/v1/namespaces/x/pods/p/log", Some("pods|x|p|log")),
            ("/api/v1/namespaces/x", Some("namespaces||x|")),
            ("/api/v1/namespaces/x/status", Some("namespaces||x|status")),
            (
                "/api/v1/namespaces/x/finalize",
                Some("namespaces||x|finalize"),
            ),
            ("/apis/batch/v1/namespaces/x/jobs", Some("jobs|x||")),
            ("/apis/events.k8s.io/v1/events", Some("events|||")),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                Some("clusterroles||system:node|"),
            ),
            ("/api/v1/pods/p", None),
            ("/api/v1/persistentvolumes/a/scale", None),
            ("/api/v1/configmaps/status", None),
            ("/apis/batch/v1/namespaces/x/jobs/j/log", None),
            ("/apis/batch/v2/jobs", None),
            ("/api/v1", None),
            ("/healthz", None),
        ] {
            let found = match parse(path) {
                Route::Resource(t) => Some(format!(
                    "{}|{}|{}|{}",
                    t.resource.plural, t.namespace, t.name, t.subresource
                )),
                Route::Other(_) => None,
            };
            assert_eq!(found.as_deref(), expected, "{path}");
        }
    }
}
