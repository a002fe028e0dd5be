//! Cleaners that fail, whose work is thrown away, or that are left behind.

use std::fs;
use std::path::Path;

use control_plane::faults::Answer;
use control_plane::requests::Verb;
use serde_json::json;
use support::Stage;
use support::stage::{is_terminating, name};

use crate::kit::*;
use crate::stage;

const WIPE: &str =
    "dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=32 conv=notrunc status=none\n";

fn runs(stage: &Stage) -> usize {
    lines(&stage.sandbox.path().join("runs")).len()
}

fn failures(provisioner: &mut support::Program) -> Option<u64> {
    metric(provisioner, "persistentvolume_delete_failed_total{mode=\"Block\",type=\"process\"}")
}

#[test]
fn fault_7_a_failing_cleaner_is_reported_counted_and_not_run_in_a_loop() {
    let stage = or_skip!(stage_with(&["--discovery-period=100ms"]));
    let scratch = stage.sandbox.path().display().to_string();
    let script = format!(
        "cd {scratch}; date +%s >> runs; echo the disk is on fire; [ $(wc -l < runs) = 1 ] && exit 3\n\
         while ! [ -e repaired ]; do sleep 0.02; done\n{WIPE}"
    );
    let (device, path) = cleaned_by(&stage, &script);
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &path));
    scribble(device.path());
    stage.delete_claim("claim");

    // Asked of the program, which tries again in ten seconds: its event may take a while.
    stage.eventually("the failure is counted", || failures(&mut provisioner) == Some(1));
    let cleanup = status_of(&mut provisioner, &path)["cleanup"].clone();
    assert_eq!((&cleanup["state"], &cleanup["attempts"]), (&json!("Failed"), &json!(1)));
    assert_eq!(metric(&mut provisioner, "proctable_failed"), Some(1));
    let text = stage.event("VolumeFailedDelete", "exit code 3");
    assert!(text.contains("the disk is on fire"), "the cleaner's last output is reported: {text}");
    let held = stage.pv(&name(&bound)).unwrap();
    assert!(is_terminating(&held) && is_protected(&held), "no claim can bind it meanwhile");

    fs::write(stage.sandbox.path().join("repaired"), "").unwrap();
    stage.eventually("the next try", || runs(&stage) == 2);
    let seconds = lines(&stage.sandbox.path().join("runs"));
    let [first, second] = [0, 1].map(|at| seconds[at].parse::<u64>().unwrap());
    assert!(second - first >= 9, "it was run again at once: {seconds:?}");
    offered_again(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(failures(&mut provisioner), Some(1));
}

#[test]
fn fault_8_when_the_delete_fails_nothing_is_wiped_before_it_succeeds() {
    let stage = or_skip!(stage());
    let script = format!("echo run >> {}/runs\n{WIPE}", stage.sandbox.path().display());
    let (device, path) = cleaned_by(&stage, &script);
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &path));
    scribble(device.path());
    let fault =
        stage.faults().on(Verb::Delete).resource("persistentvolumes").answer(Answer::code(500));
    stage.delete_claim("claim");
    stage.event("VolumeFailedDelete", "deleting the PV before cleaning it failed");
    stage.still(&mut provisioner, "the data is there as the PV is", || {
        runs(&stage) == 0 && secrets_on(device.path()).len() == 4
    });
    fault.clear();
    stage.eventually("the next try", || runs(&stage) == 1);
    offered_again(&stage, &path, &bound);
    assert_eq!(runs(&stage), 1);
}

/// The process ids that the cleaner wrote down.
fn pids(file: &Path) -> Vec<u32> {
    lines(file).iter().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn fault_15_no_cleaner_outlives_the_provisioner_and_none_runs_twice() {
    let stage = or_skip!(stage());
    let scratch = stage.sandbox.path().to_owned();
    // It forks, leaves its session, and ignores everything that can be ignored.
    let script = format!(
        "cd {scratch}\n\
         exec 9>exclusive\n\
         flock --nonblock 9 || echo two at a time >> overlaps\n\
         trap '' TERM INT HUP PIPE\n\
         if [ -e finish ]; then echo run >> runs; {WIPE} exit 0; fi\n\
         echo $$ >> pids\n\
         setsid sh -c 'trap \"\" TERM INT HUP PIPE; echo $$ >> pids; while :; do sleep 1; done' &\n\
         while :; do sleep 1; done\n",
        scratch = scratch.display(),
    );
    let (device, path) = cleaned_by(&stage, &script);
    let mut provisioner = stage.provisioner();
    let bound = stage.used(&stage.bind("claim", &path));
    scribble(device.path());
    stage.delete_claim("claim");
    let two = |count: usize| {
        stage.eventually("the cleaner and its child run", || {
            Some(pids(&scratch.join("pids"))).filter(|pids| pids.len() == count)
        })
    };
    let first = two(2);
    assert!(first.iter().all(|pid| is_alive(*pid)));
    provisioner.kill();
    stage.eventually("all of it is gone", || !first.iter().any(|pid| is_alive(*pid)));

    let mut successor = stage.provisioner();
    let all = two(4);
    assert!(all[2..].iter().all(|pid| is_alive(*pid)));
    assert!(successor.stop(stage.timeout()).unwrap().success());
    stage.eventually("all of that is gone too", || !all.iter().any(|pid| is_alive(*pid)));
    assert!(is_terminating(&stage.pv(&name(&bound)).unwrap()));

    fs::write(scratch.join("finish"), "").unwrap();
    let _third = stage.provisioner();
    offered_again(&stage, &path, &bound);
    assert!(secrets_on(device.path()).is_empty());
    assert_eq!(runs(&stage), 1);
    assert_eq!(lines(&scratch.join("overlaps")), [] as [&str; 0]);
}
