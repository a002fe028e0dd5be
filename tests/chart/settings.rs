//! Values that set one field of an object, with their defaults.

use serde_json::Value;

use crate::helm::Helm;

/// Settings, the object that has one of them, and where.
const SETTINGS: &[(&str, &str, &str, &str)] = &[
    ("daemonSetAnnotations: {a: b}", "DaemonSet", "/metadata/annotations/a", "b"),
    ("minReadySeconds: 3", "DaemonSet", "/spec/minReadySeconds", "3"),
    ("{}", "DaemonSet", "/spec/minReadySeconds", "10"),
    ("minReadySeconds: 0", "DaemonSet", "/spec/minReadySeconds", "null"),
    ("{}", "DaemonSet", "POD/priorityClassName", "system-node-critical"),
    ("{}", "Job", "POD/priorityClassName", "system-node-critical"),
    ("priorityClassName: ''", "DaemonSet", "POD/priorityClassName", "null"),
    ("runtimeClassName: runc", "DaemonSet", "POD/runtimeClassName", "runc"),
    ("hostNetwork: 'yes'", "DaemonSet", "POD/hostNetwork", "true"),
    ("hostNetwork: 'no'", "DaemonSet", "POD/hostNetwork", "null"),
    ("dnsPolicy: Default", "DaemonSet", "POD/dnsPolicy", "Default"),
    ("dnsConfig: {searches: [a]}", "DaemonSet", "POD/dnsConfig/searches/0", "a"),
    ("podSecurityContext: {fsGroup: 5}", "DaemonSet", "POD/securityContext/fsGroup", "5"),
    ("metricsPort: 9090", "DaemonSet", "CONTAINER/args/2", "--listen-address=:9090"),
    ("{}", "DaemonSet", "CONTAINER/args/2", "null"),
    ("metricsPort: 9090", "DaemonSet", "CONTAINER/ports/0/containerPort", "9090"),
    ("metricsPort: 9090", "Deployment", "CONTAINER/args/8", "--listen-address=:9090"),
    ("metricsPort: 9090", "Deployment", "CONTAINER/ports/0/containerPort", "9090"),
    ("metricsPort: 9090\nserviceMonitor: {enabled: true}", "Service", "/spec/ports/0/port", "9090"),
    ("serviceMonitor: {enabled: true}", "ServiceMonitor", "/spec/endpoints/0/interval", "30s"),
    ("podMonitor: {enabled: true}", "PodMonitor", "/spec/podMetricsEndpoints/0/interval", "30s"),
    (
        "serviceMonitor: {enabled: true, annotations: {a: b}}",
        "ServiceMonitor",
        "/metadata/annotations/a",
        "b",
    ),
    (
        "serviceMonitor: {enabled: true, annotations: {a: b}}",
        "Service",
        "/metadata/annotations",
        "null",
    ),
    (
        "serviceMonitor: {enabled: true, serviceAnnotations: {a: b}}",
        "Service",
        "/metadata/annotations/a",
        "b",
    ),
    (
        "podMonitor: {enabled: true, annotations: {a: b}}",
        "PodMonitor",
        "/metadata/annotations/a",
        "b",
    ),
    ("nodeCleanup: {deploymentAnnotations: {a: b}}", "Deployment", "/metadata/annotations/a", "b"),
    (
        "nodeCleanup: {podAnnotations: {a: b}}",
        "Deployment",
        "/spec/template/metadata/annotations/a",
        "b",
    ),
    ("nodeCleanup: {podLabels: {a: b}}", "Deployment", "/spec/template/metadata/labels/a", "b"),
    ("nodeCleanup: {extraArgs: [--x]}", "Deployment", "CONTAINER/args/8", "--x"),
    ("nodeCleanup: {extraEnv: [{name: A, value: b}]}", "Deployment", "CONTAINER/env/3/name", "A"),
    ("uninstall: {ttlSecondsAfterFinished: 60}", "Job", "/spec/ttlSecondsAfterFinished", "60"),
    ("{}", "Job", "/spec/ttlSecondsAfterFinished", "null"),
    (
        "uninstall: {resources: {limits: {cpu: 50m}}}",
        "Job",
        "CONTAINER/resources/limits/cpu",
        "50m",
    ),
    (
        "classes: [{name: a, hostDir: /a, storageClass: {volumeBindingMode: Immediate}}]",
        "StorageClass",
        "/volumeBindingMode",
        "Immediate",
    ),
    (
        "classes: [{name: a, hostDir: /a, storageClass: true}]",
        "StorageClass",
        "/volumeBindingMode",
        "WaitForFirstConsumer",
    ),
];

#[test]
fn each_setting_is_rendered_at_its_place() {
    let helm = or_skip!(Helm::find());
    for (text, kind, place, expected) in SETTINGS {
        let mut values: Value = serde_saphyr::from_str(text).unwrap();
        values["nodeCleanup"]["enabled"] = true.into();
        let pod = "/spec/template/spec";
        let place = place.replace("CONTAINER", &format!("{pod}/containers/0"));
        let place = place.replace("POD", pod);
        let objects = helm.render_values(&values);
        let object = objects.0.iter().find(|object| object["kind"] == *kind);
        let found = object.unwrap().pointer(&place).unwrap_or(&Value::Null);
        let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
        assert_eq!(found, *expected, "{text}: {place} of {kind}");
    }
}
