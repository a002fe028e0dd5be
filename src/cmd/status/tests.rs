use serde_json::Value;

use super::fleet::document;
use super::show::Severity;
use super::*;
use crate::args::{Args, Command};
use crate::plan::VolumeState;
use crate::types::SkipReason;

/// A node whose volumes have all kinds of states.
fn eventful() -> Value {
    json!({
        "schemaVersion": 1,
        "node": "worker-3",
        "ready": false,
        "notReady": ["class \"fast\": entry \"sdd\" cannot be read"],
        "degraded": ["no permission to patch persistentvolumes: forbidden"],
        "paused": true,
        "logLevel": "debug",
        "somethingNew": [],
        "classes": [
            { "name": "fast", "ready": false, "faults": [], "volumes": [
                { "entry": "sda", "pv": "local-pv-1", "phase": "Bound", "capacity": 1_u64 << 40, "state": "Bound" },
                { "entry": "sdb", "pv": "local-pv-2", "phase": "Released", "capacity": 1_u64 << 40, "state": "Cleaning",
                  "cleanup": { "state": "Running", "attempts": 1, "seconds": 4000, "progress": 0.390_625, "entriesRemoved": 0,
                               "bytesWiped": 400_u64 << 30, "bytesTotal": 1_u64 << 40, "rate": 107_374_182.4, "eta": 6240.0,
                               "waitingFor": null, "lastError": null, "retryInSeconds": null } },
                { "entry": "sdc", "pv": "local-pv-3", "phase": "Released", "capacity": 1_u64 << 40, "state": "CleaningFailed",
                  "detail": "writing at 4096: input/output error",
                  "cleanup": { "state": "Failed", "attempts": 4, "seconds": 200, "progress": null, "entriesRemoved": 0,
                               "bytesWiped": 0, "rate": null, "eta": null, "waitingFor": null,
                               "lastError": "writing at 4096: input/output error", "retryInSeconds": 40 } },
                { "entry": "sdd\u{1b}[2J\n", "pv": null, "phase": null, "capacity": null, "state": "Skipped",
                  "reason": "Unreadable", "detail": "opening it: input/output error" },
                { "entry": "sde", "pv": null, "state": "Skipped", "reason": "NamePatternMismatch" },
                { "entry": "sdf", "pv": "local-pv-6", "phase": "Released", "capacity": 777, "state": "Waiting",
                  "cleanup": { "state": "Waiting", "attempts": 0, "seconds": 59, "waitingFor": "pod a/b uses it" } },
            ] },
            { "name": "empty", "ready": true, "faults": [], "volumes": [] },
            { "name": "broken", "ready": false, "faults": ["volumeMode: \"Blok\" is none"], "volumes": [] },
        ],
    })
}

fn well(node: &str) -> Value {
    json!({
        "schemaVersion": 1, "node": node, "ready": true, "notReady": [], "degraded": [],
        "paused": false, "logLevel": "info",
        "classes": [{ "name": "fast", "ready": true, "faults": [], "volumes": [
            { "entry": "sda", "pv": "local-pv-1", "phase": "Available", "capacity": 1_u64 << 30, "state": "Available" },
        ] }],
    })
}

fn answer(value: &Value) -> Answer {
    let document = document(&value.to_string()).unwrap();
    let node = show::text(&document, "node");
    Answer { node: node.to_owned(), pod: format!("kube-system/on-{node}"), document }
}

#[test]
fn node_is_shown_with_problems_first() {
    let text = show::node(&eventful());
    assert_eq!(
        text,
        r#"worker-3: NOT READY, DEGRADED, PAUSED, 2 volumes with problems
  not ready:  class "fast": entry "sdd" cannot be read
  degraded:   no permission to patch persistentvolumes: forbidden
  paused:     nothing new is wiped, by pauseCleaning or an annotation of the Node

class fast
ENTRY           PV          STATE                    CAPACITY  SINCE    WHAT
sdc             local-pv-3  Released/CleaningFailed  1Ti       3m20s    attempt 4 failed: writing at 4096: input/output error; next try in 40s
sdd\u{1b}[2J\n  -           Skipped                  -         -        Unreadable: opening it: input/output error
sdb             local-pv-2  Released/Cleaning        1Ti       1h6m40s  400.0 GiB of 1.0 TiB wiped (39 %), 102.4 MiB/s, 1h44m left
sdf             local-pv-6  Released/Waiting         777       59s      waiting: pod a/b uses it
sda             local-pv-1  Bound                    1Ti       -
sde             -           Skipped                  -         -        NamePatternMismatch

class empty

class broken
fault: volumeMode: "Blok" is none
"#
    );
}

#[test]
fn disks_are_shown_with_the_command_that_approves_them() {
    let mut status = well("a");
    status["classes"][0]["disks"] = json!([
        { "link": "/dev/disk/by-id/nvme-Fast_17", "name": "nvme1n1", "model": "Fast_SSD", "capacity": 894_u64 << 30, "leftAlone": null },
        { "link": "/dev/disk/by-id/nvme-Boot_3", "name": "nvme0n1", "model": "Boot\u{1b}", "capacity": 238_u64 << 30,
          "leftAlone": "it is smaller than minSize" },
        { "link": "/dev/disk/by-id/usb-1", "name": "sda", "model": null, "capacity": null, "leftAlone": "input/output error" },
    ]);
    let table = r"class fast
ENTRY  PV          STATE      CAPACITY  SINCE  WHAT
sda    local-pv-1  Available  1Gi       -
DISK     SIZE   MODEL       LINK                          WHAT
nvme1n1  894Gi  Fast_SSD    /dev/disk/by-id/nvme-Fast_17  to be taken in
nvme0n1  238Gi  Boot\u{1b}  /dev/disk/by-id/nvme-Boot_3   left alone: it is smaller than minSize
sda      -      -           /dev/disk/by-id/usb-1         left alone: input/output error
";
    assert_eq!(show::classes(&status), format!("\n{table}"));
    status["classes"][0]["toApprove"] = "6c1d2a305f0e4b8e".into();
    let command = "kubectl local-volume approve a --class fast --plan 6c1d2a305f0e4b8e";
    let expected = format!("\n{table}to approve: {command}\n");
    assert_eq!(show::classes(&status), expected);
    // A disk that waits is no problem.
    assert!(show::is_well(&status));
    // discover names no node.
    status.as_object_mut().unwrap().remove("node");
    let text = show::classes(&status);
    assert!(text.contains("approve NODE --class fast"), "{text}");
}

#[test]
fn running_job_is_named() {
    let mut status = well("a");
    status["classes"] = json!([{ "name": "raw", "ready": true, "volumes": [{
        "entry": "sda", "pv": "local-pv-1", "phase": "Released", "capacity": 777, "state": "Cleaning",
        "cleanup": { "state": "Running", "seconds": 59, "job": "storage/cleanup-local-pv-1" },
    }] }]);
    let text = show::node(&status);
    assert!(text.contains("59s    by Job storage/cleanup-local-pv-1"), "{text}");
}

#[test]
fn nodes_have_one_line_each_with_problems_first() {
    let lost = Answer {
        node: "b".into(),
        pod: "kube-system/x".into(),
        document: json!({ "ready": false, "notReady": ["pod kube-system/x: it is gone"] }),
    };
    let answers = [answer(&well("a")), lost, answer(&eventful())];
    assert_eq!(
        show::nodes(&answers),
        r#"3 nodes: 1 ready

NODE      STATE                        PROBLEMS  FIRST PROBLEM
b         NOT READY                    1         pod kube-system/x: it is gone
worker-3  NOT READY, DEGRADED, PAUSED  4         class "fast": entry "sdd" cannot be read
a         ready                        0
"#
    );
}

#[test]
fn json_is_the_document_or_a_list_of_documents() {
    let shown = |answers: &[Answer], line: &str| {
        let line = format!("local-volume-provisioner status -o json {line}");
        let args = Args::from_command_line(line.split_whitespace().map(Into::into), false);
        let Command::Status(request) = args.unwrap().command else {
            panic!("another command");
        };
        let json = text(&request, answers).unwrap();
        serde_json::from_str::<Value>(&json).unwrap()
    };
    let answers = [answer(&well("a")), answer(&eventful())];
    assert_eq!(shown(&answers[..1], "--node a"), well("a"));
    let list = shown(&answers[..1], "--all");
    assert_eq!(list["nodes"][0]["pod"], "kube-system/on-a");
    assert_eq!(list["nodes"][0]["status"], well("a"));
    let list = shown(&answers, "--node a");
    assert_eq!(list["nodes"][1]["status"], eventful());
}

#[test]
fn severity_of_each_state_and_reason() {
    use Severity::{Attention, None, Problem};
    use SkipReason as R;
    use VolumeState as S;
    for (state, severity) in [
        (S::Available, None),
        (S::Bound, None),
        (S::Retained, None),
        (S::Creating, None),
        (S::Due, None),
        (S::Waiting, None),
        (S::Cleaning, None),
        (S::Cleaned, None),
        (S::Paused, None),
        (S::Terminating, None),
        (S::Skipped, Problem),
        (S::CleaningFailed, Problem),
        (S::Refused, Problem),
        (S::IdentityMismatch, Problem),
        (S::MarkMismatch, Problem),
        (S::Missing, Problem),
        (S::NotMounted, Problem),
        (S::Unhealthy, Problem),
        (S::Foreign, Problem),
        (S::ClassGone, Problem),
        (S::Failed, Problem),
    ] {
        let volume = json!({ "state": state });
        assert_eq!(show::severity(&volume), severity, "{state:?}");
    }
    for (reason, severity) in [
        (R::NotMounted, Attention),
        (R::NotADirectoryOrBlockDevice, Attention),
        (R::ModeMismatch, Attention),
        (R::NoCapacity, Problem),
        (R::NameNotUtf8, Attention),
        (R::DuplicateDevice, Problem),
        (R::NestedVolume, Attention),
        (R::DeviceInUse, Problem),
        (R::VolumeInUse, Problem),
        (R::SystemStorage, Attention),
        (R::NotLocal, Attention),
        (R::NamePatternMismatch, None),
        (R::ClassMissing, Problem),
        (R::ClassInvalid, Problem),
        (R::CleanupRunning, None),
        (R::PathClaimedByOtherPV, Problem),
        (R::IdentityOnOtherPV, Problem),
        (R::NotEmpty, Attention),
        (R::Dirty, Problem),
        (R::Unreadable, Problem),
        (R::TimedOut, Problem),
    ] {
        let volume = json!({ "state": "Skipped", "reason": reason });
        assert_eq!(show::severity(&volume), severity, "{reason:?}");
    }
    for volume in [
        json!({ "state": "OfALaterVersion" }),
        json!({ "state": "Waiting", "cleanup": { "state": "Waiting", "seconds": 600 } }),
    ] {
        assert_eq!(show::severity(&volume), Problem, "{volume}");
    }
}

#[test]
fn invalid_answer_is_explained() {
    for (text, words) in [
        ("<html>", "not the status of a provisioner"),
        ("{}", "schemaVersion is null"),
        (r#"{"schemaVersion":2}"#, "schemaVersion is 2"),
    ] {
        let error = format!("{:#}", document(text).unwrap_err());
        assert!(error.contains(words), "{text}: {error}");
    }
}
