use super::*;

/// Of a Node.
const UID: &str = "6c1d2a30-5f0e-4b8e-9d60-2f6b7c9f1e11";

const ZONE: &str = "topology.kubernetes.io/zone";

/// The disk of a claim, of the dead node `a`, is on node `b`, and no pod uses the claim.
fn moved_disk() -> Present {
    let manifest = json!({
        "metadata": {
            "name": "pv",
            "uid": "old",
            "resourceVersion": "1",
            "labels": { LABEL_HOSTNAME: "a", "zone": "x", ZONE: "west" },
            "annotations": {
                ANNOTATION_PROVISIONED_BY: format!("local-volume-provisioner-a-{UID}"),
                ANNOTATION_CONSENT: "forget:old",
                "local-volume-provisioner/offer": "token",
                "local-volume-provisioner/used": "true",
            },
        },
        "spec": {
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
            "claimRef": { "namespace": "shop", "name": "db", "uid": "claim", "resourceVersion": "7" },
            "local": { "path": "/mnt/a" },
        },
        "status": { "phase": "Bound" },
    });
    Present {
        of: view(&manifest).claim.unwrap(),
        pv: view(&manifest),
        manifest,
        claim: Some(ClaimView {
            uid: "claim".into(),
            resource_version: "1".into(),
            created: None,
            volume: Some("pv".into()),
            is_bound: true,
            deleting: false,
            phase: Some("Bound".into()),
            of_pod: None,
        }),
        pods: Vec::new(),
        answers: vec![answer("a", &[]), answer("b", &[reported("/mnt/b", "Skipped", "old")])],
        node: ObjectMeta {
            name: Some("b".into()),
            uid: Some(UID.into()),
            labels: Some(
                [(LABEL_HOSTNAME.into(), "b.example".into()), (ZONE.into(), "east".into())].into(),
            ),
            ..ObjectMeta::default()
        },
        kept: None,
    }
}

fn view(manifest: &Value) -> PvView {
    PvView::from_api(&serde_json::from_value(manifest.clone()).unwrap())
}

fn reported(path: &str, state: &str, uid: &str) -> Value {
    let pv = (state != "Skipped").then_some("pv");
    json!({
        "path": path, "state": state, "reason": "Dirty", "pv": pv, "identity": "fs-uuid",
        "mark": { "pvUid": uid, "state": "used" },
    })
}

fn answer(node: &str, volumes: &[Value]) -> Answer {
    Answer {
        node: node.into(),
        pod: String::new(),
        document: json!({ "classes": [{ "name": "fast", "volumes": volumes }] }),
    }
}

fn set(present: &mut Present, pointer: &str, value: Value) {
    *present.manifest.pointer_mut(pointer).unwrap() = value;
    present.pv = view(&present.manifest);
}

fn retained() -> Present {
    let mut present = moved_disk();
    set(&mut present, "/spec/persistentVolumeReclaimPolicy", json!("Retain"));
    present
}

fn keep(present: &mut Present, manifest: &Value) {
    present.kept = Some(manifest.to_string());
}

#[test]
fn steps_follow_from_the_state() {
    let mut present = moved_disk();
    assert_eq!(present.step("b").unwrap(), Step::Keep);
    present.pods = vec!["shop/db-0".into()];
    assert_eq!(present.step("b").unwrap(), Step::AwaitPods);

    let mut present = retained();
    let manifest = present.moved(&reported("/mnt/b", "Skipped", "old")).unwrap();
    let save = Step::Save(manifest.to_string());
    assert_eq!(present.step("b").unwrap(), save);
    // The disk was meant for another path.
    let elsewhere = present.moved(&reported("/mnt/c", "Skipped", "old"));
    keep(&mut present, &elsewhere.unwrap());
    assert_eq!(present.step("b").unwrap(), save);
    keep(&mut present, &manifest);
    let delete = Step::Delete(manifest.clone());
    assert_eq!(present.step("b").unwrap(), delete);

    // There is no PV, and its manifest is that of the claim.
    (present.pv, present.manifest) = (view(&manifest), manifest.clone());
    let create = Step::Create(manifest.clone());
    assert_eq!(present.step("b").unwrap(), create);
    // Its claim was deleted meanwhile: the PV can be given to a new one.
    let claim = present.claim.take();
    assert_eq!(present.step("b").unwrap(), create);
    present.claim = claim;
    present.answers = vec![answer("b", &[reported("/mnt/c", "Skipped", "old")])];
    assert!(matches!(present.step("b").unwrap(), Step::Save(_)));

    // There is a new PV.
    present.manifest["metadata"]["uid"] = json!("new");
    present.pv = view(&present.manifest);
    for (volumes, phase, expected) in [
        (vec![], "Lost", "Await"),
        (vec![reported("/mnt/b", "MarkMismatch", "old")], "Lost", "Await"),
        (vec![reported("/mnt/b", "Bound", "new")], "Lost", "Await"),
        (vec![reported("/mnt/b", "Bound", "new")], "Bound", "Finish"),
    ] {
        present.claim.as_mut().unwrap().phase = Some(phase.into());
        present.answers = vec![answer("b", &volumes)];
        let step = format!("{:?}", present.step("b").unwrap());
        assert!(step.starts_with(expected), "{volumes:?} {phase}: {step}");
    }
    set(&mut present, "/metadata/annotations", json!({}));
    assert_eq!(present.step("b").unwrap(), Step::Finish);
    present.kept = None;
    assert_eq!(present.step("b").unwrap(), Step::Done);
}

#[test]
fn new_manifest_names_the_new_place_and_the_former_mark() {
    let present = retained();
    let manifest = present.moved(&reported("/mnt/b", "Skipped", "old")).unwrap();
    let pv = view(&manifest);
    assert_eq!((&*pv.name, &*pv.uid), ("pv", ""));
    assert_eq!(pv.claim, present.pv.claim);
    assert_eq!(pv.path().unwrap().as_str(), "/mnt/b");
    assert_eq!(pv.hostnames, ["b.example"]);
    assert_eq!(manifest["metadata"]["labels"]["zone"], "x");
    assert_eq!(manifest["metadata"]["labels"][ZONE], "east");
    assert_eq!(pv.hostname_label.as_deref(), Some("b.example"));
    assert_eq!(pv.moved_from.as_deref(), Some("old:token"));
    assert_eq!(pv.identity.as_deref(), Some("fs-uuid"));
    assert_eq!((pv.used, pv.consent), (true, None));
    let by = format!("local-volume-provisioner-b-{UID}");
    assert_eq!(pv.provisioned_by, Some(by));

    let mut present = retained();
    let by = "/metadata/annotations/pv.kubernetes.io~1provisioned-by";
    set(&mut present, by, json!("local-volume-provisioner-a"));
    let manifest = present.moved(&reported("/mnt/b", "Skipped", "old")).unwrap();
    let by = "local-volume-provisioner-b";
    assert_eq!(view(&manifest).provisioned_by.as_deref(), Some(by));

    // A null would be no label, and a manifest that cannot be read again.
    present.node.labels.as_mut().unwrap().remove(ZONE);
    let manifest = present.moved(&reported("/mnt/b", "Skipped", "old"));
    let manifest = manifest.unwrap();
    assert_eq!(manifest["metadata"]["labels"].get(ZONE), None);
    assert_eq!(view(&manifest).hostname_label.as_deref(), Some("b.example"));
}

/// The error, and what is not certain.
type Case<'a> = (&'a str, &'a dyn Fn(&mut Present));

#[test]
fn what_is_not_certain_is_refused_with_the_remedy() {
    let skipped = |path: &str| reported(path, "Skipped", "old");
    let is_gone = |it: &mut Present| it.claim = None;
    let is_another = |it: &mut Present| it.claim.as_mut().unwrap().uid = "later".into();
    let is_deleted = |it: &mut Present| it.claim.as_mut().unwrap().deleting = true;
    let first = "first create it again: kubectl local-volume rebind pv";
    let cases: [Case; 12] = [
        (first, &is_gone),
        (first, &is_another),
        (first, &is_deleted),
        ("more than one volume has the mark of PV pv: a:/mnt/x, b:/mnt/b", &|it| {
            it.answers[0] = answer("a", &[skipped("/mnt/x")]);
        }),
        ("a:/mnt/a reports the disk of PV pv as in use: unmount it there first", &|it| {
            it.answers[0] = answer("a", &[reported("/mnt/a", "Bound", "old")]);
        }),
        // It has the disk of the PV and a copy.
        ("b:/mnt/a reports the disk of PV pv as in use", &|it| {
            it.answers[1] = answer("b", &[skipped("/mnt/b"), reported("/mnt/a", "Bound", "old")]);
        }),
        ("in the directory of class fast on node b. There it has b:/mnt/x (Dirty)", &|it| {
            it.answers[1] = answer("b", &[reported("/mnt/x", "Skipped", "another")]);
        }),
        ("no volume has the mark of PV pv (of PV UID old)", &|it| {
            let mut volume = skipped("/mnt/b");
            volume["mark"] = Value::Null;
            it.answers[1] = answer("b", &[volume]);
        }),
        ("the mark at b:/mnt/b is offered, which does not prove", &|it| {
            let mut volume = skipped("/mnt/b");
            volume["mark"]["state"] = json!("offered");
            it.answers[1] = answer("b", &[volume]);
        }),
        ("is a:/mnt/x: run the command with --to a", &|it| {
            it.answers = vec![answer("a", &[skipped("/mnt/x")]), answer("b", &[])];
        }),
        ("of class slow: mount it in the directory of class fast", &|it| {
            it.answers[1].document["classes"][0]["name"] = json!("slow");
        }),
        ("the provisioner of node b does not answer: timed out", &|it| {
            it.answers[1].document = json!({ "notReady": ["timed out"] });
        }),
    ];
    for (expected, change) in cases {
        let mut present = moved_disk();
        present.answers[0] = answer("a", &[reported("/mnt/a", "NotMounted", "")]);
        assert_eq!(present.step("b").unwrap(), Step::Keep);
        change(&mut present);
        let error = present.step("b").unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
