//! Somebody still has the volume: a pod, its containers, another cleaner.

mod other_names;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use serde_json::json;
use support::stage::name;
use support::{LoopDevice, Program, Stage};

use crate::kit::*;
use crate::stage;

#[test]
fn a_pod_that_uses_the_claim_keeps_the_data() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    stage.pod("pod", "claim");
    stage.pod_in_phase("pod", "Running");
    keep_secret(&volume);
    stage.delete_claim("claim");
    // Kubernetes would wait for the pod. Somebody does not.
    drop_claim_protection(&stage, "claim");
    stage.in_phase(&name(&bound), "Released");
    let text = stage.event("VolumeInUse", "Volume is used by pods");
    assert!(
        text.contains(&format!("{}/pod", stage.namespace())),
        "{text}"
    );
    stage.stays(
        Duration::from_millis(1200),
        "the pod keeps its data",
        || has_secret(&volume) && is_untouched(&stage, &bound, "Released"),
    );
    assert_eq!(stage.events("VolumeInUse").len(), 1, "told once");
    stage.delete_pod("pod", false);
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
}

#[test]
fn a_pod_that_has_ended_keeps_nothing() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    stage.pod_with("pod", "claim", &json!({ "control-plane/run": "succeed" }));
    stage.pod_in_phase("pod", "Succeeded");
    keep_secret(&volume);
    stage.delete_claim("claim");
    drop_claim_protection(&stage, "claim");
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
    assert!(stage.events("VolumeInUse").is_empty());
}

#[test]
fn containers_of_a_pod_deleted_by_force_keep_the_data() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    stage.pod("pod", "claim");
    stage.pod_in_phase("pod", "Running");
    let mounted = mounted_by_kubelet(&stage, &bound);
    keep_secret(&volume);
    stage.delete_pod("pod", true);
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    stage.stays(
        Duration::from_millis(1500),
        "the containers still write",
        || has_secret(&volume) && is_untouched(&stage, &bound, "Released"),
    );
    stage.eventually("/status names what is waited for", || {
        let waits_for = status_of(&mut provisioner, &volume)["cleanup"]["waitingFor"].to_string();
        waits_for.contains(mounted.to_str()?).then_some(())
    });
    assert!(
        stage.events("VolumeInUse").is_empty(),
        "a moment's wait is nobody's worry"
    );
    fs::remove_dir(&mounted).unwrap();
    stage.within(
        Duration::from_secs(8),
        "the volume is cleaned a moment later",
        || (!has_secret(&volume)).then_some(()),
    );
    offered_anew(&stage, &volume, &bound);
}

/// A pod's raw device stays as it is, for at least so long, until the kubelet has let go.
fn a_mapped_device_keeps_its_data(stage: &Stage, lasting: Duration) {
    let (device, path) = raw_volume(stage, &json!({}));
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &path));
    scribble(device.path());
    let mapped = mapped_by_kubelet(stage, &bound, &device);
    stage.delete_claim("claim");
    stage.in_phase(&name(&bound), "Released");
    stage.stays(lasting, "the pod still writes", || {
        secrets_on(device.path()).len() == 4 && is_untouched(stage, &bound, "Released")
    });
    fs::remove_file(&mapped).unwrap();
    offered_anew(stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
}

#[test]
fn a_raw_device_that_the_kubelet_has_mapped_keeps_its_data() {
    let Some(stage) = stage() else { return };
    a_mapped_device_keeps_its_data(&stage, Duration::from_millis(1500));
}

/// Where only `pods` was mounted into the container, what it shows counts all the same.
#[test]
fn a_raw_device_that_is_seen_in_use_keeps_its_data_although_not_all_can_be_seen() {
    let Some(mut stage) = stage() else { return };
    stage.add_arg("--release-quiet-period=1s");
    fs::remove_dir(stage.kubelet_dir().join("plugins")).unwrap();
    a_mapped_device_keeps_its_data(&stage, Duration::from_secs(4));
}

#[test]
fn where_the_kubelet_cannot_be_seen_a_quiet_period_passes_first() {
    let Some(mut stage) = stage() else { return };
    stage.add_arg("--release-quiet-period=1500ms");
    fs::remove_dir(stage.kubelet_dir().join("pods/of-something-else")).unwrap();
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let _provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    // The API rounds the time of the release down to a whole second: that must not count.
    stage.eventually("the second half of a second", || {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        (600..850).contains(&since.subsec_millis()).then_some(())
    });
    let released = Instant::now();
    stage.delete_claim("claim");
    stage.within(Duration::from_secs(8), "the volume is cleaned", || {
        (!has_secret(&volume)).then_some(())
    });
    let passed = released.elapsed();
    assert!(
        passed >= Duration::from_millis(1500),
        "only {passed:?} have passed"
    );
    offered_anew(&stage, &volume, &bound);
}

#[test]
fn a_lock_of_another_cleaner_is_waited_for_and_told() {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    let locked = Flock::lock(File::open(&volume).unwrap(), FlockArg::LockExclusive).unwrap();
    stage.delete_claim("claim");
    let text = stage.event("VolumeInUse", "is locked by another process");
    assert!(text.contains(volume.to_str().unwrap()), "{text}");
    stage.stays(
        Duration::from_millis(1200),
        "the other cleaner is left alone",
        || has_secret(&volume) && is_untouched(&stage, &bound, "Released"),
    );
    drop(locked);
    stage.within(
        Duration::from_secs(8),
        "the volume is cleaned a moment later",
        || (!has_secret(&volume)).then_some(()),
    );
    offered_anew(&stage, &volume, &bound);
    let total = "persistentvolume_delete_total{mode=\"Filesystem\",type=\"process\"}";
    assert_eq!(metric(&mut provisioner, total), Some(1));
    assert_eq!(stage.events("VolumeInUse").len(), 1, "told once");
}

/// A raw device stays as it is and its user is named, until it is gone.
fn a_user_of_the_device_is_waited_for<T>(use_it: impl FnOnce(&LoopDevice) -> (T, String)) {
    let Some(stage) = stage() else { return };
    let (device, path) = raw_volume(&stage, &json!({}));
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &path));
    scribble(device.path());
    let (user, named) = use_it(&device);
    stage.delete_claim("claim");
    waits_and_is_told(&stage, &mut provisioner, &path, &named);
    stage.stays(Duration::from_millis(300), "it is left alone", || {
        secrets_on(device.path()).len() == 4 && is_untouched(&stage, &bound, "Released")
    });
    drop(user);
    offered_anew(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(stage.events("VolumeInUse").len(), 1, "told once");
}

fn waits_and_is_told(stage: &Stage, provisioner: &mut Program, path: &Path, named: &str) {
    stage.eventually(&format!("/status names {named}"), || {
        let waits_for = status_of(provisioner, path)["cleanup"]["waitingFor"].clone();
        waits_for.as_str()?.contains(named).then_some(())
    });
    stage.event("VolumeInUse", named);
    let waited = status_of(provisioner, path)["cleanup"]["seconds"].as_u64();
    assert!(
        waited >= Some(3),
        "udev and the like look at disks and go: {waited:?}"
    );
}

#[test]
fn a_process_that_has_the_raw_device_open_is_waited_for_and_named() {
    a_user_of_the_device_is_waited_for(|device| {
        let open = File::open(device.path()).unwrap();
        let process = Guest::start(Command::new("sleep").arg("60").stdin(open));
        let named = format!(
            "process {} (\"sleep\") has {:?} open",
            process.pid(),
            device.path().to_str().unwrap()
        );
        (process, named)
    });
}

#[test]
fn a_loop_device_over_the_raw_device_is_waited_for_and_named() {
    a_user_of_the_device_is_waited_for(|device| {
        let upper = LoopDevice::over(&File::open(device.path()).unwrap()).unwrap();
        let name = upper.path().file_name().unwrap().to_str().unwrap();
        let named = format!("{name} lies on it");
        (upper, named)
    });
}

/// A filesystem stays as it is and its user is named, until it is gone.
fn a_user_of_the_filesystem_is_waited_for<T>(use_it: impl FnOnce(&Path) -> (T, String)) {
    let Some(stage) = stage() else { return };
    stage.class("fast", &json!({})).unwrap();
    let volume = stage.sandbox.tmpfs("disks/fast/vol-1", "size=20m").unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    let bound = stage.used(&stage.bind("claim", &volume));
    keep_secret(&volume);
    let (user, named) = use_it(&volume);
    stage.delete_claim("claim");
    waits_and_is_told(&stage, &mut provisioner, &volume, &named);
    stage.stays(Duration::from_millis(300), "it is left alone", || {
        has_secret(&volume) && is_untouched(&stage, &bound, "Released")
    });
    drop(user);
    offered_anew(&stage, &volume, &bound);
    assert!(entries(&volume).is_empty());
}

#[test]
fn a_process_that_has_a_file_open_is_waited_for_and_named() {
    a_user_of_the_filesystem_is_waited_for(|volume| {
        let path = volume.join("secret");
        let open = File::open(&path).unwrap();
        let process = Guest::start(Command::new("sleep").arg("60").stdin(open));
        let path = path.to_str().unwrap();
        let named = format!("process {} (\"sleep\") has {path:?} open", process.pid());
        (process, named)
    });
}

#[test]
fn a_loop_device_over_a_file_is_waited_for_and_named() {
    a_user_of_the_filesystem_is_waited_for(|volume| {
        let path = volume.join("image");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let device = LoopDevice::over(&file).unwrap();
        let path = path.to_str().unwrap();
        (device, format!("is a loop device over {path:?} in it"))
    });
}

/// Deleting the directory would take the mount away from whoever made it.
#[test]
fn what_another_namespace_has_mounted_inside_is_waited_for_and_named() {
    a_user_of_the_filesystem_is_waited_for(|volume| {
        let point = volume.join("inside");
        fs::create_dir(&point).unwrap();
        let script = format!(
            "mount -t tmpfs x {point} && echo mounted && exec sleep 60",
            point = point.display()
        );
        let unshare = ["--mount", "--propagation", "private", "sh", "-c", &script];
        let process = Guest::ready(Command::new("unshare").args(unshare));
        let point = point.to_str().unwrap();
        let named = format!(
            "process {} (\"sleep\") has something mounted inside it, at {point:?}",
            process.pid()
        );
        (process, named)
    });
}

#[test]
fn two_provisioners_on_one_node_make_one_pv_and_one_wipe() {
    let Some(stage) = stage() else { return };
    let scratch = stage.sandbox.path().to_owned();
    let script = format!(
        "cd {scratch}; exec 9>exclusive; flock --nonblock 9 || echo overlap >> runs; echo run >> runs; sleep 0.4; \
         exec dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=32 conv=notrunc status=none",
        scratch = scratch.display()
    );
    let settings = json!({ "blockCleanerCommand": ["/bin/sh", "-c", script] });
    let (device, path) = raw_volume(&stage, &settings);
    // A rolling update with surge, for as long as you like.
    let (mut first, mut second) = (stage.provisioner().unwrap(), stage.provisioner().unwrap());
    for round in 1..=3 {
        let claim = format!("claim-{round}");
        let bound = stage.used(&stage.bind(&claim, &path));
        scribble(device.path());
        stage.delete_claim(&claim);
        offered_anew(&stage, &path, &bound);
        assert!(secrets_on(device.path()).is_empty());
        assert_eq!(lines(&scratch.join("runs")), vec!["run"; round]);
    }
    assert_eq!(stage.pvs().len(), 1);
    assert!(first.is_running() && second.is_running());
    let total = "persistentvolume_delete_total{mode=\"Block\",type=\"process\"}";
    // It is counted when the release is answered; the new PV may be seen before that.
    stage.eventually("three wipes were counted, between the two of them", || {
        let cleaned = [&mut first, &mut second].map(|it| metric(it, total).unwrap_or_default());
        assert!(cleaned[0] + cleaned[1] <= 3, "{cleaned:?}");
        (cleaned[0] + cleaned[1] == 3).then_some(())
    });
}

/// To empty it would empty that place as well.
#[test]
fn a_part_that_is_mounted_elsewhere_is_waited_for_and_named() {
    struct Elsewhere(PathBuf);
    impl Drop for Elsewhere {
        fn drop(&mut self) {
            nix::mount::umount(&self.0).unwrap();
        }
    }
    a_user_of_the_filesystem_is_waited_for(|volume| {
        let part = volume.join("part");
        let elsewhere = volume.ancestors().nth(3).unwrap().join("elsewhere");
        for dir in [&part, &elsewhere] {
            fs::create_dir(dir).unwrap();
        }
        let bind = nix::mount::MsFlags::MS_BIND;
        nix::mount::mount(Some(&part), &elsewhere, None::<&str>, bind, None::<&str>).unwrap();
        let named = format!("mounted at {:?} as well", elsewhere.to_str().unwrap());
        (Elsewhere(elsewhere), named)
    });
}
