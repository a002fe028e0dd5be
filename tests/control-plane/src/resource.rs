//! The table of resource types: a new type is one row here and one line in [`all`].

use std::hash::{Hash, Hasher};

/// One resource type, as discovery describes it.
#[derive(Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version, for example `v1`.
    pub version: &'static str,
    /// Plural lower-case name, the one in URLs.
    pub plural: &'static str,
    /// Singular lower-case name, for command lines.
    pub singular: &'static str,
    /// Kind, as objects carry it.
    pub kind: &'static str,
    /// Abbreviations that `kubectl` accepts.
    pub short_names: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether the type has a `status` subresource; if so, `update` leaves the status alone.
    pub status: bool,
    /// Whether the API server counts changes of the spec in `metadata.generation`.
    pub generation: bool,
}

impl Resource {
    const fn new(
        [group, version]: [&'static str; 2],
        [plural, singular, kind]: [&'static str; 3],
        short_names: &'static [&'static str],
    ) -> Self {
        Self {
            group,
            version,
            plural,
            singular,
            kind,
            short_names,
            namespaced: true,
            status: false,
            generation: false,
        }
    }

    const fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    /// `v1` or `group/v1`, as objects carry it.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural` or `plural.group`, as error messages name a type.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }
}

/// There is one static per type, so identity is equality.
impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Resource {}

impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self, state);
    }
}

const CORE: [&str; 2] = ["", "v1"];
const APPS: [&str; 2] = ["apps", "v1"];
const RBAC: [&str; 2] = ["rbac.authorization.k8s.io", "v1"];

macro_rules! resources {
    ($($(#[$doc:meta])* $name:ident = $row:expr;)*) => {
        $($(#[$doc])* pub static $name: Resource = $row;)*

        /// Every type, core group first, in the order that discovery shows.
        pub fn all() -> &'static [&'static Resource] {
            static ALL: &[&Resource] = &[$(&$name),*];
            ALL
        }
    };
}

resources! {
    /// Core `configmaps`.
    CONFIG_MAPS = Resource::new(CORE, ["configmaps", "configmap", "ConfigMap"], &["cm"]);
    /// Core `events`; what [`EVENTS_V1`] shows under its own field names is stored here.
    EVENTS = Resource::new(CORE, ["events", "event", "Event"], &["ev"]);
    /// Core `namespaces`.
    NAMESPACES = Resource::new(CORE, ["namespaces", "namespace", "Namespace"], &["ns"])
        .cluster_scoped().with_status();
    /// Core `nodes`.
    NODES = Resource::new(CORE, ["nodes", "node", "Node"], &["no"])
        .cluster_scoped().with_status();
    /// Core `persistentvolumeclaims`.
    PERSISTENT_VOLUME_CLAIMS = Resource::new(
        CORE,
        ["persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim"],
        &["pvc"],
    ).with_status();
    /// Core `persistentvolumes`.
    PERSISTENT_VOLUMES = Resource::new(
        CORE,
        ["persistentvolumes", "persistentvolume", "PersistentVolume"],
        &["pv"],
    ).cluster_scoped().with_status();
    /// Core `pods`.
    PODS = Resource::new(CORE, ["pods", "pod", "Pod"], &["po"]).with_status().with_generation();
    /// Core `secrets`.
    SECRETS = Resource::new(CORE, ["secrets", "secret", "Secret"], &[]);
    /// Core `serviceaccounts`.
    SERVICE_ACCOUNTS = Resource::new(
        CORE,
        ["serviceaccounts", "serviceaccount", "ServiceAccount"],
        &["sa"],
    );
    /// Core `services`.
    SERVICES = Resource::new(CORE, ["services", "service", "Service"], &["svc"]).with_status();
    /// `apps` `daemonsets`.
    DAEMON_SETS = Resource::new(APPS, ["daemonsets", "daemonset", "DaemonSet"], &["ds"])
        .with_status().with_generation();
    /// `apps` `deployments`.
    DEPLOYMENTS = Resource::new(APPS, ["deployments", "deployment", "Deployment"], &["deploy"])
        .with_status().with_generation();
    /// `batch` `jobs`.
    JOBS = Resource::new(["batch", "v1"], ["jobs", "job", "Job"], &[])
        .with_status().with_generation();
    /// `coordination.k8s.io` `leases`.
    LEASES = Resource::new(["coordination.k8s.io", "v1"], ["leases", "lease", "Lease"], &[]);
    /// `events.k8s.io` `events`: the same objects as [`EVENTS`] under newer field names.
    EVENTS_V1 = Resource::new(["events.k8s.io", "v1"], ["events", "event", "Event"], &["ev"]);
    /// `rbac.authorization.k8s.io` `clusterrolebindings`.
    CLUSTER_ROLE_BINDINGS = Resource::new(
        RBAC,
        ["clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding"],
        &[],
    ).cluster_scoped();
    /// `rbac.authorization.k8s.io` `clusterroles`.
    CLUSTER_ROLES = Resource::new(RBAC, ["clusterroles", "clusterrole", "ClusterRole"], &[])
        .cluster_scoped();
    /// `rbac.authorization.k8s.io` `rolebindings`.
    ROLE_BINDINGS = Resource::new(RBAC, ["rolebindings", "rolebinding", "RoleBinding"], &[]);
    /// `rbac.authorization.k8s.io` `roles`.
    ROLES = Resource::new(RBAC, ["roles", "role", "Role"], &[]);
    /// `storage.k8s.io` `storageclasses`.
    STORAGE_CLASSES = Resource::new(
        ["storage.k8s.io", "v1"],
        ["storageclasses", "storageclass", "StorageClass"],
        &["sc"],
    ).cluster_scoped();
}

/// The type that a URL names.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    all().iter().copied().find(|r| r.plural == plural && r.group == group && r.version == version)
}
