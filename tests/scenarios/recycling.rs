//! The main job: offered, bound, written to, released, cleaned, offered again.

use std::fs;

use serde_json::json;
use support::stage::{annotation, is_terminating, name, uid};

use super::kit::fast;
use super::stage;

#[test]
fn a_released_filesystem_volume_is_cleaned_and_offered_again() {
    let stage = or_skip!(stage());
    let dir = stage.class("fast", &json!({}));
    let volume = fast(&stage, "vol-1");
    assert_eq!(volume.parent(), Some(dir.as_path()));
    let mut provisioner = stage.provisioner();

    let bound = stage.bind("claim", &volume);
    assert_eq!(
        bound.spec.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0,
        "20Mi"
    );
    assert_eq!(
        annotation(&bound, "local-volume-provisioner/identity").unwrap(),
        format!("v1:fs=tmpfs,path={},root=/", volume.display())
    );
    stage.eventually("the PV is marked as used", || {
        let pv = stage.pv(&name(&bound))?;
        (annotation(&pv, "local-volume-provisioner/used") == Some("true")).then_some(())
    });
    fs::write(volume.join("secret"), "of the first tenant").unwrap();
    fs::create_dir_all(volume.join("a/b/c")).unwrap();

    stage.delete_claim("claim");
    let fresh = stage.available(&volume, Some(&uid(&bound)));
    assert_eq!(
        name(&fresh),
        name(&bound),
        "the name is a function of the volume"
    );
    assert!(!is_terminating(&fresh));
    assert_eq!(fs::read_dir(&volume).unwrap().count(), 0);
    assert_eq!(annotation(&fresh, "local-volume-provisioner/used"), None);
    let (code, _) = provisioner.http_get("/healthz").unwrap();
    assert_eq!(code, 200);
    assert!(provisioner.stop(stage.timeout()).unwrap().success());
}
