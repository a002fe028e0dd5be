//! The volume's storage is in use under another name than that of its PV.

use std::process::Command;

use nix::mount::{MsFlags, mount, umount};

use super::*;

/// A second mount of a directory or device node.
struct Bind(PathBuf);

impl Bind {
    fn of(source: &Path, point: PathBuf) -> Self {
        mount(Some(source), &point, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        Self(point)
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        umount(&self.0).unwrap();
    }
}

/// The writes to the overlay, elsewhere on the host, go to the volume.
#[test]
fn volume_with_the_upper_directory_of_an_overlay_is_kept() {
    a_user_of_the_filesystem_is_waited_for(|volume| {
        let sandbox = volume.ancestors().nth(3).unwrap();
        let (lower, point) = (sandbox.join("lower"), sandbox.join("overlay"));
        let (upper, work) = (volume.join("upper"), volume.join("work"));
        for dir in [&lower, &point, &upper, &work] {
            fs::create_dir(dir).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let (kind, flags) = (Some("overlay"), MsFlags::empty());
        mount(Some("overlay"), &point, kind, flags, Some(&*options)).unwrap();
        let named = format!("an overlay at {:?} has", point.to_str().unwrap());
        (Bind(point), named)
    });
}

/// A filesystem volume is kept while the kubelet has a directory of it mounted at this place below its own.
fn a_kubelet_mount_keeps_the_volume(dir: &str, place: &str) {
    a_user_of_the_filesystem_is_waited_for(|volume| {
        let source = volume.join(dir);
        let point = volume.ancestors().nth(3).unwrap().join("kubelet").join(place);
        for dir in [&source, &point] {
            fs::create_dir_all(dir).unwrap();
        }
        let at = point.to_str().unwrap();
        let named = format!("the kubelet has it mounted for a Pod, at {at:?}");
        (Bind::of(&source, point), named)
    });
}

#[test]
fn volume_that_the_kubelet_has_mounted_under_another_pv_name_is_kept() {
    a_kubelet_mount_keeps_the_volume(
        "",
        "pods/other-pod/volumes/kubernetes.io~local-volume/other-pv",
    );
}

#[test]
fn volume_of_which_the_kubelet_has_a_subpath_mounted_is_kept() {
    a_kubelet_mount_keeps_the_volume("dir", "pods/other-pod/volume-subpaths/other-pv/app/0");
}

#[test]
fn volume_that_the_kubelet_has_staged_for_csi_is_kept() {
    a_kubelet_mount_keeps_the_volume("", "plugins/kubernetes.io/csi/driver/other-pv/globalmount");
}

/// To empty it would empty that place as well.
#[test]
fn a_part_that_is_mounted_elsewhere_is_waited_for_and_named() {
    a_user_of_the_filesystem_is_waited_for(|volume| {
        let part = volume.join("part");
        let elsewhere = volume.ancestors().nth(3).unwrap().join("elsewhere");
        for dir in [&part, &elsewhere] {
            fs::create_dir(dir).unwrap();
        }
        let named = format!("mounted at {:?} as well", elsewhere.to_str().unwrap());
        (Bind::of(&part, elsewhere), named)
    });
}

#[test]
fn raw_device_that_the_kubelet_has_mapped_under_another_pv_name_is_kept() {
    a_user_of_the_device_is_waited_for(|device| {
        let dir = "/mnt/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/other-pv";
        fs::create_dir_all(dir).unwrap();
        let point = Path::new(dir).join("other-pod");
        File::create(&point).unwrap();
        let at = point.to_str().unwrap();
        let named = format!("the kubelet has it mapped for a Pod, at {at:?}");
        (Bind::of(device.path(), point), named)
    });
}

/// The PV may be gone while a container of a force-deleted pod goes on.
#[test]
fn volume_that_the_kubelet_still_has_mounted_is_not_offered() {
    let mut stage = or_skip!(stage());
    stage.add_arg("--discovery-period=1s");
    stage.class("fast", &json!({}));
    let path = fast(&stage, "disk");
    fs::create_dir(path.join("dir")).unwrap();
    let point = stage.kubelet_dir().join("pods/uid/volume-subpaths/gone/app/0");
    fs::create_dir_all(&point).unwrap();
    let mount = Bind::of(&path.join("dir"), point);
    let mut provisioner = stage.provisioner();
    skipped(&stage, &mut provisioner, &path, "VolumeInUse");
    let detail = status_of(&mut provisioner, &path)["detail"].to_string();
    assert!(detail.contains("the kubelet has it mounted"), "{detail}");
    drop(mount);
    stage.available(&path, None);
}

/// The lock of the `clean` command and of cleaning Jobs.
#[test]
fn locked_volume_is_not_offered() {
    let mut stage = or_skip!(stage());
    stage.add_arg("--discovery-period=1s");
    let (device, raw) = raw_volume(&stage, &json!({}));
    stage.class("fast", &json!({}));
    let path = fast(&stage, "disk");
    let locks = [path.as_path(), device.path()].map(|path| {
        let file = File::open(path).unwrap();
        file.lock().unwrap();
        file
    });
    let mut provisioner = stage.provisioner();
    skipped(&stage, &mut provisioner, &path, "VolumeInUse");
    skipped(&stage, &mut provisioner, &raw, "DeviceInUse");
    let detail = status_of(&mut provisioner, &path)["detail"].to_string();
    assert!(detail.contains("locked by another process"), "{detail}");
    drop(locks);
    stage.available(&path, None);
    stage.available(&raw, None);
}

#[test]
fn volume_that_a_pod_mounts_by_host_path_is_kept() {
    let mut volume = or_skip!(occupied());
    let (stage, path) = (&volume.stage, volume.path.to_str().unwrap());
    for (pod, path) in [
        ("above", "/".to_owned()),
        ("beside", format!("{path}0")),
        ("below", format!("{path}/dir/")),
        ("same", path.to_owned()),
    ] {
        stage.pod_with_host_path(pod, &path);
        stage.pod_in_phase(pod, "Running");
    }
    stage.delete_claim("claim");
    let namespace = stage.namespace();
    let both = format!("by hostPath: {namespace}/below, {namespace}/same");
    stage.event("VolumeInUse", &both);
    stage.delete_pod("below", false);
    // A later inspection than the first.
    let one = format!("by hostPath: {namespace}/same");
    let (provisioner, at) = (&mut volume.provisioner, &volume.path);
    stage.eventually("one pod is left", || {
        let waits = &status_of(provisioner, at)["cleanup"]["waitingFor"];
        waits.as_str().is_some_and(|text| text.contains(&one))
    });
    volume.is_kept("Released", "one pod is left");
    volume.stage.delete_pod("same", false);
    volume.is_cleaned();
}

#[test]
fn device_whose_second_path_is_in_use_is_kept() {
    let stage = or_skip!(stage());
    let dir = raw_class(&stage, &json!({}));
    let image = tempfile::tempfile_in(stage.sandbox.path()).unwrap();
    image.set_len(32 * MIB).unwrap();
    let [one, other] = [(); 2].map(|()| LoopDevice::over(&image).unwrap());
    let path = link(&one, &dir, "disk");
    let mut volume = Occupied::raw_at(stage, path, one);
    let stage = &volume.stage;
    volume.device().format("ext4").unwrap();
    let name = other.path().file_name().unwrap().to_str().unwrap();
    let (node, point) = (other.path(), stage.sandbox.dir("other").unwrap());
    // Where only the kernel sees it, and without writes to the noted data.
    let script = format!(
        "mount -t ext4 -o ro,noload {node} {point} && echo mounted && exec sleep 120",
        node = node.display(),
        point = point.display()
    );
    let unshare = ["--mount", "--propagation", "private", "sh", "-c", &script];
    let mounted = Guest::ready(Command::new("unshare").args(unshare));
    volume.note_data();
    volume.release();
    let named = format!("{name} is a second path to its storage, and is in use");
    waits_and_is_told(&mut volume, &named);
    volume.is_kept("Released", "its other path is in use");
    // One that is not used keeps nothing from being cleaned.
    drop(mounted);
    volume.is_cleaned();
    assert_eq!(wipefs(volume.device().path()), "");
}

/// Directories of one filesystem as volumes, which is mounted as a whole elsewhere.
#[test]
fn volume_beside_others_of_its_filesystem_is_recycled() {
    let (stage, []) = or_skip!(fast_stage([]));
    let whole = tmpfs(&stage, "whole");
    // Of the filesystem of the discovery and the kubelet's directory, too.
    let dirs = [whole.join("a"), stage.sandbox.path().join("directory")];
    let volumes = dirs.map(|dir| {
        fs::create_dir(&dir).unwrap();
        let name = dir.file_name().unwrap().to_str().unwrap();
        let volume = format!("disks/fast/{name}");
        stage.sandbox.bind(&dir, &volume).unwrap()
    });
    let neighbour = whole.join("ab");
    fs::create_dir(&neighbour).unwrap();
    let of_pod = "kubelet/pods/uid/volumes/kubernetes.io~local-volume/neighbour";
    stage.sandbox.bind(&neighbour, of_pod).unwrap();
    let elsewhere = stage.sandbox.bind(&volumes[0], "elsewhere").unwrap();
    let provisioner = stage.provisioner();
    for (volume, claim) in volumes.iter().zip(["a", "directory"]) {
        let bound = stage.occupy(claim, volume);
        keep_secret(volume);
        stage.delete_claim(claim);
        offered_again(&stage, volume, &bound);
        assert!(entries(volume).is_empty());
    }
    assert!(stage.events("VolumeInUse").is_empty());
    let reported = format!("mounted at {:?} as well", elsewhere.to_str().unwrap());
    assert!(provisioner.log().contains(&reported));
}
