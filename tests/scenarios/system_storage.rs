//! Storage in the discovery directory that is not this node's to wipe.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use serde_json::json;
use support::Stage;

use crate::hung_disks::fuse::Fuse;
use crate::kit::*;
use crate::stage;

/// The volume at a path is released, and kept with an event that says this.
fn is_refused(stage: &Stage, claim: &str, path: &Path, why: &str) {
    let bound = stage.used(&stage.bind(claim, path));
    stage.delete_claim(claim);
    let text = stage.event("VolumeFailedDelete", why);
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    assert!(is_untouched(stage, &bound, "Released"));
}

#[test]
fn system_directory_in_the_discovery_directory_is_not_wiped() {
    let stage = or_skip!(stage());
    stage.class("fast", &json!({})).unwrap();
    // In place of the machine's own: should this ever fail, it must not cost the machine.
    let home = Path::new("/home");
    mount(
        Some("home"),
        home,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=1m"),
    )
    .unwrap();
    let kubelet = stage.kubelet_dir();
    let entries = [
        (home, "home", "/home is in it"),
        (&kubelet, "kubelet", "/kubelet/pods is in it"),
    ];
    let entries = entries.map(|(dir, name, why)| {
        let entry = format!("disks/fast/{name}");
        (name, why, stage.sandbox.bind(dir, &entry).unwrap())
    });
    fs::write(home.join("file"), "kept").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    for (claim, why, entry) in &entries {
        is_refused(&stage, claim, entry, why);
    }
    assert_eq!(fs::read(home.join("file")).unwrap(), b"kept");
    assert!(kubelet.join("pods/of-something-else").is_dir());
}

#[test]
fn filesystem_that_may_lie_on_another_machine_is_not_wiped() {
    let stage = or_skip!(stage());
    stage.class("fast", &json!({})).unwrap();
    let fuse = Fuse::answering(&stage.sandbox.dir("disks/fast/disk").unwrap());
    let _provisioner = stage.provisioner().unwrap();
    is_refused(
        &stage,
        "claim",
        fuse.path(),
        "fuse may keep its data on another machine",
    );
}
