//! The real `kubectl` as a client, where there is one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::{
    path::Path,
    process::{Command, Stdio},
};

use control_plane::{ControlPlane, NodeOptions, Options};

struct Kubectl<'a> {
    kubeconfig: &'a Path,
    home: &'a Path,
}

impl Kubectl<'_> {
    fn run(&self, arguments: &str, stdin: &str) -> (bool, String) {
        use std::io::Write;
        let mut child = Command::new("kubectl")
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", self.kubeconfig)
            .env("HOME", self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stdin.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// A command that must succeed; answers what it printed.
    #[track_caller]
    fn ok(&self, arguments: &str) -> String {
        self.fed(arguments, "")
    }

    #[track_caller]
    fn fed(&self, arguments: &str, stdin: &str) -> String {
        let (success, text) = self.run(arguments, stdin);
        assert!(success, "kubectl {arguments}\n{text}");
        text
    }

    #[track_caller]
    fn fails(&self, arguments: &str, stdin: &str) -> String {
        let (success, text) = self.run(arguments, stdin);
        assert!(!success, "kubectl {arguments}\n{text}");
        text
    }
}

fn volume(labels: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: PersistentVolume\n\
         metadata: {{name: pv1, labels: {{{labels}}}}}\n\
         spec:\n  \
           capacity: {{storage: 1.5Gi}}\n  \
           accessModes: [ReadWriteOnce]\n  \
           persistentVolumeReclaimPolicy: Retain\n  \
           storageClassName: fast\n  \
           local: {{path: /mnt/x}}\n  \
           nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [\
             {{key: kubernetes.io/hostname, operator: In, values: [n1]}}]}}]}}}}\n"
    )
}

const CLAIM: &str = "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}
";

/// The words of the line that begins with `name`.
fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let line = table
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in:\n{table}"))
        .split_whitespace()
        .collect()
}

#[test]
fn kubectl_works() {
    if Command::new("kubectl").arg("--help").output().is_err() {
        println!("skipped: no kubectl on PATH");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let options = Options {
        kubeconfig: Some(kubeconfig.clone()),
        node: Some(NodeOptions::new("n1")),
        ..Options::default()
    };
    let control_plane = ControlPlane::start(options).unwrap();
    let k = Kubectl {
        kubeconfig: &kubeconfig,
        home: home.path(),
    };

    discovery(&k);
    volumes_and_claims(&k);
    patches(&k);
    everything_else(&k);
    drop(control_plane);
    assert!(
        !kubeconfig.exists(),
        "the kubeconfig goes with the control plane"
    );
}

fn discovery(k: &Kubectl<'_>) {
    assert!(k.ok("version").contains("Server Version: v1."));
    assert_eq!(
        row(&k.ok("api-resources"), "persistentvolumes")[1..3],
        ["pv", "v1"]
    );
    let nodes = k.ok("get nodes -o wide");
    assert!(nodes.starts_with("NAME   STATUS   ROLES    AGE"), "{nodes}");
    assert_eq!(row(&nodes, "n1")[1..3], ["Ready", "<none>"]);
    assert!(k.ok("explain pv").contains("KIND:       PersistentVolume"));
    assert_eq!(k.ok("get --raw /readyz"), "ok");
}

fn volumes_and_claims(k: &Kubectl<'_>) {
    assert_eq!(
        k.fed("apply -f -", &volume("a: b")),
        "persistentvolume/pv1 created\n"
    );
    assert_eq!(
        k.fed("create -f -", CLAIM),
        "persistentvolumeclaim/data created\n"
    );
    k.ok("wait --for=jsonpath={.status.phase}=Bound pvc/data --timeout=10s");
    let volumes = k.ok("get pv");
    let head = "NAME   CAPACITY   ACCESS MODES   RECLAIM POLICY   STATUS   CLAIM          \
                STORAGECLASS   VOLUMEATTRIBUTESCLASS   REASON   AGE";
    assert_eq!(volumes.lines().next(), Some(head));
    assert_eq!(
        row(&volumes, "pv1")[1..8],
        [
            "1536Mi",
            "RWO",
            "Retain",
            "Bound",
            "default/data",
            "fast",
            "<unset>"
        ]
    );
    assert_eq!(
        row(&k.ok("get pvc"), "data")[1..6],
        ["Bound", "pv1", "1536Mi", "RWO", "fast"]
    );
    let described = k.ok("describe pv pv1");
    assert!(described.contains("Path:  /mnt/x"), "{described}");
    assert!(k.ok("describe pvc data").contains("Volume:        pv1"));
}

fn patches(k: &Kubectl<'_>) {
    assert_eq!(
        k.fed("apply -f -", &volume("c: d")),
        "persistentvolume/pv1 configured\n"
    );
    assert_eq!(
        k.ok("get pv pv1 -o jsonpath={.metadata.labels}"),
        r#"{"c":"d"}"#
    );
    k.ok("label pv pv1 x=y");
    k.ok("annotate pv pv1 note=text");
    k.ok(r#"patch pv pv1 -p {"spec":{"capacity":{"storage":"2Gi"}}}"#);
    k.ok(r#"patch pv pv1 --type=json -p [{"op":"remove","path":"/metadata/labels/x"}]"#);
    k.ok(r#"patch pv pv1 --type=merge -p {"metadata":{"annotations":{"note":null}}}"#);
    k.ok(r#"patch pv pv1 --subresource=status -p {"status":{"message":"hello"}}"#);
    assert_eq!(
        k.ok("get pv pv1 -o jsonpath={.spec.capacity.storage}"),
        "2Gi"
    );
    assert_eq!(k.ok("get pv pv1 -o jsonpath={.status.message}"), "hello");
    assert_eq!(k.ok("get pv -l c=d -o name"), "persistentvolume/pv1\n");
    let refused = k.fails(r#"patch pv pv1 -p {"spec":{"local":{"path":"/y"}}}"#, "");
    assert!(
        refused.contains("spec.persistentvolumesource is immutable"),
        "{refused}"
    );

    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {a: \"1\", b: \"2\"}\n";
    k.fed("apply --server-side -f -", map);
    k.fed("apply --server-side -f -", &map.replace(", b: \"2\"", ""));
    assert_eq!(k.ok("get cm cm -o jsonpath={.data}"), r#"{"a":"1"}"#);
    let other = map.replace("\"1\"", "\"9\"");
    let refused = k.fails("apply --server-side --field-manager=other -f -", &other);
    assert!(refused.contains("conflict with \"kubectl\""), "{refused}");
    k.fed(
        "apply --server-side --field-manager=other --force-conflicts -f -",
        &other,
    );
}

fn everything_else(k: &Kubectl<'_>) {
    k.ok("create namespace other");
    k.ok("create configmap plain --from-literal=k=v -n other");
    assert_eq!(row(&k.ok("get cm -n other"), "plain")[1], "1");
    k.ok("run p --image=x --restart=Never");
    k.ok("wait --for=jsonpath={.status.phase}=Running pod/p --timeout=10s");
    assert_eq!(row(&k.ok("get pods"), "p")[1..3], ["1/1", "Running"]);
    k.ok("delete pod p --timeout=10s");
    k.ok("cordon n1");
    assert_eq!(row(&k.ok("get nodes"), "n1")[1], "Ready,SchedulingDisabled");
    k.ok("uncordon n1");
    assert!(k.fails("get pv none", "").contains("(NotFound)"));
    assert!(
        k.fails("create -f -", &volume("a: b"))
            .contains("(AlreadyExists)")
    );
    assert!(k.ok("events --types=Warning").contains("No events found"));

    k.ok("delete pvc data --timeout=10s");
    assert_eq!(row(&k.ok("get pv"), "pv1")[4], "Released");
    k.ok("delete pv pv1 --timeout=10s");
    k.ok("delete namespace other --timeout=10s");
    assert!(k.ok("get pv").contains("No resources found"));
}
