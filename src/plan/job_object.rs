//! The Job that cleans a device.
//!
//! Name, labels, annotations and container are those of the Go provisioner, so that its tools find them. The
//! command is our own program ([`crate::cmd::job`]), which checks the device again: the facts may change before
//! the Job starts.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, HostPathVolumeSource, LocalObjectReference, PodSpec, PodTemplateSpec,
    SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::config::Cleaner;
use crate::names::{
    ANNOTATION_CLAIM_UID, ANNOTATION_IDENTITY, ANNOTATION_JOB_CLEANER, ANNOTATION_JOB_DEVICE,
    ANNOTATION_JOB_START, ANNOTATION_JOB_TEMPLATE, LABEL_HOSTNAME, LABEL_JOB_PV, LABEL_JOB_PV_UID,
    fnv1a_64, job_name, job_volume_name, pv_label,
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
}

impl JobSource {
    /// `namespace/name` of a PV's Job.
    #[must_use]
    pub fn shown(&self, pv: &str) -> String {
        format!("{}/{}", self.namespace, job_name(pv))
    }
}

/// Where our program is in the image.
pub const PROGRAM: &str = "/local-volume-provisioner";
/// The variable with the path of the device.
pub const ENV_DEVICE: &str = "LOCAL_PV_BLKDEVICE";
/// The variable with the PV's name.
pub const ENV_PV: &str = "LOCAL_PV_NAME";
/// The variable with the expected identity of the device.
pub const ENV_IDENTITY: &str = "LOCAL_PV_IDENTITY";
/// The variable with the expected size of the device in bytes.
pub const ENV_SIZE: &str = "LOCAL_PV_SIZE";

/// Where device nodes are.
const DEV: &str = "/dev";
/// udev's database, the source of some identities. The Job mounts it if we do, so that both find the same.
const UDEV: &str = "/run/udev/data";
/// Our program stops within a second; a busy node may delay it.
const GRACE_SECONDS: i64 = 10;

/// The Job for a device of this identity and size (in bytes), created at `date`.
#[must_use]
pub fn job(
    order: &CleanOrder,
    terms: &JobTerms,
    source: &JobSource,
    image: &str,
    identity: &str,
    size: u64,
    date: Timestamp,
) -> Job {
    let annotations = BTreeMap::from(
        [
            (ANNOTATION_JOB_DEVICE, order.mount_path.to_string()),
            (ANNOTATION_JOB_START, format!("{date:.9}")),
            (ANNOTATION_CLAIM_UID, claim_uid(order)),
            (ANNOTATION_IDENTITY, identity.to_owned()),
            (ANNOTATION_JOB_CLEANER, order.class.cleaner.to_string()),
            (
                ANNOTATION_JOB_TEMPLATE,
                fingerprint(order, terms, source, image),
            ),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(&order.pv.name)),
            namespace: Some(source.namespace.clone()),
            labels: Some(labels(order, terms)),
            annotations: Some(annotations),
            // A pending Job is garbage-collected with its PV: started later, it would wipe the next tenant's
            // data. Once it runs, the owner is removed (see [`super::JobWrite::Disown`]).
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "PersistentVolume".into(),
                name: order.pv.name.clone(),
                uid: order.pv.uid.clone(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(spec(order, terms, source, image, identity, size)),
        status: None,
    }
}

/// A hash of the Job's spec, without the identity and size of the device.
#[must_use]
pub fn fingerprint(
    order: &CleanOrder,
    terms: &JobTerms,
    source: &JobSource,
    image: &str,
) -> String {
    let spec = serde_json::json!(spec(order, terms, source, image, "", 0));
    format!("{:016x}", fnv1a_64(spec.to_string().bytes()))
}

fn labels(order: &CleanOrder, terms: &JobTerms) -> BTreeMap<String, String> {
    let labels = [
        (LABEL_HOSTNAME, terms.hostname.clone()),
        (LABEL_JOB_PV, pv_label(&order.pv.name)),
        (LABEL_JOB_PV_UID, order.pv.uid.clone()),
    ];
    labels
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

fn spec(
    order: &CleanOrder,
    terms: &JobTerms,
    source: &JobSource,
    image: &str,
    identity: &str,
    size: u64,
) -> JobSpec {
    let secrets = source
        .pull_secrets
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    let secrets: Vec<_> = secrets.collect();
    let volumes = volumes(order);
    let pod = PodSpec {
        containers: vec![container(order, image, identity, size, &volumes)],
        volumes: Some(volumes.into_iter().map(|(volume, _)| volume).collect()),
        node_selector: Some(BTreeMap::from([(
            LABEL_HOSTNAME.to_owned(),
            terms.hostname.clone(),
        )])),
        tolerations: (!terms.tolerations.is_empty()).then(|| terms.tolerations.clone()),
        restart_policy: Some("OnFailure".into()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        automount_service_account_token: Some(false),
        image_pull_secrets: (!secrets.is_empty()).then_some(secrets),
        ..PodSpec::default()
    };
    let limit = order.class.cleanup_timeout.map(|limit| {
        let whole = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
        i64::try_from(whole).unwrap_or(i64::MAX)
    });
    JobSpec {
        active_deadline_seconds: limit,
        template: PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(labels(order, terms)),
                ..ObjectMeta::default()
            }),
            spec: Some(pod),
        },
        ..JobSpec::default()
    }
}

/// The annotation's value: empty where the PV names no claim.
pub(super) fn claim_uid(order: &CleanOrder) -> String {
    order.pv.tenancy().claim_uid.unwrap_or_default()
}

fn container(
    order: &CleanOrder,
    image: &str,
    identity: &str,
    size: u64,
    volumes: &[(Volume, VolumeMount)],
) -> Container {
    let device = order.mount_path.to_string();
    let env = [
        (ENV_DEVICE, device),
        (ENV_PV, order.pv.name.clone()),
        (ENV_IDENTITY, identity.to_owned()),
        (ENV_SIZE, size.to_string()),
    ];
    // Kubernetes expands $(VARIABLE) in a blockCleanerCommand, as in the Go provisioner's Jobs. It must not
    // expand these values.
    let env = env.map(|(name, value)| EnvVar {
        name: name.into(),
        value: Some(value.replace('$', "$$")),
        value_from: None,
    });
    Container {
        name: "cleaner".into(),
        image: Some(image.to_owned()),
        // By default the provisioner runs from the same image, so the node has it.
        image_pull_policy: Some("IfNotPresent".into()),
        command: Some(vec![PROGRAM.into(), "job".into()]),
        args: Some(match &order.class.cleaner {
            Cleaner::Method(method) => vec![format!("--method={method}")],
            Cleaner::Command(words) => words.clone(),
        }),
        env: Some(env.into()),
        volume_mounts: Some(volumes.iter().map(|(_, mount)| mount.clone()).collect()),
        security_context: Some(SecurityContext {
            privileged: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// The host directories that are required to reach and to identify the device.
fn volumes(order: &CleanOrder) -> Vec<(Volume, VolumeMount)> {
    let (host_dir, mount_dir) = (
        order.class.host_dir.as_str(),
        order.class.mount_dir.to_string(),
    );
    let name = job_volume_name(host_dir, &mount_dir);
    let mut volumes = vec![(
        host_path(&name, host_dir),
        VolumeMount {
            name,
            mount_path: mount_dir.clone(),
            mount_propagation: Some("HostToContainer".into()),
            ..VolumeMount::default()
        },
    )];
    let mut add = |name: &str, path: &str, read_only: bool| {
        let mount = VolumeMount {
            name: name.into(),
            mount_path: path.into(),
            read_only: read_only.then_some(true),
            ..VolumeMount::default()
        };
        volumes.push((host_path(name, path), mount));
    };
    if mount_dir != DEV {
        add("dev", DEV, false);
    }
    if mount_dir != UDEV && Path::new(UDEV).is_dir() {
        add("udev", UDEV, true);
    }
    volumes
}

fn host_path(name: &str, path: &str) -> Volume {
    Volume {
        name: name.into(),
        host_path: Some(HostPathVolumeSource {
            path: path.into(),
            type_: None,
        }),
        ..Volume::default()
    }
}
