//! The cleaner of a class, its time limit, and its progress reports.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use support::stage::{is_terminating, name};
use support::{LoopDevice, Stage};

use crate::kit::*;
use crate::stage;

const FAILED: &str = "persistentvolume_delete_failed_total{mode=\"Block\",type=\"process\"}";
const CLEANED: &str = "persistentvolume_delete_total{mode=\"Block\",type=\"process\"}";

/// A device that can neither punch nor discard: the file below it cannot.
fn without_offload(stage: &Stage, dir: &Path) -> (LoopDevice, PathBuf) {
    let below = stage.sandbox.path().join("ramfs");
    if !below.exists() {
        stage.sandbox.ramfs("ramfs").unwrap();
    }
    // Of a smaller one, the signatures' places are all there is.
    let device = LoopDevice::new(&below, 64 * MIB).unwrap();
    let path = link(&device, dir, "disk");
    (device, path)
}

#[test]
fn an_external_cleaner_that_takes_too_long_is_killed_and_has_failed() {
    let stage = or_skip!(stage());
    let pids = stage.sandbox.path().join("pids");
    // With a child in a session of its own, as a cleaner might leave it behind.
    let script = format!(
        "setsid sleep 600 & echo $! > {0}; echo $$ >> {0}; echo half way; wait",
        pids.display()
    );
    let settings = json!({
        "blockCleanerCommand": ["/bin/sh", "-c", script],
        // Time enough to write both numbers, however busy the machine is.
        "cleanupTimeout": "6s",
    });
    let mut volume = Occupied::raw(stage, &settings);
    let (stage, provisioner) = (&volume.stage, &mut volume.provisioner);
    stage.delete_claim("claim");
    // Asked of the program, which tries again in ten seconds: its event may take a while.
    let cleanup = stage.eventually("it has failed", || {
        let cleanup = status_of(provisioner, &volume.path)["cleanup"].clone();
        (cleanup["state"] == "Failed").then_some(cleanup)
    });
    assert_eq!(cleanup["attempts"], 1, "{cleanup}");
    assert!(cleanup["retryInSeconds"].as_u64() > Some(3), "it backs off: {cleanup}");
    stage.eventually("the failure is counted", || metric(provisioner, FAILED) == Some(1));
    let pids = lines(&pids);
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert!(!is_alive(pid.parse().unwrap()), "{pid} is still at work");
    }
    assert_eq!(metric(provisioner, CLEANED).unwrap_or_default(), 0);
    let text = stage.event("VolumeFailedDelete", "cleanupTimeout");
    for words in
        ["took longer than 6s, the cleanupTimeout of its class", "set a longer cleanupTimeout"]
    {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let pv = stage.pv(&name(&volume.pv)).unwrap();
    assert!(is_terminating(&pv) && is_protected(&pv));
    assert!(is_as_scribbled(volume.device().path()));
}

#[test]
fn an_overwrite_that_takes_too_long_reports_its_progress() {
    // 32 TiB to write, on a small device.
    let settings = json!({
        "blockCleanerCommand": ["/scripts/shred.sh", "1000000"],
        // All that is looked at below is seen in that time.
        "cleanupTimeout": "15s",
    });
    let mut volume = or_skip!(occupied_raw(&settings));
    let (stage, provisioner) = (&volume.stage, &mut volume.provisioner);
    stage.delete_claim("claim");

    let cleanup = stage.eventually("it tells how far it is", || {
        let cleanup = status_of(provisioner, &volume.path)["cleanup"].clone();
        (cleanup["rate"].as_f64() > Some(0.0)).then_some(cleanup)
    });
    assert_eq!(cleanup["state"], "Running");
    let (progress, left) = (cleanup["progress"].as_f64(), cleanup["eta"].as_f64());
    assert!(progress > Some(0.0) && progress < Some(0.1), "{cleanup}");
    assert!(left > Some(60.0), "{cleanup}");
    let ratio = format!(
        "local_volume_provisioner_cleanup_progress_ratio{{pv=\"{}\"}} 0.0",
        name(&volume.pv)
    );
    let (_, metrics) = provisioner.http_get("/metrics").unwrap();
    assert!(metrics.contains(&ratio), "{metrics}");
    let bytes = stage.eventually("bytes are counted while it is at work", || {
        metric(provisioner, "cleanup_bytes_total").filter(|bytes| *bytes > 0)
    });
    assert_eq!(metric(provisioner, FAILED).unwrap_or_default(), 0);

    let text = stage.event("VolumeFailedDelete", "cleanupTimeout");
    for words in ["took longer than 15s", "iB of 30.5 TiB wiped (0 %)", "/s"] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert_eq!(metric(provisioner, FAILED), Some(1));
    let counted = metric(provisioner, "cleanup_bytes_total");
    assert!(counted > Some(bytes), "also what failed is counted");
    let pv = stage.pv(&name(&volume.pv)).unwrap();
    assert!(is_terminating(&pv) && is_protected(&pv));

    // With a way that takes no time it goes on.
    volume.stop();
    let stage = &volume.stage;
    let map = stage.config_dir().join("storageClassMap");
    let mut classes: Value = serde_json::from_str(&fs::read_to_string(map).unwrap()).unwrap();
    let class = classes[stage.named("raw")].as_object_mut().unwrap();
    class.remove("blockCleanerCommand");
    class.insert("cleanMethod".into(), "auto".into());
    class.insert("cleanupTimeout".into(), "1h".into());
    let map = classes.to_string();
    stage.configure("storageClassMap", &map);
    volume.start();
    volume.is_cleaned();
    assert!(volume.device().is_zero().unwrap());
}

#[test]
fn the_log_reports_the_progress_of_a_long_cleanup() {
    let settings = json!({ "blockCleanerCommand": ["/scripts/shred.sh", "1000000"] });
    let volume = or_skip!(occupied_raw(&settings));
    volume.stage.delete_claim("claim");
    let line = volume.stage.within(Duration::from_secs(40), "it is spoken of", || {
        let log = volume.provisioner.log();
        let line = log.lines().find(|line| line.contains("cleaning in progress: "));
        line.map(str::to_owned)
    });
    for words in [&name(&volume.pv), "iB of 30.5 TiB wiped (0 %), ", "iB/s, ", " left"] {
        assert!(line.contains(words), "no {words:?} in {line}");
    }
}

#[test]
fn time_that_a_volume_is_waited_for_does_not_count() {
    let mut volume = or_skip!(occupied_raw(&json!({ "cleanupTimeout": "5s" })));
    let user = volume.device().open_alone().unwrap();
    volume.release();
    volume.stage.eventually("it waits longer than that", || {
        let cleanup = status_of(&mut volume.provisioner, &volume.path)["cleanup"].clone();
        (cleanup["state"] == "Waiting" && cleanup["seconds"].as_u64()? >= 6).then_some(())
    });
    drop(user);
    volume.is_cleaned();
    let failed = metric(&mut volume.provisioner, FAILED);
    assert_eq!(failed.unwrap_or_default(), 0);
}

#[test]
fn a_raw_device_that_the_next_tenant_can_read_is_reported() {
    let stage = or_skip!(stage());
    let mut paths = Vec::new();
    let mut devices = Vec::new();
    for (class, settings) in [
        ("raw", json!({ "volumeMode": "Block" })),
        ("safe", json!({ "volumeMode": "Block", "cleanMethod": "auto" })),
        // A tenant cannot read the device below a filesystem that the kubelet makes.
        ("formatted", json!({ "fsType": "ext4" })),
    ] {
        let dir = stage.class(class, &settings);
        let (device, path) = without_offload(&stage, &dir);
        devices.push(device);
        paths.push((class, path));
    }
    let mut provisioner = stage.provisioner();
    let mut readable = Vec::new();
    for ((class, path), device) in paths.iter().zip(&devices) {
        let bound = stage.used(&stage.bind(class, path));
        fs::write(device.path(), vec![0xa5; 64 << 20]).unwrap();
        // What is still in the page cache is dropped by the very attempt to punch.
        File::open(device.path()).unwrap().sync_all().unwrap();
        stage.delete_claim(class);
        offered_again(&stage, path, &bound);
        let content = fs::read(device.path()).unwrap();
        if content.contains(&0xa5) {
            readable.push(*class);
        }
    }
    assert_eq!(readable, ["raw", "formatted"], "what all this is about");

    let text = stage.event("VolumeDataLeft", "the next tenant can read what the last one wrote");
    assert!(text.contains(paths[0].1.to_str().unwrap()), "{text}");
    assert!(text.contains("set cleanMethod of class \"raw"), "{text}");
    assert_eq!(stage.events("VolumeDataLeft").len(), 1);
    let mut warned = |class| {
        let class = stage.named(class);
        metric(&mut provisioner, &format!("cleanup_data_left_total{{class=\"{class}\"}}"))
    };
    assert_eq!((warned("raw"), warned("safe"), warned("formatted")), (Some(1), Some(0), Some(0)));
}

#[test]
fn a_class_may_leave_the_disk_untrimmed() {
    let stage = or_skip!(stage());
    let volumes =
        [("trimmed", json!({})), ("left", json!({ "trim": false }))].map(|(class, settings)| {
            let dir = stage.class(class, &settings);
            let file = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(stage.sandbox.path().join(class))
                .unwrap();
            file.set_len(32 * MIB).unwrap();
            let device = LoopDevice::over(&file).unwrap();
            device.format("ext4").unwrap();
            let path = dir.join("disk");
            fs::create_dir(&path).unwrap();
            let name = format!("disks/{class}/disk");
            mount(&stage, &device, &name);
            (class, file, device, path)
        });
    let _provisioner = stage.provisioner();
    // On the disk, past the filesystem.
    let blocks_of_data = |file: &File| {
        let (mut block, end) = (vec![0; 1024], file.metadata().unwrap().len());
        let read = |at| {
            file.read_exact_at(&mut block, at).map(|()| block.iter().all(|byte| *byte == 0xa5))
        };
        (0..end).step_by(1024).map(read).filter(|data| *data.as_ref().unwrap()).count()
    };
    for (class, file, _device, path) in &volumes {
        let bound = stage.bind(class, path);
        let data = File::create(path.join("data")).unwrap();
        (&data).write_all(&vec![0xa5; 8 << 20]).unwrap();
        data.sync_all().unwrap();
        drop(data);
        assert_eq!(blocks_of_data(file), 8 << 10);
        stage.delete_claim(class);
        offered_again(&stage, path, &bound);
        let left = blocks_of_data(file);
        assert_eq!(left == 0, *class == "trimmed", "{class}: {left}");
    }
}
