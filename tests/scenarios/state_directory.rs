//! The directory with the marks of devices is lost.

use std::fs;

use serde_json::json;
use support::LoopDevice;
use support::stage::{annotation, name};

use crate::kit::*;

const RECORD: &str = "local-volume-provisioner/state-directory";

#[test]
fn devices_are_dirty_after_the_state_directory_was_removed() {
    let stage = or_skip!(stage_with(&["--discovery-period=300ms"]));
    let dir = raw_class(&stage, &json!({}));
    let device = |data: bool| {
        let image = tempfile::tempfile_in(stage.sandbox.path()).unwrap();
        image.set_len(32 * MIB).unwrap();
        let device = LoopDevice::over(&image).unwrap();
        if data {
            scribble(device.path());
        }
        device
    };
    let [used, data, blank] = [true, true, false].map(device);
    let path = link(&used, &dir, "used");
    let mut provisioner = stage.provisioner();
    let pv = stage.available(&path, None);
    let bound = stage.used(&stage.bind("claim", &path));
    let recorded = || annotation(&stage.pv(&name(&pv)).unwrap(), RECORD).map(str::to_owned);
    let before = recorded().unwrap();

    let marks = stage.sandbox.path().join("state");
    for file in fs::read_dir(&marks).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    fs::remove_dir(&marks).unwrap();
    stage.eventually("liveness fails", || {
        let (code, text) = provisioner.http_get("/healthz").ok()?;
        (code == 503 && text.contains("state directory")).then_some(())
    });
    let unknown = link(&data, &dir, "data");
    stage.still(&mut provisioner, "nothing is offered", || stage.pvs_at(&unknown).is_empty());

    // The runtime makes the directory again for the next container.
    provisioner.kill();
    let mut provisioner = stage.provisioner();
    skipped(&stage, &mut provisioner, &unknown, "Dirty");
    let empty = link(&blank, &dir, "blank");
    stage.available(&empty, None);
    stage.eventually("the new directory is recorded", || {
        recorded().is_some_and(|now| now != before)
    });
    stage.delete_claim("claim");
    offered_again(&stage, &path, &bound);
    // One that is pulled and put back is still in doubt, for the next process, too.
    fs::remove_file(&unknown).unwrap();
    provisioner.kill();
    let mut provisioner = stage.provisioner();
    let unknown = link(&data, &dir, "data");
    skipped(&stage, &mut provisioner, &unknown, "Dirty");
    fs::remove_file(marks.join("doubt")).unwrap();
    stage.available(&unknown, None);
}
