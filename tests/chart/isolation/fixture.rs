//! The cluster that is attacked, and its clients.

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, PersistentVolume, Pod, ServiceAccount};
use kube::api::{
    DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::AuthInfo;
use kube::core::ApiResource;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};

use crate::helm::{Helm, RELEASE};
use Act::{CreateEvent, CreateJob, CreatePv, DeleteJob, DeletePv, PatchPv};

/// The label of all that is made here.
const LABEL: &str = "local-volume-provisioner.test/isolation";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The only class, and its directory.
pub const CLASS: &str = "isolation-test";
pub const HOST_DIR: &str = "/mnt/isolation-test";

/// A namespace with the chart's permissions and policies, and two nodes.
pub struct Fixture {
    pub config: Config,
    pub admin: Client,
    /// Namespace, and the beginning of every name.
    pub name: String,
}

impl Fixture {
    pub fn node(&self, which: &str) -> String {
        format!("{}-{which}", self.name)
    }

    /// A client with the provisioner's token, made for a pod on a node or for none.
    pub async fn provisioner(&self, node: Option<&str>) -> Requester {
        let mut bound_to = Value::Null;
        if let Some(node) = node {
            let pod = json!({
                "metadata": { "name": node },
                "spec": {
                    "nodeName": node,
                    "serviceAccountName": self.name,
                    "containers": [{ "name": "pod", "image": "none" }],
                },
            });
            let pods: Api<Pod> = Api::namespaced(self.admin.clone(), &self.name);
            let uid = create(&pods, pod).await.unwrap().metadata.uid;
            bound_to = json!({ "apiVersion": "v1", "kind": "Pod", "name": node, "uid": uid });
        }
        let request = json!({ "spec": { "audiences": [], "boundObjectRef": bound_to } });
        let request: TokenRequest = serde_json::from_value(request).unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), &self.name);
        let answer = accounts
            .create_token_request(&self.name, &PostParams::default(), &request)
            .await
            .unwrap();
        let mut config = self.config.clone();
        config.auth_info =
            AuthInfo { token: Some(answer.status.unwrap().token.into()), ..AuthInfo::default() };
        Requester { client: Client::try_from(config).unwrap(), namespace: self.name.clone() }
    }
}

/// A request.
pub enum Act<'a> {
    CreatePv(Value),
    PatchPv(&'a str, Value),
    DeletePv(&'a str),
    CreateJob(Value),
    DeleteJob(&'a str),
    CreateEvent(Value),
}

/// A client with its own permissions.
pub struct Requester {
    client: Client,
    namespace: String,
}

impl Requester {
    fn pvs(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub async fn does(&self, act: Act<'_>) -> Answer {
        let (pvs, jobs) = (self.pvs(), self.jobs());
        let answer = match act {
            CreatePv(pv) => create(&pvs, pv).await.map(drop),
            PatchPv(name, patch) => {
                let patch = Patch::Merge(patch);
                let patched = pvs.patch(name, &PatchParams::default(), &patch).await;
                patched.map(drop)
            }
            DeletePv(name) => pvs.delete(name, &DeleteParams::default()).await.map(drop),
            CreateJob(job) => create(&jobs, job).await.map(drop),
            DeleteJob(name) => {
                let deleted = jobs.delete(name, &DeleteParams::background()).await;
                deleted.map(drop)
            }
            CreateEvent(event) => {
                let namespace = event["metadata"]["namespace"].as_str().unwrap();
                let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
                create(&events, event.clone()).await.map(drop)
            }
        };
        Answer(answer)
    }

    pub async fn may(&self, what: &str, act: Act<'_>) {
        self.does(act).await.allowed(what);
    }

    /// Asserts that the policy refuses it, in these words.
    pub async fn may_not(&self, what: &str, act: Act<'_>, words: &[&str]) {
        self.does(act).await.refused(what, words);
    }

    /// Changes a Node as it is now; other controllers change it, too.
    pub async fn change_node(&self, name: &str, change: impl Fn(&mut Value)) -> Answer {
        let nodes: Api<Node> = Api::all(self.client.clone());
        loop {
            let mut node = serde_json::to_value(nodes.get(name).await.unwrap()).unwrap();
            change(&mut node);
            let patch = Patch::Merge(node);
            match nodes.patch(name, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                answer => return Answer(answer.map(drop)),
            }
        }
    }

    pub async fn change_node_status(&self, name: &str) -> Answer {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let capacity = json!({ "status": { "capacity": { "example.com/disks": "7" } } });
        let patch = Patch::Merge(capacity);
        let params = PatchParams::default();
        let answer = nodes.patch_status(name, &params, &patch).await;
        Answer(answer.map(drop))
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// The answer of the API server.
#[derive(Debug)]
pub struct Answer(kube::Result<()>);

impl Answer {
    pub fn is_done(&self) -> bool {
        self.0.is_ok()
    }

    /// The message of a policy's refusal.
    pub fn refusal(&self) -> Option<&str> {
        match &self.0 {
            Err(kube::Error::Api(status)) if status.code == 403 => Some(&status.message),
            _ => None,
        }
    }

    pub fn allowed(self, what: &str) {
        assert!(self.is_done(), "{what}: {self:?}");
    }

    /// Asserts that the policy refuses it, with these words.
    pub fn refused(self, what: &str, words: &[&str]) {
        let said = self.refusal();
        let said = said.unwrap_or_else(|| panic!("{what}: {self:?}"));
        for word in words {
            assert!(said.contains(word), "{what}: no {word:?} in {said:?}");
        }
    }
}

pub async fn create<K>(api: &Api<K>, mut object: Value) -> kube::Result<K>
where
    K: kube::Resource + serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    object["metadata"]["labels"][LABEL] = json!("true");
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await
}

/// The chart's permissions and policies, and what they require.
pub async fn install(helm: &Helm, fixture: &Fixture) {
    let name = &fixture.name;
    let namespaces: Api<Namespace> = Api::all(fixture.admin.clone());
    create(&namespaces, json!({ "metadata": { "name": name } })).await.unwrap();
    let full_name = format!("fullnameOverride={name}");
    let class = format!("classes[0].name={CLASS},classes[0].hostDir={HOST_DIR}/");
    let sets = [
        "nodeIsolation.enabled=true,removeNodeNotReadyTaint=true,useJobForCleaning=true",
        "imagePullSecrets[0].name=registry",
        // A permission that it does not have by default, so that the policy is what refuses.
        "rbac.extraRules[0].apiGroups[0]=,rbac.extraRules[0].resources[0]=nodes/status",
        "rbac.extraRules[0].verbs[0]=patch",
        &class,
        &full_name,
    ];
    let objects = helm.template_as(RELEASE, name, &[], &sets).unwrap().0;
    let wanted = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    for object in objects {
        let kind = object["kind"].as_str().unwrap();
        let of_a_hook = object["metadata"].get("annotations").is_some();
        if !of_a_hook && (wanted.contains(&kind) || kind.starts_with("ValidatingAdmission")) {
            let api = dynamic(&fixture.admin, &object);
            create_dynamic(&api, object).await;
        }
    }
}

fn dynamic(client: &Client, object: &Value) -> Api<DynamicObject> {
    let (group, version) = object["apiVersion"]
        .as_str()
        .map(|text| text.split_once('/').unwrap_or(("", text)))
        .unwrap();
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn create_dynamic(api: &Api<DynamicObject>, mut object: Value) {
    object["metadata"]["labels"][LABEL] = json!("true");
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Removes all that these tests have ever made.
pub async fn clear(admin: &Client) {
    for (group, kind) in [
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("", "PersistentVolume"),
        ("", "Node"),
        ("", "Namespace"),
    ] {
        let object =
            json!({ "kind": kind, "apiVersion": format!("{group}/v1").trim_start_matches('/') });
        let api = dynamic(admin, &object);
        let labelled = ListParams::default().labels(LABEL);
        for object in api.list(&labelled).await.unwrap() {
            let name = object.name_any();
            if kind == "Namespace" {
                // No kubelet will report the end of these.
                let pods: Api<Pod> = Api::namespaced(admin.clone(), &name);
                let at_once = DeleteParams::default().grace_period(0);
                let _ = pods.delete_collection(&at_once, &ListParams::default()).await;
            }
            if kind == "PersistentVolume" {
                let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                let _ = api.patch(&name, &PatchParams::default(), &none).await;
            }
            let _ = api.delete(&name, &DeleteParams::default()).await;
        }
    }
}
