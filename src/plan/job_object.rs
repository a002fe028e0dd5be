//! The Job that cleans a device.
//!
//! Name, labels, annotations and container are those of the Go provisioner, so that its tools find them. The
//! command is our own program ([`crate::cmd::job`]), which checks the device again: the facts may change before
//! the Job starts.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::config::Cleaner;
use crate::names::{
    ANNOTATION_CLAIM_UID, ANNOTATION_IDENTITY, ANNOTATION_JOB_CLEANER, ANNOTATION_JOB_DEVICE,
    ANNOTATION_JOB_START, ANNOTATION_JOB_TEMPLATE, ENV_CLASS, ENV_DEVICE, ENV_IDENTITY, ENV_PV,
    ENV_PV_UID, ENV_SIZE, ENV_STATE, LABEL_HOSTNAME, LABEL_JOB_PV, LABEL_JOB_PV_UID, fnv1a_64,
    job_name, job_volume_name, pv_label,
};

use super::{CleanOrder, JobTerms};

/// What the provisioner's environment gives to cleaning Jobs.
#[derive(Clone, Debug, Default)]
pub struct JobSource {
    /// Our own namespace.
    pub namespace: String,
    /// The image that they run.
    pub image: Option<String>,
    /// The Secrets of that namespace that pulling the image requires.
    pub pull_secrets: Vec<String>,
    /// Whether this process sees [`UDEV`]. The Job mounts it then, so that both find the same identities.
    pub has_udev: bool,
    /// The directory of the marks, if this process has one.
    pub state_directory: Option<String>,
}

impl JobSource {
    /// `namespace/name` of a PV's Job.
    pub fn shown(&self, pv: &str) -> String {
        format!("{}/{}", self.namespace, job_name(pv))
    }
}

/// Where our program is in the image.
pub const PROGRAM: &str = "/local-volume-provisioner";
/// udev's database, the source of some identities.
pub const UDEV: &str = "/run/udev/data";

/// Where device nodes are.
const DEV: &str = "/dev";
/// The default would leave a file in the node's `/dev`. No volume is mounted above this one.
const TERMINATION_LOG: &str = "/termination-log";
/// Our program stops within a second; a busy node may delay it.
const GRACE_SECONDS: i64 = 10;

/// The Job for a device of this identity and size (in bytes), created at `date`.
pub fn job(
    order: &CleanOrder,
    terms: &JobTerms,
    source: &JobSource,
    identity: &str,
    size: u64,
    date: Timestamp,
) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(&order.pv.name),
            "namespace": source.namespace,
            "labels": labels(order, terms),
            "annotations": {
                ANNOTATION_JOB_DEVICE: order.volume.mount_path.to_string(),
                ANNOTATION_JOB_START: format!("{date:.9}"),
                // Empty where the PV names no claim.
                ANNOTATION_CLAIM_UID: order.pv.tenancy().claim_uid.unwrap_or_default(),
                ANNOTATION_IDENTITY: identity,
                ANNOTATION_JOB_CLEANER: order.volume.class.cleaner.to_string(),
                ANNOTATION_JOB_TEMPLATE: fingerprint(order, terms, source),
            },
            // A pending Job is garbage-collected with its PV: started later, it would wipe the next tenant's
            // data. Once it runs, the owner is removed (see [`super::JobWrite::Disown`]).
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "name": order.pv.name,
                "uid": order.pv.uid,
            }],
        },
        "spec": spec(order, terms, source, identity, size),
    })
}

/// A hash of the Job's spec, without the identity and size of the device.
pub fn fingerprint(order: &CleanOrder, terms: &JobTerms, source: &JobSource) -> String {
    let spec = spec(order, terms, source, "", 0);
    format!("{:016x}", fnv1a_64(spec.to_string().bytes()))
}

fn labels(order: &CleanOrder, terms: &JobTerms) -> Value {
    json!({
        LABEL_HOSTNAME: terms.hostname,
        LABEL_JOB_PV: pv_label(&order.pv.name),
        LABEL_JOB_PV_UID: order.pv.uid,
    })
}

fn spec(
    order: &CleanOrder,
    terms: &JobTerms,
    source: &JobSource,
    identity: &str,
    size: u64,
) -> Value {
    let class = &order.volume.class;
    let (host_dir, mount_dir) = (class.host_dir.as_str(), class.mount_dir.to_string());
    let volume = job_volume_name(host_dir, &mount_dir);
    // The host directories that are required to reach and to identify the device.
    let mut volumes = vec![json!({ "name": volume, "hostPath": { "path": host_dir } })];
    let mut mounts = vec![json!({
        "name": volume, "mountPath": mount_dir, "mountPropagation": "HostToContainer",
    })];
    let udev = source.has_udev.then_some(("udev", UDEV, Some(true)));
    let state = terms.state_directory.as_deref();
    let marks = state.map(|path| ("marks", path, Some(true)));
    let dev = Some(("dev", DEV, None));
    for (name, path, read_only) in [dev, udev, marks].into_iter().flatten() {
        if path != mount_dir {
            volumes.push(json!({ "name": name, "hostPath": { "path": path } }));
            mounts.push(json!({ "name": name, "mountPath": path, "readOnly": read_only }));
        }
    }
    // Kubernetes expands $(VARIABLE) in a blockCleanerCommand, as in the Go provisioner's Jobs. It must not
    // expand these values.
    let env = [
        (ENV_DEVICE, order.volume.mount_path.to_string()),
        (ENV_PV, order.pv.name.clone()),
        (ENV_IDENTITY, identity.to_owned()),
        (ENV_SIZE, size.to_string()),
        (ENV_PV_UID, order.pv.uid.clone()),
        (ENV_CLASS, class.name.clone()),
    ];
    let state_directory = state.map(|path| (ENV_STATE, path.to_owned()));
    let env = env.into_iter().chain(state_directory);
    let env = env.map(|(name, value)| json!({ "name": name, "value": value.replace('$', "$$") }));
    let secrets: Vec<_> = source.pull_secrets.iter().map(|name| json!({ "name": name })).collect();
    let limit = class.cleanup_timeout;
    json!({
        "activeDeadlineSeconds": limit.map(|it| it.as_secs() + u64::from(it.subsec_nanos() > 0)),
        "template": {
            "metadata": { "labels": labels(order, terms) },
            "spec": {
                "containers": [{
                    "name": "cleaner",
                    "image": terms.image,
                    // By default the provisioner runs from the same image, so the node has it.
                    "imagePullPolicy": "IfNotPresent",
                    "command": [PROGRAM, "job"],
                    "args": match &class.cleaner {
                        Cleaner::Method(method) => vec![format!("--method={method}")],
                        Cleaner::Command(words) => words.clone(),
                    },
                    "env": env.collect::<Vec<_>>(),
                    "volumeMounts": mounts,
                    "securityContext": { "privileged": true },
                    "terminationMessagePath": TERMINATION_LOG,
                }],
                "volumes": volumes,
                "nodeSelector": { LABEL_HOSTNAME: terms.hostname },
                "tolerations": terms.tolerations,
                "restartPolicy": "OnFailure",
                "terminationGracePeriodSeconds": GRACE_SECONDS,
                "automountServiceAccountToken": false,
                "imagePullSecrets": secrets,
            },
        },
    })
}
