//! Pods on their node, on a real store.

use std::{fs, process::Command, sync::Arc, time::Duration};

use serde_json::json;

use super::ProcessOptions;
use crate::{
    controllers::{
        ControllerOptions,
        object::Volume,
        tests::{World, but, pod, volume},
    },
    host_paths::HostPaths,
    pv_controller::recycler_pod,
    resource::PODS,
};

#[test]
fn a_pod_does_what_its_annotation_says() {
    for (run, phase, exit) in [
        ("", "Running", json!(null)),
        ("succeed", "Succeeded", json!(0)),
        ("fail", "Failed", json!(1)),
        ("hold", "Pending", json!(null)),
    ] {
        let mut world = World::new();
        world.add_node("n1");
        let annotated = but(pod("p", &[]), |p| {
            p["metadata"]["annotations"] = json!({super::RUN: run});
        });
        world.create(&PODS, annotated);
        assert_eq!(world.phase(&PODS, "p"), phase, "{run}");
        let status = &world.pod("p")["status"];
        assert_eq!(
            status["containerStatuses"][0]["state"]["terminated"]["exitCode"], exit,
            "{run}"
        );
        if run == "hold" {
            world.change(&PODS, "p", |p| {
                p["metadata"]["annotations"] = json!({super::RUN: "succeed"});
            });
            assert_eq!(world.phase(&PODS, "p"), "Succeeded", "after the annotation changed");
        }
    }
}

/// Its process died with the controllers, and its policy is Never.
#[test]
fn a_recycler_pod_that_ran_is_not_started_again_by_the_next_controllers() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("root/v")).unwrap();
    fs::write(dir.path().join("root/v/data"), "data").unwrap();
    // Made by a process of its own: this one's open file might be inherited by a child, and then
    // cannot be run.
    let script = "printf '#!/bin/sh\\nexec sleep 600\\n' > held && \
                  chmod +x held";
    let mut make = Command::new("/bin/sh");
    make.args(["-c", script]).current_dir(dir.path());
    assert!(make.status().unwrap().success());
    let options = |shell: &str| ControllerOptions {
        host_paths: Some(HostPaths::below(dir.path().join("root")).unwrap()),
        processes: Some(ProcessOptions {
            programs: [("/bin/sh".into(), dir.path().join(shell))].into(),
            logs: dir.path().join("logs"),
        }),
        ..ControllerOptions::default()
    };

    let mut world = World::with(options("held"));
    world.add_node("n1");
    let released = but(volume("v", "1Gi"), |v| {
        let spec = v["spec"].as_object_mut().unwrap();
        spec.remove("local");
        spec.insert("hostPath".into(), json!({"path": dir.path().join("root/v")}));
    });
    let recycler = recycler_pod::of(&Volume(Arc::new(released))).unwrap();
    world.create(&PODS, recycler);
    assert_eq!(world.phase(&PODS, "recycler-for-v"), "Running");

    world.restart_with(options("/bin/sh"));
    world.resync();
    std::thread::sleep(Duration::from_millis(300));
    world.resync();
    let status = &world.pod("recycler-for-v")["status"];
    assert_eq!(status["phase"], "Failed");
    assert!(dir.path().join("root/v/data").exists(), "it was emptied");
}
