//! Volumes of type `hostPath` that are really deleted, and those of which nothing is touched, as a
//! client sees it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod common;

use std::{fs, process::Command, time::Duration};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::{Value, json};
use support::Sandbox;

use self::common::{MERGE, PVCS, PVS, host_paths::Ground};

#[tokio::test]
async fn a_directory_is_deleted_with_its_volume() {
    let ground = Ground::new().await;
    ground.released("Delete").await;
    let volume = format!("{PVS}/v");
    ground.until(&volume, "gone", |pv| pv.is_none()).await;
    assert_eq!(ground.left(), 0);
    assert!(!ground.path("root/v").exists());
    assert!(ground.path("root").exists());
}

#[tokio::test]
async fn a_deletion_that_failed_is_tried_again() {
    let ground = Ground::new().await;
    let path = ground.path("root/late");
    std::os::unix::fs::symlink(ground.path("beside"), &path).unwrap();
    ground.bound("Delete", &path.display().to_string()).await;
    ground
        .api
        .delete(&format!("{PVCS}/c"), &Value::Null)
        .await
        .ok();
    let why = ground.failure("Delete").await;
    assert!(why.contains("symbolic link"), "{why}");
    // At no moment is nothing there: that would be another error.
    let directory = ground.path("root/directory");
    fs::create_dir(&directory).unwrap();
    renameat2(
        AT_FDCWD,
        &directory,
        AT_FDCWD,
        &path,
        RenameFlags::RENAME_EXCHANGE,
    )
    .unwrap();
    let volume = format!("{PVS}/v");
    ground.until(&volume, "gone", |pv| pv.is_none()).await;
    assert!(!path.exists());
    assert_eq!(ground.told("VolumeFailedDelete").await, [why], "told once");
    assert_eq!(ground.left(), 4);
}

#[tokio::test]
async fn a_volume_deleted_while_bound_waits_for_its_directory() {
    let ground = Ground::new().await;
    let path = ground.path("root/v").display().to_string();
    ground.bound("Delete", &path).await;
    let volume = format!("{PVS}/v");
    let by = json!({"metadata": {"annotations": {
        "pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path",
    }}});
    ground.api.patch(&volume, MERGE, &by).await.ok();
    let held = |pv: Option<&Value>| {
        let finalizers = pv.unwrap()["metadata"]["finalizers"].as_array();
        finalizers
            .unwrap()
            .contains(&json!("kubernetes.io/pv-controller"))
    };
    ground.until(&volume, "held", held).await;
    ground.api.delete(&volume, &Value::Null).await.ok();
    tokio::time::sleep(Duration::from_millis(500)).await;
    ground.phase("Bound").await;
    assert_eq!(ground.left(), 4);
    ground
        .api
        .delete(&format!("{PVCS}/c"), &Value::Null)
        .await
        .ok();
    ground.until(&volume, "gone", |pv| pv.is_none()).await;
    assert!(!ground.path("root/v").exists());
}

#[tokio::test]
async fn nothing_outside_of_the_root_is_touched() {
    for (policy, path, why) in [
        ("Recycle", "beside", "is not below the test root"),
        ("Delete", "beside", "is not below the test root"),
        ("Recycle", "root", "is the test root itself"),
        ("Delete", "root", "is the test root itself"),
        ("Recycle", "root/v/link", "symbolic link"),
        ("Delete", "root/v/link", "symbolic link"),
        ("Recycle", "root/none", "does not exist"),
    ] {
        let ground = Ground::new().await;
        let path = ground.path(path).display().to_string();
        ground.bound(policy, &path).await;
        ground
            .api
            .delete(&format!("{PVCS}/c"), &Value::Null)
            .await
            .ok();
        let told = ground.failure(policy).await;
        assert!(told.contains(why), "{policy} {path}: {told}");
        assert_eq!(ground.left(), 4, "{policy} {path}");
    }
}

#[tokio::test]
async fn without_a_root_nothing_is_touched() {
    for policy in ["Recycle", "Delete"] {
        let ground = Ground::with(|options| options.host_paths = None).await;
        ground.released(policy).await;
        let told = ground.failure(policy).await;
        assert!(told.contains("--host-paths"), "{policy}: {told}");
        assert_eq!(ground.left(), 4, "{policy}");
    }
}

#[test]
fn the_program_does_not_take_every_root() {
    for (root, why) in [
        ("/", "root of this machine"),
        ("/no/such/root", "cannot be opened"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_control-plane"));
        program.args(["--kubeconfig", "/no/such/file", "--host-paths", root]);
        let output = program.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains(why),
            "{root}: {said}"
        );
    }
}

/// Another filesystem, or the same one bound there, is somebody else's.
#[test]
fn what_is_mounted_in_a_volume_is_safe() {
    let Some(_sandbox) = Sandbox::enter() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for policy in ["Recycle", "Delete"] {
            for (place, why) in [
                ("root/v/sub", "is mounted in it"),
                ("root/v", "something is mounted"),
            ] {
                let ground = Ground::new().await;
                fs::create_dir(ground.path("seen")).unwrap();
                // The volume without what is mounted in it: without that, the next attempt succeeds.
                for (what, there) in [("root/v", "seen"), ("beside", place)] {
                    let mut mount = Command::new("mount");
                    mount
                        .arg("--bind")
                        .args([what, there].map(|p| ground.path(p)));
                    assert!(mount.status().unwrap().success());
                }
                ground.released(policy).await;
                let told = ground.failure(policy).await;
                assert!(told.contains(why), "{policy} {place}: {told}");
                assert_eq!(ground.left_in("seen"), 4, "{policy} {place}");
                for there in [place, "seen"] {
                    let mut unmount = Command::new("umount");
                    assert!(unmount.arg(ground.path(there)).status().unwrap().success());
                }
            }
        }
    });
}

/// The scrub has begun when somebody mounts another filesystem.
#[test]
fn what_is_mounted_in_a_volume_during_its_scrub_is_safe() {
    let Some(_sandbox) = Sandbox::enter() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let ground = Ground::new().await;
        let hold = ground.path("hold");
        fs::write(&hold, "").unwrap();
        let wait = format!("while [ -e '{}' ]; do sleep 0.1; done", hold.display());
        ground.first(&wait);
        ground.released("Recycle").await;
        ground.recycler_runs().await;
        let place = ground.path("root/v/sub");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "none"]).arg(&place);
        assert!(mount.status().unwrap().success());
        fs::write(place.join("theirs"), "data").unwrap();
        // Nobody scrubs it a second time meanwhile.
        ground.first("exit 1");
        fs::remove_file(hold).unwrap();
        let why = ground.failure("Recycle").await;
        assert!(why.contains("failed to recycle volume"), "{why}");
        assert!(place.join("theirs").exists(), "a stranger's file is lost");
        let mut unmount = Command::new("umount");
        assert!(unmount.arg(&place).status().unwrap().success());
    });
}
