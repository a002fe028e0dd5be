//! The notes that Helm prints after an installation. They require a cluster, so the chart's copy renders them as an
//! object.

use std::fs;
use std::process::Command;

use crate::helm::{Helm, chart_dir, values_file};

/// The notes of an installation in a namespace.
fn notes(helm: &Helm, namespace: &str, sets: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let chart = dir.path().join("chart");
    let mut copy = Command::new("cp");
    copy.arg("-r").args([&chart_dir(), &chart]);
    assert!(copy.status().unwrap().success());
    let text = fs::read_to_string(chart.join("templates/NOTES.txt")).unwrap();
    let template = format!(
        "{{{{- define \"notes\" -}}}}\n{text}\n{{{{- end -}}}}\nnotes: {{{{ include \"notes\" . | toJson }}}}\n"
    );
    fs::write(chart.join("templates/notes.yaml"), template).unwrap();
    let base = values_file("base.yaml");
    let args = [
        "template",
        "lvp",
        chart.to_str().unwrap(),
        "--kube-version=1.33",
        "--show-only=templates/notes.yaml",
        "--namespace",
        namespace,
        "--values",
        base.to_str().unwrap(),
        "--set",
        sets,
    ];
    helm.run(None, &args).unwrap()
}

#[test]
fn notes_say_what_the_values_lack() {
    let helm = or_skip!(Helm::find());
    let class = "classes[0].name=a,classes[0].hostDir=/mnt/a";
    let isolated = format!("useJobForCleaning=true,nodeIsolation.enabled=true,{class}");
    let disk = format!("{class},classes[0].binding=disk");
    let none = "priorityClassName=";
    let priority = "priorityClassName to system-node-critical";
    let (empty, jobs) = ("classes is empty", "WARNING: useJobForCleaning in kube-system");
    for (namespace, sets, text, expected) in [
        ("disks", "useJobForCleaning=false", empty, true),
        ("disks", class, empty, false),
        ("disks", class, "/mnt/a  (class a)", true),
        ("disks", class, "provisioner status\\n", true),
        ("disks", "metricsPort=90", "status --listen-address=:90\\n", true),
        ("kube-system", "useJobForCleaning=true", jobs, true),
        ("kube-system", class, jobs, false),
        ("kube-system", &isolated, jobs, false),
        ("disks", "useJobForCleaning=true", jobs, false),
        ("disks", &format!("{class},{none}"), priority, false),
        ("disks", &disk, priority, false),
        ("disks", &format!("{disk},{none}"), priority, true),
    ] {
        let notes = notes(&helm, namespace, sets);
        assert_eq!(notes.contains(text), expected, "{namespace} {sets}: {notes}");
    }
}
