//! `discoveryPolicy: EmptyOnly`: what holds data gets no PV, and what we cleaned gets one again.

use std::fs;

use serde_json::{Value, json};
use support::Stage;
use support::stage::name;

use crate::kit::*;

/// Changes inside a volume raise no event: the next scan finds them.
fn often() -> Option<Stage> {
    stage_with(&["--discovery-period=1s"])
}

fn policy() -> Value {
    json!({ "discoveryPolicy": "EmptyOnly" })
}

#[test]
fn a_filesystem_with_anything_in_it_is_not_offered() {
    let stage = or_skip!(often());
    stage.class("fast", &policy());
    let [data, lost, fresh] = ["data", "lost", "fresh"]
        .map(|entry| mount(&stage, &ext4(&stage), &format!("disks/fast/{entry}")));
    keep_secret(&data);
    fs::write(lost.join("lost+found/#12"), SECRET).unwrap();
    let mut provisioner = stage.provisioner();
    stage.available(&fresh, None);
    for path in [&data, &lost] {
        skipped(&stage, &mut provisioner, path, "NotEmpty");
    }
    let detail = status_of(&mut provisioner, &data)["detail"].to_string();
    assert!(detail.contains("it holds the entry"), "{detail}");
    // Only the log names a tenant's file.
    assert!(!detail.contains("secret"), "{detail}");
    assert!(provisioner.log().contains("it holds the entry “secret”"));
    let mut discover = stage.command();
    discover.args(["discover", "--config"]).arg(stage.config_dir());
    let listed = String::from_utf8(discover.output().unwrap().stdout).unwrap();
    assert_eq!(listed.matches("NotEmpty").count(), 2, "{listed}");
    let event = stage.event("VolumeNotEmpty", "data, lost");
    assert!(event.contains(&stage.named("fast")), "{event}");
    let class = stage.named("fast");
    let series = format!("skipped_entries{{class=\"{class}\",reason=\"NotEmpty\"}}");
    assert_eq!(metric(&mut provisioner, &series), Some(2));
    ready(&stage, &mut provisioner);

    fs::remove_file(data.join("secret")).unwrap();
    stage.available(&data, None);
    assert!(stage.pvs_at(&lost).is_empty());
}

#[test]
fn a_device_with_a_signature_is_not_offered() {
    let stage = or_skip!(often());
    let raw_dir = raw_class(&stage, &policy());
    let formatted_dir = stage.class("formatted", &policy());
    let [first, second, blank] = [ext4(&stage), ext4(&stage), raw(&stage)];
    let block = link(&first, &raw_dir, "data");
    let formatted = link(&second, &formatted_dir, "data");
    let fresh = link(&blank, &formatted_dir, "fresh");
    let mut provisioner = stage.provisioner();
    stage.available(&fresh, None);
    for path in [&block, &formatted] {
        skipped(&stage, &mut provisioner, path, "NotEmpty");
        let detail = status_of(&mut provisioner, path)["detail"].to_string();
        assert!(detail.contains("ext"), "{detail}");
    }
    for (disk, path) in [(&first, &block), (&second, &formatted)] {
        // Also the copies of the superblock.
        fs::write(disk.path(), vec![0; 32 << 20]).unwrap();
        stage.available(path, None);
    }
}

#[test]
fn data_that_was_kept_is_not_offered_until_it_is_cleaned_by_hand() {
    let stage = or_skip!(often());
    stage.class("fast", &policy());
    let volume = mount(&stage, &ext4(&stage), "disks/fast/vol");
    let mut provisioner = stage.provisioner();
    let pv = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    set_policy(&stage, &pv, "Retain");
    stage.delete_claim("claim");
    let pv = stage.eventually("it is kept, and needs no protection", || {
        let pv = stage.in_phase(&name(&pv), "Released");
        (!is_protected(&pv)).then_some(pv)
    });
    stage.still(&mut provisioner, "its PV is kept", || {
        has_secret(&volume) && is_untouched(&stage, &pv, "Released")
    });
    stage.delete_pv(&name(&pv));
    skipped(&stage, &mut provisioner, &volume, "NotEmpty");
    stage.still(&mut provisioner, "it is not offered", || {
        stage.pvs_at(&volume).is_empty() && has_secret(&volume)
    });

    let cleaned = stage
        .command()
        .args(["clean", "--yes", "--kubelet-dir"])
        .arg(stage.kubelet_dir())
        .arg("--config")
        .arg(stage.config_dir())
        .arg(&volume)
        .output()
        .unwrap();
    assert!(cleaned.status.success(), "{cleaned:?}");
    stage.available(&volume, None);
}
