//! Disks that a class takes in by its rule, once an operator has approved them.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::Duration;

use super::*;

/// Devices with a name of their own, since the file behind each has one.
fn devices<const N: usize>(stage: &Stage, names: [&str; N]) -> [LoopDevice; N] {
    names.map(|name| {
        let path = stage.sandbox.path().join(name);
        let file = File::create_new(path).unwrap();
        file.set_len(32 * MIB).unwrap();
        LoopDevice::over(&file).unwrap()
    })
}

/// The link to a device below `/dev/disk`.
fn by_id(name: &str) -> String {
    format!("/dev/disk/by-id/{name}")
}

#[test]
fn approved_blank_disk_becomes_a_volume_and_no_other_disk_does() {
    let stage = or_skip!(crate::stage().and_then(embedded));
    let names = ["blank", "formatted", "mounted", "written", "wildcard"];
    let devices = devices(&stage, names);
    let [blank, formatted, mounted, written, _] = &devices;
    formatted.format("ext4").unwrap();
    mounted.format("ext4").unwrap();
    mount(&stage, mounted, "elsewhere");
    scribble(written.path());
    let links = names.map(by_id);
    let links = devices.iter().zip(&links);
    let links: Vec<_> = links.map(|(device, link)| (device.path(), &**link)).collect();
    stage.sandbox.own_dev(&links).unwrap();
    symlink(blank.path(), by_id("also-blank")).unwrap();
    let globs = ["blank", "formatted", "mounted", "written", "wild*"].map(by_id);
    let dir = raw_class(
        &stage,
        &json!({
            "binding": "disk",
            "devices": { "match": globs },
        }),
    );
    let class = stage.named("raw");
    let mut process = provisioner(&stage);

    let mut disk = |name: &str| {
        let document = status(&mut process);
        let disks = document["classes"][0]["disks"].as_array().cloned();
        let mut disks = disks.unwrap_or_default().into_iter();
        disks.find(|it| it["link"] == by_id(name))
    };
    let reasons = [
        ("blank", "for less than a minute"),
        ("formatted", "it has "),
        ("mounted", "it is in use: "),
        ("written", "it is not zero"),
        ("wildcard", "it is a loop device"),
    ];
    for (name, reason) in reasons {
        stage.eventually(&format!("{name} is left alone: {reason}"), || {
            let why = disk(name)?["leftAlone"].as_str()?.to_owned();
            why.contains(reason).then_some(())
        });
    }
    assert!(disk("also-blank").is_none(), "it is the same disk");
    let none = run_as_operator(&stage, &["approve", &stage.node(), "--yes"]);
    answers(&none, 2, &["waits for an approval"]);

    // It has to be there for a minute.
    stage.within(Duration::from_secs(90), "it waits for an approval", || {
        disk("blank")?["leftAlone"].is_null().then_some(())
    });
    let text = stage.event("DevicesFound", &class);
    assert!(text.contains("blank disks: blank;"), "{text}");
    assert!(entries(&dir).is_empty());
    let hash = text.rsplit(' ').next().unwrap();
    let wrong = ["approve", &stage.node(), "--plan", "0123456789abcdef"];
    answers(&run_as_operator(&stage, &wrong), 2, &["waits for an approval"]);
    let approve = ["approve", &stage.node(), "--class", &class, "--plan", hash];
    let approved = run_as_operator(&stage, &approve);
    answers(&approved, 0, &["to be taken in", "left alone", "approved"]);

    // It is a volume as any other.
    let path = dir.join("blank");
    stage.available(&path, None);
    assert_eq!(fs::read_link(&path).unwrap(), Path::new(&by_id("blank")));
    assert_eq!(entries(&dir).len(), 1);
    let used = stage.used(&stage.bind("claim", &path));
    scribble(blank.path());
    stage.delete_claim("claim");
    let fresh = offered_again(&stage, &path, &used);
    assert_eq!(identity(&fresh), identity(&used));
    assert!(blank.is_zero().unwrap());

    // An operator takes it out of service: it is not taken in again.
    fs::remove_file(&path).unwrap();
    stage.event("VolumeMissing", "there is nothing at its path");
    let mut disk = || {
        let document = status(&mut process);
        let disks = document["classes"][0]["disks"].as_array().cloned();
        let mut disks = disks.unwrap_or_default().into_iter();
        disks.find(|it| it["link"] == by_id("blank"))
    };
    stage.eventually("it tells how to offer it again", || {
        let why = disk()?["leftAlone"].as_str()?.to_owned();
        why.contains("ln -s").then_some(())
    });
    assert!(entries(&dir).is_empty());
    assert!(!wipefs(formatted.path()).is_empty());
    assert!(is_as_scribbled(written.path()));
}
