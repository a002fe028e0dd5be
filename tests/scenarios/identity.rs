//! The disk at a path is not the one that the PV was made for.

use support::stage::name;

use crate::kit::*;

#[test]
fn a_disk_replaced_while_bound_is_reported_and_never_cleaned_without_consent() {
    let (stage, []) = or_skip!(fast_stage([]));
    let (first, second) = (ext4(&stage), ext4(&stage));
    let path = mount(&stage, &first, "disks/fast/vol-1");
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &path));
    std::fs::write(path.join("of-the-tenant"), "").unwrap();

    // The other disk takes the first one's place. It holds another tenant's data.
    stage.sandbox.umount(&path).unwrap();
    mount(&stage, &second, "disks/fast/vol-1");
    keep_secret(&path);
    let text = stage.event("VolumeIdentityMismatch", "another disk is at its path");
    assert!(text.contains(&identity(&bound)), "the recorded identity is named: {text}");
    in_state(&stage, &mut provisioner, &path, "IdentityMismatch");
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    let text = stage.event("VolumeIdentityMismatch", "nothing was touched");
    consent_in(&text, "wipe:");
    stage.still(&mut provisioner, "the other disk's data stays", || {
        has_secret(&path) && is_untouched(&stage, &bound, "Released")
    });

    // The recorded disk is back: then it is cleaned.
    stage.sandbox.umount(&path).unwrap();
    mount(&stage, &first, "disks/fast/vol-1");
    offered_again(&stage, &path, &bound);
    assert!(entries(&path).is_empty());
    stage.sandbox.umount(&path).unwrap();
    assert!(has_secret(&mount(&stage, &second, "disks/fast/elsewhere")));
}
