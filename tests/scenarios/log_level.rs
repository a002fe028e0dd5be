//! The log level, changed while the program runs.

use nix::sys::signal::Signal;
use serde_json::json;
use support::{Program, Stage};

use super::kit::status;
use super::stage;

/// The exit code of `log-level`, and all that it says.
fn log_level(stage: &Stage, args: &[&str]) -> (Option<i32>, String) {
    let output = stage
        .command()
        .arg("log-level")
        .args(args)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

fn shows(stage: &Stage, provisioner: &mut Program, level: &str) {
    stage.eventually(&format!("the log level is {level}"), || {
        (status(provisioner)["logLevel"] == level).then_some(())
    });
}

#[test]
fn one_signal_makes_it_log_more_and_another_as_configured() {
    let mut stage = or_skip!(stage());
    stage.add_arg("--log-level=info");
    stage.add_arg("--discovery-period=200ms");
    stage.class("fast", &json!({})).unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    shows(&stage, &mut provisioner, "info");
    for level in ["debug", "trace", "trace"] {
        provisioner.signal(Signal::SIGUSR1).unwrap();
        shows(&stage, &mut provisioner, level);
    }
    stage.eventually(
        "the log says that it was changed, and more than before",
        || {
            let log = provisioner.log();
            let all = ["is debug now, it was info", "is trace already", "TRACE"];
            all.iter().all(|words| log.contains(words)).then_some(())
        },
    );
    provisioner.signal(Signal::SIGUSR2).unwrap();
    shows(&stage, &mut provisioner, "info");
    stage.eventually("the log says so", || {
        provisioner
            .log()
            .contains("the log level is info again, as configured")
            .then_some(())
    });
    assert!(provisioner.is_running());
}

#[test]
fn the_command_finds_the_provisioner_of_its_container() {
    let mut stage = or_skip!(stage());
    let (code, said) = log_level(&stage, &["more"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("no provisioner") && said.contains("kubectl exec"),
        "{said}"
    );

    stage.add_arg("--log-level=info");
    stage.class("fast", &json!({})).unwrap();
    let mut provisioner = stage.provisioner().unwrap();
    shows(&stage, &mut provisioner, "info");
    let pid = provisioner.pid().to_string();
    let (code, said) = log_level(&stage, &["more"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("process {pid}")), "{said}");
    shows(&stage, &mut provisioner, "debug");
    assert_eq!(log_level(&stage, &["default", "--pid", &pid]).0, Some(0));
    shows(&stage, &mut provisioner, "info");

    // Nobody else is sent a signal, which would end them.
    let own = std::process::id().to_string();
    let (code, said) = log_level(&stage, &["more", "-pid", &own]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("nothing was sent"), "{said}");
}
