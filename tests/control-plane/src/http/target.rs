//! Which object or collection a path means.

use axum::extract::RawPathParams;

use crate::resource::{self, Resource};

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

    /// What the parts of a path mean, if anything.
    pub(super) fn of(params: &RawPathParams, path: &str) -> Option<Self> {
        let part = |key: &str| {
            let found = params.iter().find(|(name, _)| *name == key);
            found.map_or("", |(_, value)| value)
        };
        let find = |plural: &str| resource::find(part("group"), part("version"), plural);
        let (mut resource, mut namespace) = (find(part("plural")), part("namespace"));
        let (mut name, mut subresource) = (part("name"), part("subresource"));
        if !namespace.is_empty() && !resource.is_some_and(|r| r.namespaced) && name.is_empty() {
            // "namespaces/x/pods" is what is in it, "namespaces/x/status" a part of the namespace.
            (name, subresource) = (namespace, part("plural"));
            (resource, namespace) = (find("namespaces"), "");
        }
        let resource = resource?;
        // An object of a namespaced type is only reached through its namespace.
        let is_whole = name.is_empty() || resource.namespaced != namespace.is_empty();
        let is_longer = path.ends_with('/') || !part("path").is_empty();
        let known = match subresource {
            "proxy" => resource == &resource::PODS,
            // Only the path of a proxy goes on after the subresource.
            _ if is_longer => false,
            "" => true,
            "status" => resource.status,
            "log" => resource == &resource::PODS,
            "finalize" => resource == &resource::NAMESPACES,
            _ => false,
        };
        (is_whole && known).then(|| Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        })
    }
}
