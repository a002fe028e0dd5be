use super::*;
use crate::cmd::table::Tint;
use crate::plan::VolumeState;

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
                  "cleanup": { "state": "Running", "attempts": 1, "seconds": 4000, "progress": 0.376, "entriesRemoved": 0,
                               "bytesWiped": 400_u64 << 30, "rate": 314_572_800.0, "eta": 7300.5,
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

fn read(value: &Value) -> Document {
    Document::read(value).unwrap()
}

fn answer(value: Value) -> Answer {
    let document = read(&value);
    Answer {
        node: document.node.clone(),
        pod: format!("kube-system/on-{}", document.node),
        result: Ok((value, document)),
    }
}

#[test]
fn node_is_shown_with_problems_first() {
    let text = node::show(&read(&eventful()), false, false);
    assert_eq!(
        text,
        r#"worker-3: NOT READY, DEGRADED, PAUSED
  not ready:  class "fast": entry "sdd" cannot be read
  degraded:   no permission to patch persistentvolumes: forbidden
  paused:     nothing new is wiped, by pauseCleaning or an annotation of the Node
  log level:  debug

class fast: not ready; 1 CleaningFailed, 2 Skipped, 1 Cleaning, 1 Waiting, 1 Bound
ENTRY           PV          STATE                    CAPACITY  SINCE  WHAT
sdc             local-pv-3  Released/CleaningFailed  1Ti       3m     attempt 4 failed: writing at 4096: input/output error; next try in 40s
sdd\u{1b}[2J\n  -           Skipped                  -         -      Unreadable: opening it: input/output error
sdb             local-pv-2  Released/Cleaning        1Ti       1h6m   37 % (400.0 GiB), 300.0 MiB/s, 2h1m left
sdf             local-pv-6  Released/Waiting         777       59s    waiting: pod a/b uses it
sda             local-pv-1  Bound                    1Ti       -
sde             -           Skipped                  -         -      NamePatternMismatch

class empty: ready; no volumes

class broken: not ready; no volumes
fault: volumeMode: "Blok" is none
"#
    );
}

#[test]
fn running_job_is_named() {
    let mut status = well("a");
    status["classes"] = json!([{ "name": "raw", "ready": true, "volumes": [{
        "entry": "sda", "pv": "local-pv-1", "phase": "Released", "capacity": 777, "state": "Cleaning",
        "cleanup": { "state": "Running", "seconds": 59, "job": "storage/cleanup-local-pv-1" },
    }] }]);
    let text = node::show(&read(&status), false, false);
    assert!(
        text.contains("59s    by Job storage/cleanup-local-pv-1"),
        "{text}"
    );
}

#[test]
fn problems_flag_hides_other_volumes() {
    let text = node::show(&read(&eventful()), true, false);
    for (word, is_there) in [
        ("sdc", true),
        ("Unreadable", true),
        ("Blok", true),
        ("sdb", false),
        ("sde", false),
        ("class empty", false),
    ] {
        assert_eq!(text.contains(word), is_there, "{word} in\n{text}");
    }
    let text = node::show(&read(&well("a")), true, false);
    assert_eq!(text, "a: ready\nNo problems found.\n");
}

#[test]
fn trouble_is_coloured_and_control_sequences_are_escaped() {
    let text = node::show(&read(&eventful()), false, true);
    assert!(
        text.contains("\x1b[1;31mReleased/CleaningFailed"),
        "{text:?}"
    );
    assert!(!text.contains("\x1b[2J"), "{text:?}");
}

#[test]
fn nodes_have_one_line_each_with_problems_first() {
    let lost = Answer {
        node: "b".into(),
        pod: "kube-system/x".into(),
        result: Err("it is gone".into()),
    };
    let answers = [answer(well("a")), lost, answer(eventful())];
    assert_eq!(
        fleet::show(&answers, false, false),
        r#"3 nodes: 1 ready, 1 not ready or degraded, 1 gave no answer

NODE      STATE                        VOLUMES  CLEANING  TROUBLES  WHAT
b         no answer                    -        -         -         pod kube-system/x: it is gone
worker-3  NOT READY, DEGRADED, PAUSED  4        3         2         class "fast": entry "sdd" cannot be read (and 3 more)
a         ready                        1        0         0
"#
    );
    let text = fleet::show(&answers, true, false);
    assert!(!text.contains("\na "), "{text}");
    assert!(
        text.contains("class fast") && text.contains("sdc"),
        "{text}"
    );
    let text = fleet::show(&[answer(well("a"))], true, false);
    assert_eq!(text, "1 node: 1 ready\nNo problems found.\n");
}

#[test]
fn json_is_the_document_or_a_list_of_documents() {
    let problems = shown(&eventful(), true);
    let left: Vec<_> = problems["classes"][0]["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| volume["state"].clone())
        .collect();
    assert_eq!(left, ["CleaningFailed", "Skipped"]);
    assert_eq!(shown(&eventful(), false), eventful());
    let answers = [answer(well("a")), answer(eventful())];
    assert_eq!(list(&answers, false)["nodes"][0]["status"], well("a"));
    assert_eq!(list(&answers, true)["nodes"].as_array().unwrap().len(), 1);
}

#[test]
fn every_state_has_a_concern() {
    use VolumeState as S;
    for (state, concern) in [
        (S::Available, Concern::Calm),
        (S::Bound, Concern::Calm),
        (S::Retained, Concern::Calm),
        (S::Creating, Concern::Busy),
        (S::Due, Concern::Busy),
        (S::Waiting, Concern::Busy),
        (S::Cleaning, Concern::Busy),
        (S::Cleaned, Concern::Busy),
        (S::Paused, Concern::Busy),
        (S::Terminating, Concern::Busy),
        (S::Skipped, Concern::Trouble),
        (S::CleaningFailed, Concern::Trouble),
        (S::Refused, Concern::Trouble),
        (S::IdentityMismatch, Concern::Trouble),
        (S::Missing, Concern::Trouble),
        (S::NotMounted, Concern::Trouble),
        (S::Unhealthy, Concern::Trouble),
        (S::Foreign, Concern::Trouble),
        (S::ClassGone, Concern::Trouble),
        (S::Failed, Concern::Trouble),
    ] {
        let volume = Volume {
            state: json!(state).as_str().unwrap().into(),
            ..Volume::default()
        };
        assert_eq!(volume.concern(), concern, "{state:?}");
    }
    let strange = Volume {
        state: "OfALaterVersion".into(),
        ..Volume::default()
    };
    assert_eq!(strange.concern(), Concern::Trouble);
    let long: Volume = serde_json::from_value(json!({
        "state": "Waiting", "cleanup": { "state": "Waiting", "seconds": 600 },
    }))
    .unwrap();
    assert_eq!(long.concern(), Concern::Trouble, "it waits for too long");
}

#[test]
fn invalid_answer_is_explained() {
    for (text, words) in [
        ("<html>", "not the status of a provisioner"),
        ("{}", "no schemaVersion"),
        (r#"{"schemaVersion":2}"#, "has version 2"),
        (r#"{"schemaVersion":1,"ready":"yes"}"#, "invalid type"),
    ] {
        let error = format!("{:#}", ask::read(text).unwrap_err());
        assert!(error.contains(words), "{text}: {error}");
    }
    let (_, tint) = node::verdict(&read(&well("a")));
    assert_eq!(tint, Tint::Good);
}
