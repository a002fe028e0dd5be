use std::fs;

use super::checks::{BEFORE_OFFER, OF_PV};
use super::*;

/// The names in the first column of a table of the docs.
fn documented(page: &str, heading: &str) -> Vec<String> {
    let path = format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once(heading).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names =
        cells.flat_map(|cell| cell.split(',').map(|it| it.trim().trim_matches('`').to_owned()));
    names.collect()
}

fn volume(report: Value) -> Volume {
    Volume {
        node: "worker-3".into(),
        class: "fast".into(),
        report,
        is_node_paused: false,
        pv: None,
    }
}

#[test]
fn each_documented_state_and_reason_has_a_next_step() {
    let states = documented("status.md", "| state | meaning |");
    assert_eq!(states.len(), 22, "{states:?}");
    for state in states.iter().filter(|it| *it != "Skipped") {
        let next = next(&json!({ "state": state }));
        assert!(!next.contains("does not know"), "{state}: {next}");
    }
    let reasons = documented("why-no-pv.md", "| reason | what it means | what to do |");
    assert_eq!(reasons.len(), 22, "{reasons:?}");
    for reason in &reasons {
        let next = next(&json!({ "state": "Skipped", "reason": reason }));
        assert!(!next.contains("does not know"), "{reason}: {next}");
        let of = BEFORE_OFFER.iter().filter(|(_, all)| all.contains(&reason.as_str()));
        assert_eq!(of.count(), 1, "{reason} is of one check");
    }
    for (_, of) in OF_PV {
        assert!(of.iter().all(|it| states.contains(&(*it).to_owned())), "{of:?}");
    }
}

#[test]
fn checks_after_the_failed_one_were_not_made() {
    let results =
        |report: Value| -> Vec<_> { checks(&report).iter().map(|it| it.passed).collect() };
    let dirty = results(json!({ "state": "Skipped", "reason": "Dirty" }));
    assert_eq!(dirty[..8], [Some(true); 8]);
    assert_eq!(dirty[8], Some(false));
    assert_eq!(dirty[9..], [None; 4]);
    assert_eq!(results(json!({ "state": "Bound" })), [Some(true); 6]);
    let lost = results(json!({ "state": "Missing" }));
    assert_eq!(lost[..4], [Some(true), Some(true), Some(false), None]);
    let later = results(json!({ "state": "Skipped", "reason": "OfALaterVersion" }));
    assert_eq!(later, [None; 13]);
}

#[test]
fn dirty_volume_is_explained_with_its_consents() {
    let report = json!({
        "entry": "ssd1", "path": "/mnt/disks/ssd1", "state": "Skipped", "reason": "Dirty",
        "identity": "v1:wwid=naa.5", "capacity": 1_u64 << 40,
        "mark": { "state": "used", "pvUid": "u1", "cluster": "c1" },
        "detail": "/mnt/disks/ssd1 may hold the data of a tenant; to decide: x/h=wipe:-:h:m (deletes), or =accept:-:h:m (offers)",
    });
    let text = explained(&volume(report));
    for line in [
        "worker-3:/mnt/disks/ssd1 of class fast",
        "  marked    used, of PV UID u1, cluster c1",
        "  there     v1:wwid=naa.5",
        "✔ no other PV has the disk",
        "- it is empty, if its class requires that               not checked yet",
        "next: it is not offered until you consent; first save the data, if it is needed",
        "  $ kubectl local-volume consent worker-3:/mnt/disks/ssd1 --accept",
        "  $ kubectl local-volume consent worker-3:/mnt/disks/ssd1 --wipe",
    ] {
        assert!(text.lines().any(|it| it == line), "no {line:?} in\n{text}");
    }
    assert!(text.contains("✘ its mark names no tenant"), "{text}");
    assert!(!text.contains("wipe:-"), "{text}");
}
