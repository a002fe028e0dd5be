//! The commands that a person types, with the real `kubectl`: each has to succeed, and to print what one
//! looks for. How it words the rest is the business of the real Kubernetes.
#![cfg(feature = "program")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{fs, path::Path, process::Command};

use control_plane::{ControlPlane, NodeOptions, Options, ProcessOptions};
use tempfile::TempDir;

const OBJECTS: &str = "
kind: PersistentVolume
apiVersion: v1
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: fast
  local: {path: /mnt/disk}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [
    {key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
---
kind: PersistentVolumeClaim
apiVersion: v1
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: fast
  resources: {requests: {storage: 1Gi}}
---
kind: Pod
apiVersion: v1
metadata: {name: tenant, labels: {app: web}}
spec:
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
  containers: [{name: c, image: none, volumeMounts: [{name: v, mountPath: /v}]}]
---
kind: Job
apiVersion: batch/v1
metadata: {name: job}
spec:
  template: {spec: {restartPolicy: Never, containers: [
    {name: c, image: none, command: [echo, hello]}]}}
";

/// Commands, and below each what it prints among other things.
const COMMANDS: &str = r#"
$ kubectl get nodes
  n1 | Ready
$ kubectl get node n1 -o wide
  STATUS | n1
$ kubectl get ns
  default | kube-system
$ kubectl api-resources
  persistentvolumes | pv
$ kubectl version
  Server Version: v1.37
$ kubectl apply -f objects.yaml
  disk created | data created | tenant created
$ kubectl wait --for=jsonpath={.status.phase}=Bound pvc/data --timeout=30s
  condition met
$ kubectl wait --for=jsonpath={.status.phase}=Running pod/tenant --timeout=30s
  condition met
$ kubectl wait --for=condition=complete job/job --timeout=30s
  condition met
$ kubectl get pv
  RECLAIM POLICY | disk | 1Gi | RWO | default/data
$ kubectl get pvc -o wide
  VOLUMEMODE | Filesystem
$ kubectl get pv,pvc,pod
  persistentvolume/disk | pod/tenant
$ kubectl get pods -l app=web -o wide
  1/1 | Running | n1
$ kubectl get pod tenant --show-labels
  app=web
$ kubectl get jobs
  job | Complete | 1/1
$ kubectl get all
  pod/tenant | job.batch/job
$ kubectl get sc,cm -A
  No resources found
$ kubectl get pv disk -o json
  "phase": "Bound"
$ kubectl get pv disk -o yaml
  storageClassName: fast
$ kubectl get pods -o name
  pod/tenant
$ kubectl get pv -o jsonpath='{.items[0].spec.claimRef.name}'
  data
$ timeout 2 kubectl get pv -w; true
  Bound  default/data
$ kubectl describe pv disk
  Status: | n1 | Bound
$ kubectl describe pvc data
  Used By: | tenant | Volume: | disk
$ kubectl describe pod tenant
  ClaimName: | data | Scheduled
$ kubectl describe node n1
  Name: | n1
$ kubectl describe job job
  1 Succeeded
$ kubectl logs job/job
  hello
$ kubectl logs -l job-name=job --tail=1
  hello
$ kubectl events
  Scheduled | tenant
$ kubectl apply -f objects.yaml
  data unchanged
$ sed 's/app: web/app: db/' objects.yaml | kubectl apply -f -
  tenant configured
$ kubectl label pv disk tier=gold
  labeled
$ kubectl get pv -l tier=gold -L tier
  gold
$ kubectl annotate pvc data note=mine
  annotated
$ kubectl patch pv disk -p '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'
  patched
$ kubectl patch pv disk --type=json -p '[{"op":"remove","path":"/metadata/labels/tier"}]'
  patched
$ EDITOR='sed -i s/Delete/Retain/' kubectl edit pv disk
  edited
$ kubectl get job job -o json | kubectl replace -f -
  replaced
$ printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\n' | kubectl create -f -
  made created
$ kubectl get pod nowhere; test $? = 1
  pods "nowhere" not found
$ kubectl cordon n1
  cordoned
$ kubectl get nodes
  SchedulingDisabled
$ kubectl delete pod tenant --now
  deleted
$ kubectl delete pvc --all
  "data" deleted
$ kubectl wait --for=jsonpath={.status.phase}=Released pv/disk --timeout=30s
  condition met
$ kubectl delete -f objects.yaml --ignore-not-found
  "disk" deleted | "job" deleted
$ kubectl get pv,pvc,pod,job
  No resources found
"#;

#[test]
fn the_commands_of_kubectl() {
    if !there_is_kubectl() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(Options {
        node: Some(NodeOptions::new("n1")),
        kubeconfig: Some(home.path().join("kubeconfig")),
        processes: Some(ProcessOptions { programs: [].into(), logs: home.path().join("logs") }),
        ..Options::default()
    })
    .unwrap();
    fs::write(home.path().join("objects.yaml"), OBJECTS).unwrap();
    let mut failures = Vec::new();
    for example in COMMANDS.split("\n$ ").skip(1) {
        let (command, words) = example.split_once("\n  ").unwrap();
        let (succeeded, printed) = sh(&home, command, "");
        let looked = printed.split_whitespace().collect::<Vec<_>>().join("  ");
        let mut missing = words.trim().split(" | ").collect::<Vec<_>>();
        missing.retain(|word| !printed.contains(word) && !looked.contains(word));
        if !succeeded || !missing.is_empty() {
            failures.push(format!("$ {command}\n{printed}does not say {missing:?}"));
        }
    }
    drop(control_plane);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The example of docs/develop/control-plane.md, as one types it.
#[test]
fn the_first_minute_works() {
    let docs = include_str!("../../../docs/develop/control-plane.md");
    let (_, example) = docs.split_once("```sh\nrm -f").unwrap();
    let example = format!("rm -f{}", example.split_once("```").unwrap().0);
    if !there_is_kubectl() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let script = example.replace("/tmp/first-minute", kubeconfig.to_str().unwrap());
    let program = Path::new(env!("CARGO_BIN_EXE_control-plane"));
    let programs = program.parent().unwrap().to_str().unwrap();
    // Whatever fails, nothing is left running.
    let script = format!("trap 'kill $! 2>/dev/null' EXIT\nset -eu\n{script}\nwait");
    let (_, printed) = sh(&home, &script, programs);
    assert!(printed.contains("data condition met"), "{script}\n{printed}");
    let bound = printed.lines().filter(|line| line.contains(" Bound "));
    assert_eq!(bound.count(), 2, "{printed}");
    assert!(!kubeconfig.exists(), "it was ended, and has tidied up");
}

fn there_is_kubectl() -> bool {
    let version = Command::new("kubectl").args(["version", "--client"]).output();
    let found = version.is_ok_and(|output| output.status.success());
    if !found {
        support::skip("no kubectl");
    }
    found
}

/// Whether a script succeeds within a minute, and what it prints.
fn sh(home: &TempDir, script: &str, programs: &str) -> (bool, String) {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["60", "sh", "-c", &format!("exec 2>&1\n{script}")])
        .current_dir(home)
        .env("PATH", format!("{programs}:{path}"))
        .env("KUBECONFIG", home.path().join("kubeconfig"))
        .env("HOME", home.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), printed)
}
