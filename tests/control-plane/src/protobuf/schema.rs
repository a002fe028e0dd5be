//! Field numbers of the messages that clients send as protobuf, from Kubernetes' published
//! `generated.proto` files.

pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

pub(super) struct Field {
    pub(super) number: u64,
    pub(super) name: &'static str,
    pub(super) kind: Type,
}

pub(super) enum Type {
    Text,
    Bytes,
    Number,
    Flag,
    OptionalNumber,
    OptionalFlag,
    Nested(&'static Message),
    List(&'static Type),
    Map(&'static Type),
    /// `IntOrString`.
    NumberOrText,
    /// Known, and of no consequence in what a client creates: the server sets it itself.
    Ignored,
}

use Type::{
    Bytes, Flag, Ignored, List, Map, Nested, Number, NumberOrText, OptionalFlag, OptionalNumber,
    Text,
};

macro_rules! messages {
    ($($name:ident $text:literal { $($number:literal $field:literal $kind:expr,)* })*) => {
        $(pub(super) static $name: Message = Message {
            name: $text,
            fields: &[$(Field { number: $number, name: $field, kind: $kind },)*],
        };)*
    };
}

messages! {
    ENVELOPE "Unknown" {
        1 "typeMeta" Nested(&TYPE_META),
        2 "raw" Ignored,
        3 "contentEncoding" Ignored,
        4 "contentType" Ignored,
    }
    TYPE_META "TypeMeta" { 1 "apiVersion" Text, 2 "kind" Text, }
    OBJECT_META "ObjectMeta" {
        1 "name" Text,
        2 "generateName" Text,
        3 "namespace" Text,
        4 "selfLink" Ignored,
        5 "uid" Ignored,
        6 "resourceVersion" Text,
        7 "generation" Ignored,
        8 "creationTimestamp" Ignored,
        9 "deletionTimestamp" Ignored,
        10 "deletionGracePeriodSeconds" Ignored,
        11 "labels" Map(&Text),
        12 "annotations" Map(&Text),
        13 "ownerReferences" List(&Nested(&OWNER_REFERENCE)),
        14 "finalizers" List(&Text),
        17 "managedFields" Ignored,
    }
    OWNER_REFERENCE "OwnerReference" {
        1 "kind" Text,
        3 "name" Text,
        4 "uid" Text,
        5 "apiVersion" Text,
        6 "controller" OptionalFlag,
        7 "blockOwnerDeletion" OptionalFlag,
    }
    DELETE_OPTIONS "DeleteOptions" {
        1 "gracePeriodSeconds" OptionalNumber,
        2 "preconditions" Nested(&PRECONDITIONS),
        3 "orphanDependents" OptionalFlag,
        4 "propagationPolicy" Text,
        5 "dryRun" List(&Text),
    }
    PRECONDITIONS "Preconditions" { 1 "uid" Text, 2 "resourceVersion" Text, }
    NAMESPACE "Namespace" {
        1 "metadata" Nested(&OBJECT_META),
        2 "spec" Nested(&NAMESPACE_SPEC),
        3 "status" Ignored,
    }
    NAMESPACE_SPEC "NamespaceSpec" { 1 "finalizers" List(&Text), }
    CONFIG_MAP "ConfigMap" {
        1 "metadata" Nested(&OBJECT_META),
        2 "data" Map(&Text),
        3 "binaryData" Map(&Bytes),
        4 "immutable" OptionalFlag,
    }
    SECRET "Secret" {
        1 "metadata" Nested(&OBJECT_META),
        2 "data" Map(&Bytes),
        3 "type" Text,
        4 "stringData" Map(&Text),
        5 "immutable" OptionalFlag,
    }
    SERVICE_ACCOUNT "ServiceAccount" {
        1 "metadata" Nested(&OBJECT_META),
        4 "automountServiceAccountToken" OptionalFlag,
    }
    ROLE "Role" {
        1 "metadata" Nested(&OBJECT_META),
        2 "rules" List(&Nested(&POLICY_RULE)),
    }
    POLICY_RULE "PolicyRule" {
        1 "verbs" List(&Text),
        2 "apiGroups" List(&Text),
        3 "resources" List(&Text),
        4 "resourceNames" List(&Text),
        5 "nonResourceURLs" List(&Text),
    }
    ROLE_BINDING "RoleBinding" {
        1 "metadata" Nested(&OBJECT_META),
        2 "subjects" List(&Nested(&SUBJECT)),
        3 "roleRef" Nested(&ROLE_REF),
    }
    SUBJECT "Subject" { 1 "kind" Text, 2 "apiGroup" Text, 3 "name" Text, 4 "namespace" Text, }
    ROLE_REF "RoleRef" { 1 "apiGroup" Text, 2 "kind" Text, 3 "name" Text, }
    JOB "Job" {
        1 "metadata" Nested(&OBJECT_META),
        2 "spec" Nested(&JOB_SPEC),
        3 "status" Ignored,
    }
    JOB_SPEC "JobSpec" {
        1 "parallelism" OptionalNumber,
        2 "completions" OptionalNumber,
        3 "activeDeadlineSeconds" OptionalNumber,
        4 "selector" Nested(&LABEL_SELECTOR),
        5 "manualSelector" OptionalFlag,
        6 "template" Nested(&POD_TEMPLATE),
        7 "backoffLimit" OptionalNumber,
        8 "ttlSecondsAfterFinished" OptionalNumber,
        9 "completionMode" Text,
        10 "suspend" OptionalFlag,
    }
    DEPLOYMENT "Deployment" {
        1 "metadata" Nested(&OBJECT_META),
        2 "spec" Nested(&DEPLOYMENT_SPEC),
        3 "status" Ignored,
    }
    DEPLOYMENT_SPEC "DeploymentSpec" {
        1 "replicas" OptionalNumber,
        2 "selector" Nested(&LABEL_SELECTOR),
        3 "template" Nested(&POD_TEMPLATE),
        4 "strategy" Nested(&DEPLOYMENT_STRATEGY),
        5 "minReadySeconds" Number,
        6 "revisionHistoryLimit" OptionalNumber,
        7 "paused" Flag,
        9 "progressDeadlineSeconds" OptionalNumber,
    }
    DEPLOYMENT_STRATEGY "DeploymentStrategy" { 1 "type" Text, }
    LABEL_SELECTOR "LabelSelector" { 1 "matchLabels" Map(&Text), }
    POD_TEMPLATE "PodTemplateSpec" {
        1 "metadata" Nested(&OBJECT_META),
        2 "spec" Nested(&POD_SPEC),
    }
    POD_SPEC "PodSpec" {
        2 "containers" List(&Nested(&CONTAINER)),
        3 "restartPolicy" Text,
        4 "terminationGracePeriodSeconds" OptionalNumber,
        5 "activeDeadlineSeconds" OptionalNumber,
        6 "dnsPolicy" Text,
        7 "nodeSelector" Map(&Text),
        8 "serviceAccountName" Text,
        9 "serviceAccount" Text,
        10 "nodeName" Text,
        11 "hostNetwork" Flag,
        12 "hostPID" Flag,
        13 "hostIPC" Flag,
        16 "hostname" Text,
        17 "subdomain" Text,
        19 "schedulerName" Text,
        24 "priorityClassName" Text,
    }
    CONTAINER "Container" {
        1 "name" Text,
        2 "image" Text,
        3 "command" List(&Text),
        4 "args" List(&Text),
        5 "workingDir" Text,
        7 "env" List(&Nested(&ENV_VAR)),
        8 "resources" Nested(&EMPTY_RESOURCES),
        13 "terminationMessagePath" Text,
        14 "imagePullPolicy" Text,
        16 "stdin" Flag,
        17 "stdinOnce" Flag,
        18 "tty" Flag,
        20 "terminationMessagePolicy" Text,
    }
    SERVICE "Service" {
        1 "metadata" Nested(&OBJECT_META),
        2 "spec" Nested(&SERVICE_SPEC),
        3 "status" Ignored,
    }
    SERVICE_SPEC "ServiceSpec" {
        1 "ports" List(&Nested(&SERVICE_PORT)),
        2 "selector" Map(&Text),
        3 "clusterIP" Text,
        4 "type" Text,
        5 "externalIPs" List(&Text),
        7 "sessionAffinity" Text,
        8 "loadBalancerIP" Text,
        9 "loadBalancerSourceRanges" List(&Text),
        10 "externalName" Text,
        11 "externalTrafficPolicy" Text,
        12 "healthCheckNodePort" Number,
        13 "publishNotReadyAddresses" Flag,
    }
    SERVICE_PORT "ServicePort" {
        1 "name" Text,
        2 "protocol" Text,
        3 "port" Number,
        4 "targetPort" NumberOrText,
        5 "nodePort" Number,
    }
    EMPTY_RESOURCES "ResourceRequirements" {}
    NUMBER_OR_TEXT "IntOrString" { 1 "type" Number, 2 "number" OptionalNumber, 3 "text" Text, }
    ENV_VAR "EnvVar" { 1 "name" Text, 2 "value" Text, }
}

/// The message of a kind.
pub(super) fn of(kind: &str) -> Option<&'static Message> {
    Some(match kind {
        "ConfigMap" => &CONFIG_MAP,
        "DeleteOptions" => &DELETE_OPTIONS,
        "Deployment" => &DEPLOYMENT,
        "Job" => &JOB,
        "Namespace" => &NAMESPACE,
        "ClusterRole" | "Role" => &ROLE,
        "ClusterRoleBinding" | "RoleBinding" => &ROLE_BINDING,
        "Secret" => &SECRET,
        "Service" => &SERVICE,
        "ServiceAccount" => &SERVICE_ACCOUNT,
        _ => return None,
    })
}
