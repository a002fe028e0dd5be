//! Storage in the discovery directory that is not this node's to wipe.

use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use serde_json::json;
use support::names::{ANNOTATION_IDENTITY, LABEL_HOSTNAME};
use support::{Program, Stage};

use crate::hung_disks::fuse::Fuse;
use crate::kit::*;

/// The volume at a path is not offered, for this reason; and if it has a PV, it is kept when that is released.
fn is_refused(stage: &Stage, provisioner: &mut Program, path: &Path, reason: &str, why: &str) {
    skipped(stage, provisioner, path, reason);
    let status = status_of(provisioner, path);
    assert!(status["detail"].as_str().unwrap().contains(why), "{status}");
    let name = path.file_name().unwrap().to_str().unwrap();
    let mut pv = pv_by_hand(stage, name, "fast", path, "1Mi");
    pv["metadata"]["labels"] = json!({ LABEL_HOSTNAME: stage.node() });
    pv["metadata"]["annotations"][ANNOTATION_IDENTITY] = status["identity"].clone();
    stage.create_pv(pv);
    let released = bind_and_release(stage, name, name, "fast");
    let text = stage.event("VolumeFailedDelete", why);
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    assert!(is_untouched(stage, &released, "Released"));
}

#[test]
fn system_directory_in_the_discovery_directory_is_neither_offered_nor_wiped() {
    let (stage, []) = or_skip!(fast_stage([]));
    // In place of the machine's own: should this ever fail, it must not cost the machine.
    let home = Path::new("/home");
    mount(Some("home"), home, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();
    let kubelet = stage.kubelet_dir();
    let entries =
        [(home, "home", "/home is in it"), (&kubelet, "kubelet", "/kubelet/pods is in it")];
    let entries = entries.map(|(dir, name, why)| {
        let entry = format!("disks/fast/{name}");
        (why, stage.sandbox.bind(dir, &entry).unwrap())
    });
    fs::write(home.join("file"), "kept").unwrap();
    let mut provisioner = stage.provisioner();
    for (why, entry) in &entries {
        is_refused(&stage, &mut provisioner, entry, "SystemStorage", why);
    }
    assert_eq!(fs::read(home.join("file")).unwrap(), b"kept");
    assert!(kubelet.join("pods/of-something-else").is_dir());
}

#[test]
fn filesystem_that_may_lie_on_another_machine_is_neither_offered_nor_wiped() {
    let (stage, []) = or_skip!(fast_stage([]));
    let fuse = Fuse::answering(&stage.sandbox.dir("disks/fast/disk").unwrap());
    let mut provisioner = stage.provisioner();
    let why = "fuse may keep its data on another machine";
    is_refused(&stage, &mut provisioner, fuse.path(), "NotLocal", why);
}
