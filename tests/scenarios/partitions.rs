//! A disk and its partitions in discovery directories at once: the parts are offered, never the whole
//! with them, by whatever names and in whatever classes they are found.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use support::LoopDevice;

use crate::kit::*;
use crate::stage;

#[test]
fn a_disk_is_skipped_for_its_partitions_whatever_the_names() {
    let stage = or_skip!(stage());
    let dir = raw_class(&stage, &json!({}));
    // Classes are gone through by name, too.
    let wholes = stage.class("a", &json!({ "volumeMode": "Block" }));
    let disk = LoopDevice::halved(stage.sandbox.path(), 32 * MIB).unwrap();
    let [whole, elsewhere] = [&dir, &wholes].map(|dir| link(&disk, dir, "a-disk"));
    let [first, second] = [1, 2].map(|number| {
        let path = dir.join(format!("z-part{number}"));
        symlink(disk.partition(number), &path).unwrap();
        path
    });
    let mut provisioner = stage.provisioner();
    for part in [&first, &second] {
        stage.available(part, None);
    }
    for path in [&whole, &elsewhere] {
        skipped(&stage, &mut provisioner, path, "DuplicateDevice");
        let reported = status_of(&mut provisioner, path)["detail"].to_string();
        let named = |path: &Path| reported.contains(path.to_str().unwrap());
        // It names one of the parts: the one whose PV was known at that pass.
        assert!(named(path) && (named(&first) || named(&second)), "{reported}");
    }

    // A tenant of one part is cleaned up after, and the other's data stays.
    let bound = stage.used(&stage.bind("claim", &first));
    scribble(&disk.partition(1));
    scribble(&disk.partition(2));
    stage.delete_claim("claim");
    offered_again(&stage, &first, &bound);
    assert!(secrets_on(&disk.partition(1)).is_empty());
    assert!(is_as_scribbled(&disk.partition(2)));
    assert!(stage.pvs_at(&whole).is_empty() && stage.pvs_at(&elsewhere).is_empty());
}
