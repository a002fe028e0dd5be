//! The API server refuses to let a clean volume's PV go: a policy, a webhook or a missing permission.
//! No pass comes by itself: the refusal has to be a reason for one.

use std::fs::File;

use super::*;
use crate::kit::{has_secret, keep_secret, metric, offered_again, stage_with, tmpfs};

const WEBHOOK: &str = "admission webhook \"pv.example.com\" denied the request: keep finalizers";

/// What the API server may say no with.
const REFUSALS: [Trouble; 4] = [
    ("webhook", |fault| fault.answer(Answer::code(403).message(WEBHOOK))),
    ("validation", |fault| fault.answer(Answer::code(422).message(WEBHOOK))),
    ("permission", FaultBuilder::forbid),
    ("again", |fault| fault.answer(Answer::code(403).message(WEBHOOK))),
];

#[test]
fn refused_releases_hold_no_slot_are_reported_and_repeat_no_wipe() {
    let stage = or_skip!(stage_with(&["--discovery-period=1h"]));
    stage.class("fast", &json!({}));
    // As many as may be cleaned at a time, and one more.
    let entries = REFUSALS.iter().map(|(entry, _)| *entry).chain(["further"]);
    let volumes: Vec<_> = entries
        .map(|entry| {
            let dir = format!("disks/fast/{entry}");
            let path = tmpfs(&stage, &dir);
            (entry, path)
        })
        .collect();
    let mut provisioner = stage.provisioner();
    let pvs: Vec<_> = volumes.iter().map(|(entry, path)| stage.occupy(entry, path)).collect();
    let refused: Vec<_> = REFUSALS
        .iter()
        .zip(&pvs)
        .map(|((_, refuse), pv)| {
            let patch = stage.faults().on(Verb::Patch).resource(PVS);
            // The commit comes first.
            refuse(patch.name(&name(pv)).skip(1))
        })
        .collect();
    for (entry, _) in &volumes[..REFUSALS.len()] {
        stage.delete_claim(entry);
    }
    for fault in &refused {
        stage.eventually("the release is refused", || fault.hits() >= 1);
    }
    // Only another wipe would delete these.
    for (_, path) in &volumes[..REFUSALS.len()] {
        keep_secret(path);
    }
    let (entry, further) = &volumes[REFUSALS.len()];
    stage.delete_claim(entry);
    offered_again(&stage, further, &pvs[REFUSALS.len()]);

    let unhealthy = |path: &Path, pv| {
        let (path, pv) = (path.display(), name(pv));
        format!(
            "unhealthy_persistentvolume{{path=\"{path}\",pv=\"{pv}\",reason=\"VolumeFailedDelete\"}}"
        )
    };
    for ((((entry, path), pv), fault), (refusal, _)) in
        volumes.iter().zip(&pvs).zip(&refused).zip(REFUSALS)
    {
        let text = stage.event("VolumeFailedDelete", &format!("{} is clean", path.display()));
        assert!(text.contains(&name(pv)), "{text}");
        let words = match refusal {
            "permission" => "deploy/rbac.yaml",
            _ => WEBHOOK,
        };
        assert!(text.contains(words), "{text}");
        assert_eq!(metric(&mut provisioner, &unhealthy(path, pv)), Some(1));
        stage.eventually(&format!("{entry}: it is tried again"), || fault.hits() >= 4);
        let held = stage.pvs_at(path);
        assert!(held.len() == 1 && uid(&held[0]) == uid(pv), "{entry}: not offered");
        let lock = File::open(path).unwrap().try_lock();
        assert!(lock.is_err(), "{entry}: nothing else may clean it");
    }
    assert_eq!(metric(&mut provisioner, "proctable_running"), Some(0));
    assert_eq!(metric(&mut provisioner, "proctable_succeeded"), Some(refused.len() as u64));

    for fault in &refused {
        fault.clear();
    }
    for ((entry, path), pv) in volumes.iter().zip(&pvs).take(refused.len()) {
        stage.within(A_RETRY_LATER, &format!("{entry} is released"), || {
            let found = stage.pvs_at(path);
            found.iter().all(|found| uid(found) != uid(pv))
        });
        offered_again(&stage, path, pv);
        assert!(has_secret(path), "{entry}: wiped once");
        assert_eq!(wipes(&provisioner, path), 1, "{entry}");
        stage.eventually("no problem is reported any more", || {
            let series = metric(&mut provisioner, &unhealthy(path, pv));
            series.is_none()
        });
    }
}
