use super::*;
use crate::view::PersistentVolume;

fn answer(node: &str, volumes: &Value) -> Answer {
    Answer {
        node: node.into(),
        pod: format!("kube-system/on-{node}"),
        document: json!({ "classes": [{ "name": "fast", "volumes": volumes }] }),
    }
}

fn fleet() -> Vec<Answer> {
    vec![
        answer(
            "a",
            &json!([
                { "entry": "v1", "path": "/d/v1", "pv": "pv-1", "state": "Available", "capacity": 1_u64 << 30 },
                { "entry": "v2", "path": "/d/v2", "state": "Skipped", "reason": "NotMounted" },
                { "entry": "v3", "path": "/d/v3", "pv": "pv-3", "state": "Waiting", "cleanup": { "state": "Waiting", "seconds": 5, "waitingFor": "a pod" } },
                { "entry": "v4", "path": "/d/v4", "pv": "pv-4", "state": "Missing" },
            ]),
        ),
        answer(
            "b",
            &json!([
                { "entry": "v1", "path": "/d/v1", "pv": "pv-5", "state": "Unlinked" },
                { "entry": "v2", "path": "/d/v2", "state": "Skipped", "reason": "Dirty" },
                { "entry": "v3", "path": "/d/v3", "pv": "pv-7", "state": "IdentityMismatch" },
            ]),
        ),
    ]
}

#[test]
fn what_needs_attention_comes_first() {
    let answers = fleet();
    let names: Vec<_> = sorted(&answers, None).iter().map(name).collect();
    let expected = [
        "persistentvolume/pv-7",
        "persistentvolume/pv-5",
        "b:/d/v2",
        "persistentvolume/pv-4",
        "persistentvolume/pv-3",
        "a:/d/v2",
        "persistentvolume/pv-1",
    ];
    assert_eq!(names, expected);
    assert!(sorted(&answers, Some("slow")).is_empty());
}

#[test]
fn wide_table_has_claim_policy_and_age() {
    let answers = fleet();
    let mut rows = sorted(&answers, None);
    rows.retain(|it| text(&it.report, "pv") == "pv-1");
    let now = Timestamp::UNIX_EPOCH + Duration::from_secs(7300);
    let pv: PersistentVolume = serde_json::from_value(json!({
        "metadata": { "name": "pv-1", "uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z" },
        "spec": { "persistentVolumeReclaimPolicy": "Retain", "claimRef": { "namespace": "ns", "name": "c" } },
    }))
    .unwrap();
    rows[0].pv = Some(PvView::from_api(&pv));
    let text = |format| -> String {
        let lines = lines(format, &rows, now).unwrap();
        lines.into_iter().map(|it| it.2).collect()
    };
    assert_eq!(
        text(ListFormat::Wide),
        "NODE  CLASS  ENTRY  PV    STATE      CAPACITY  SINCE  CLAIM  POLICY  AGE  WHAT\n\
         a     fast   v1     pv-1  Available  1Gi       -      ns/c   Retain  2h\n"
    );
    assert_eq!(
        text(ListFormat::Table),
        "NODE  CLASS  ENTRY  PV    STATE      CAPACITY  SINCE  WHAT\n\
         a     fast   v1     pv-1  Available  1Gi       -\n"
    );
    let json: Value = serde_json::from_str(&text(ListFormat::Json)).unwrap();
    assert_eq!(json["volumes"][0]["node"], "a");
    assert_eq!(json["volumes"][0]["class"], "fast");
    assert_eq!(json["volumes"][0]["state"], "Available");
}

/// `--watch` shows a volume again when this text changes.
#[test]
fn passing_time_is_no_change() {
    let mut answers = fleet();
    let state = |answers: &[Answer]| {
        let rows = sorted(answers, None);
        let now = Timestamp::UNIX_EPOCH;
        let lines = lines(ListFormat::Table, &rows, now).unwrap();
        let line = lines.into_iter().find(|it| it.0 == "a:/d/v3");
        line.unwrap().1
    };
    let before = state(&answers);
    answers[0].document["classes"][0]["volumes"][2]["cleanup"]["seconds"] = json!(9);
    assert_eq!(state(&answers), before);
    answers[0].document["classes"][0]["volumes"][2]["cleanup"]["waitingFor"] = json!("a mount");
    assert_ne!(state(&answers), before);
}
