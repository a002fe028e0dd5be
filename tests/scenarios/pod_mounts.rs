//! The kubelet mounts a volume by its path on the host, and the provisioner sees it in its container.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use support::stage::name;
use support::{LoopDevice, Program, Stage};

use crate::kit::*;

/// A class, and a disk whose directories are its volumes.
struct Class {
    stage: Stage,
    source: PathBuf,
    _disk: LoopDevice,
    provisioner: Program,
}

impl Class {
    /// `hostDir` is `disks/host`.
    fn new(mount_dir: &str) -> Option<Self> {
        let stage = crate::stage()?;
        let dir = |name: &str| stage.sandbox.dir(&format!("disks/{name}")).unwrap();
        let settings = json!({ "hostDir": dir("host"), "mountDir": dir(mount_dir) });
        stage.class("fast", &settings);
        let disk = ext4(&stage);
        let source = mount(&stage, &disk, "source");
        let provisioner = stage.provisioner();
        let class = Self { stage, source, _disk: disk, provisioner };
        Some(class)
    }

    /// Mounts a directory of the disk as an entry in a discovery directory.
    fn entry(&self, dir: &str, entry: &str) -> PathBuf {
        let source = self.source.join(format!("{dir}-{entry}"));
        fs::create_dir(&source).unwrap();
        let at = format!("disks/{dir}/{entry}");
        self.stage.sandbox.bind(&source, &at).unwrap()
    }
}

#[test]
fn volume_that_the_kubelet_mounts_from_another_directory_is_not_wiped() {
    let mut class = or_skip!(Class::new("seen"));
    let (of_tenant, seen) = (class.entry("host", "vol"), class.entry("seen", "vol"));
    let stage = &class.stage;
    let bound = stage.used(&stage.bind("claim", &of_tenant));
    keep_secret(&of_tenant);
    keep_secret(&seen);
    let entry = mounted_by_kubelet(stage, &bound);
    let entry = entry.strip_prefix(stage.sandbox.path()).unwrap();
    let entry = entry.to_str().unwrap();
    let mounted = stage.sandbox.bind(&of_tenant, entry).unwrap();

    stage.event("VolumeIdentityMismatch", "must be one directory");
    stage.event("ClassInvalid", "must be one directory");
    let provisioner = &mut class.provisioner;
    in_state(stage, provisioner, &of_tenant, "IdentityMismatch");
    assert_eq!(provisioner.http_get("/ready").unwrap().0, 503);

    stage.sandbox.umount(&mounted).unwrap();
    fs::remove_dir(&mounted).unwrap();
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    in_state(stage, provisioner, &of_tenant, "Refused");
    class.entry("seen", "new");
    let (stage, provisioner) = (&class.stage, &mut class.provisioner);
    let new = of_tenant.with_file_name("new");
    skipped(stage, provisioner, &new, "ClassInvalid");
    stage.still(provisioner, "nothing is wiped", || {
        has_secret(&seen) && has_secret(&of_tenant) && is_untouched(stage, &bound, "Released")
    });
}
