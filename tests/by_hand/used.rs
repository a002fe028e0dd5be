//! What is left alone since somebody uses it, or may well use it, in a way that shows elsewhere.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use support::{LoopDevice, run, sandbox, skip};

use crate::ground::{
    SIZE, assert_clean, assert_refused, bytes, clean_in_pod, device_with_secret, is_full, volume,
};

#[test]
fn by_a_pod_of_a_kubelet_whose_directory_is_behind_a_link() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    let of_pod = "data/kubelet/pods/uid/volumes/kubernetes.io~local-volume/pv";
    sandbox.bind(&root, of_pod).unwrap();
    let link = sandbox.path().join("kubelet");
    symlink(sandbox.path().join("data/kubelet"), link).unwrap();
    let kubelet_dir = ["--kubelet-dir=/mnt/kubelet"];
    for path in [&root, &sandbox.path().join(of_pod)] {
        assert_refused(path, &kubelet_dir, "the kubelet has it mounted for a Pod");
    }
    assert!(is_full(&root));
}

#[test]
fn by_whatever_pod_while_a_pod_of_our_own_does_not_show() {
    let sandbox = sandbox!();
    let (root, device) = (
        volume(&sandbox, "volume"),
        device_with_secret(sandbox.path()),
    );
    let before = bytes(&device);
    let kubelet = sandbox.dir("kubelet").unwrap();
    let refused = |path: &Path, variable: &str| {
        for go in ["--dry-run", "--yes"] {
            let ran = clean_in_pod(path, go, variable);
            assert_eq!(ran.code, Some(2), "{}", ran.said);
            assert!(ran.said.contains("--kubelet-dir"), "{}", ran.said);
        }
    };
    for (pod, variable) in [
        (None, "MY_NODE_NAME=node"),
        (None, "POD_UID=ours"),
        // What an earlier kubelet has left.
        (Some("pods/other"), "POD_UID=ours"),
    ] {
        if let Some(pod) = pod {
            fs::create_dir_all(kubelet.join(pod)).unwrap();
        }
        refused(&root, variable);
        refused(device.path(), variable);
    }
    fs::create_dir_all(kubelet.join("pods/ours")).unwrap();
    // Devices take more to be seen.
    refused(device.path(), "POD_UID=ours");
    assert!(is_full(&root) && bytes(&device) == before);

    fs::create_dir_all(kubelet.join("plugins")).unwrap();
    for path in [&root, device.path()] {
        let ran = clean_in_pod(path, "--yes", "POD_UID=ours");
        assert_eq!(ran.code, Some(0), "{}", ran.said);
    }
}

#[test]
fn by_whom_it_could_be_used_unseen_is_told() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    let clean = env!("CARGO_BIN_EXE_local-volume-provisioner");
    let args = ["clean", "/mnt/volume", "--dry-run", "--kubelet-dir=/mnt/k"];
    let shown = run(clean, &args);
    assert!(
        shown.contains("not seen  Pods: \"/mnt/k/pods\" has none"),
        "{shown}"
    );
    fs::create_dir_all(sandbox.path().join("k/pods/uid")).unwrap();
    let shown = run(clean, &args);
    assert!(!shown.contains("Pods:"), "{shown}");
    assert!(is_full(&root));
}

#[test]
fn as_a_part_of_the_whole_disk() {
    let sandbox = sandbox!();
    let disk = LoopDevice::halved(sandbox.path(), SIZE).unwrap();
    let partition = disk.partition(1);
    {
        let _upon = LoopDevice::over(&File::open(disk.path()).unwrap()).unwrap();
        assert_refused(&partition, &[], "lies on it");
    }
    assert_clean(
        &[partition.as_os_str(), "--yes".as_ref()],
        0,
        &["Cleaned /dev/loop"],
    );
}

#[test]
fn as_another_loop_device_over_the_same_part_of_a_file() {
    let sandbox = sandbox!();
    let image = tempfile::tempfile_in(sandbox.path()).unwrap();
    image.set_len(SIZE).unwrap();
    let [one, other] = [(); 2].map(|()| LoopDevice::over(&image).unwrap());
    let before = bytes(&one);
    let name = other.path().file_name().unwrap().to_str().unwrap();
    assert_refused(one.path(), &[], &format!("the same storage as {name}"));
    assert!(bytes(&one) == before);
}

#[test]
fn by_others_who_see_the_same_filesystem_or_by_a_layer_above() {
    let sandbox = sandbox!();
    let lower = volume(&sandbox, "lower");
    let upper = sandbox.tmpfs("upper", "size=1m").unwrap();
    let overlay = sandbox.dir("overlay").unwrap();
    let options = "lowerdir=/mnt/lower,upperdir=/mnt/upper/up,workdir=/mnt/upper/work";
    for dir in ["up", "work"] {
        fs::create_dir(upper.join(dir)).unwrap();
    }
    let flags = MsFlags::empty();
    if mount(Some("o"), &overlay, Some("overlay"), flags, Some(options)).is_err() {
        skip("this kernel has no overlay");
        return;
    }
    assert_refused(&overlay, &[], "of type overlay");
    assert!(is_full(&overlay) && is_full(&lower));
}
