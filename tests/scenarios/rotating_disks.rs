//! One cleanup at a time for each disk that has to seek.

use std::os::unix::fs::symlink;

use serde_json::json;
use support::LoopDevice;

use crate::kit::*;
use crate::stage;

/// What the cleaners of two partitions of a disk, released at the same time, saw of each other.
fn cleaners_of_partitions(rotational: bool) -> Option<Vec<String>> {
    let stage = stage()?;
    let scratch = stage.sandbox.path().to_owned();
    // How often to look for the other cleaner, which either never comes or comes whenever a busy
    // machine lets it.
    let looks = if rotational { "30" } else { "200" };
    let script = "cd $0; touch at-work.$$; for i in $(seq $1); do \
         [ $(ls at-work.* | wc -l) = 2 ] && echo together >> seen && break; sleep 0.1; done; \
         sleep 0.3; rm at-work.$$; echo done >> seen; \
         exec dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=8 conv=notrunc status=none";
    let command = json!(["/bin/sh", "-c", script, scratch, looks]);
    let dir = raw_class(&stage, &json!({ "blockCleanerCommand": command }));
    let disk = LoopDevice::halved(&scratch, 32 * MIB).unwrap();
    disk.set_rotational(rotational).unwrap();
    let _provisioner = stage.provisioner();
    let volumes = [1, 2].map(|number| {
        let path = dir.join(format!("part-{number}"));
        symlink(disk.partition(number), &path).unwrap();
        path
    });
    let bound = [0, 1].map(|at| stage.used(&stage.bind(&format!("claim-{at}"), &volumes[at])));
    for at in [0, 1] {
        stage.delete_claim(&format!("claim-{at}"));
    }
    for (path, bound) in volumes.iter().zip(&bound) {
        offered_again(&stage, path, bound);
    }
    Some(lines(&scratch.join("seen")))
}

#[test]
fn two_partitions_of_a_disk_that_has_to_seek_are_never_cleaned_at_once() {
    let seen = or_skip!(cleaners_of_partitions(true));
    assert_eq!(seen, ["done", "done"]);
}

#[test]
fn two_partitions_of_any_other_disk_are() {
    let seen = or_skip!(cleaners_of_partitions(false));
    assert!(seen.contains(&"together".to_owned()), "{seen:?}");
}
