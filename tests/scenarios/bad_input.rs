//! Faults of configurations and disks: reported once, and survived where that is possible.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::Duration;

use control_plane::requests::{Request, Verb};
use serde_json::json;
use support::Stage;

use super::kit::{fast_stage, metric, ready, tmpfs};
use super::stage;

/// Sooner than anything is tried again by the clock, and time enough on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(8);

/// The exit code and the output of a start that has to fail.
fn fails_to_start(
    stage: &Stage,
    change: impl FnOnce(&mut Command) -> &mut Command,
) -> (i32, String) {
    let mut command = stage.command();
    command.arg("--config").arg(stage.config_dir()).arg("--listen-address=127.0.0.1:0");
    change(&mut command);
    let log = stage.sandbox.path().join("failed.log");
    let mut program = support::Program::start(command, log).unwrap();
    let status = program.wait(stage.at_most(AT_ONCE)).unwrap();
    (status.code().unwrap(), program.log())
}

fn with_config(stage: &Stage, key: &str, value: &str) -> (i32, String) {
    stage.configure(key, value);
    let failure = fails_to_start(stage, |command| command);
    fs::remove_file(stage.config_dir().join(key)).unwrap();
    failure
}

#[test]
fn usage_and_configuration_errors_end_the_program_with_2_and_one_error() {
    let stage = or_skip!(stage());
    let nameless = stage.named("nameless");
    stage.register_node(&nameless, None);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = listener.local_addr().unwrap().to_string();

    let failures: [((i32, String), &[&str]); 9] = [
        (
            fails_to_start(&stage, |command| command.env_remove("MY_NODE_NAME")),
            &["MY_NODE_NAME", "spec.nodeName"],
        ),
        (
            fails_to_start(&stage, |command| command.env("MY_NODE_NAME", "unknown")),
            &["\"unknown\"", "MY_NODE_NAME"],
        ),
        (
            fails_to_start(&stage, |command| command.env("MY_NODE_NAME", &nameless)),
            &["nameless", "kubernetes.io/hostname"],
        ),
        (
            fails_to_start(&stage, |command| command.args(["--config", "/nowhere/config"])),
            &["/nowhere/config", "No such file"],
        ),
        (
            fails_to_start(&stage, |command| command.arg("--discovery-period=0s")),
            &["--discovery-period", "0s"],
        ),
        (
            fails_to_start(&stage, |command| command.env("KUBECONFIG", "/nowhere/kubeconfig")),
            &["/nowhere/kubeconfig", "KUBECONFIG"],
        ),
        (
            with_config(&stage, "storageClassMap", "fast:\n  hostDir: /a\n  mountDir: [\n"),
            &["storageClassMap", "line 3"],
        ),
        (with_config(&stage, "useAlphaAPI", "true"), &["useAlphaAPI", "alpha"]),
        (
            fails_to_start(&stage, |command| command.args(["--listen-address", &busy])),
            &[&busy, "--listen-address"],
        ),
    ];
    for ((code, log), words) in failures {
        assert_eq!(code, 2, "{log}");
        let errors: Vec<_> =
            log.lines().filter(|line| line.to_lowercase().starts_with("error")).collect();
        assert_eq!(errors.len(), 1, "one error: {log}");
        for word in words {
            assert!(errors[0].contains(word), "{word:?} is not in {:?}", errors[0]);
        }
        assert!(!log.contains("panicked"), "{log}");
    }
}

fn check_config(stage: &Stage) -> (i32, String) {
    let mut command = stage.command();
    let Output { status, stdout, .. } =
        command.arg("check-config").arg("--config").arg(stage.config_dir()).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap())
}

#[test]
fn a_faulty_class_is_disabled_with_its_fault_named_and_the_others_run() {
    let stage = or_skip!(stage());
    stage.class("good", &json!({}));
    stage.class("bad", &json!({ "volumeMode": "Blok" }));
    let good = tmpfs(&stage, "disks/good/vol");
    let bad = tmpfs(&stage, "disks/bad/vol");
    let mut provisioner = stage.provisioner();
    stage.available(&good, None);
    stage.eventually("the class is a reason", || {
        let (code, why) = provisioner.http_get("/ready").unwrap();
        code == 503 && why.contains("bad")
    });
    let event = stage.event("ClassInvalid", "bad");
    let (_, status) = provisioner.http_get("/status").unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let classes = status["classes"].as_array().unwrap();
    let class = classes.iter().find(|class| class["name"] == stage.named("bad")).unwrap();
    assert_eq!((&class["ready"], &status["ready"]), (&json!(false), &json!(false)));
    let (code, checked) = check_config(&stage);
    assert_eq!(code, 1);
    for value in ["volumeMode", "Blok", "write Filesystem or Block"] {
        for (place, text) in [
            ("the log", &provisioner.log()),
            ("the event", &event),
            ("/status", &class["faults"].to_string()),
            ("check-config", &checked),
        ] {
            assert!(text.contains(value), "{place} does not name {value}: {text}");
        }
    }
    assert!(stage.pvs_at(&bad).is_empty());
    drop(provisioner);

    stage.configure(
        "storageClassMap",
        &format!(
            "{{{1}: {{hostDir: {0}, mountDir: {0}}}}}",
            good.parent().unwrap().display(),
            stage.named("good")
        ),
    );
    assert_eq!(check_config(&stage).0, 0);
}

#[test]
fn an_api_server_that_is_down_at_the_start_is_waited_for() {
    let (stage, [volume]) = or_skip!(fast_stage(["vol"]));
    let down = stage.faults().on_any().reset_before();
    let mut provisioner = stage.provisioner();
    stage.eventually("it has tried twice", || {
        let tries = |r: &Request| r.verb == Verb::Get && r.resource == "nodes";
        stage.requests().count(tries) >= 2
    });
    assert_eq!(provisioner.http_get("/healthz").unwrap().0, 503);
    assert_eq!(provisioner.http_get("/ready").unwrap().0, 503);
    assert_eq!(metric(&mut provisioner, "config_last_reload_successful"), Some(1));
    assert!(provisioner.log().contains("trying again"));
    down.clear();
    stage.available(&volume, None);
    ready(&stage, &mut provisioner);
}

#[test]
fn a_start_that_waits_for_the_api_server_ends_on_sigterm() {
    let stage = or_skip!(stage());
    stage.faults().on_any().reset_before();
    let mut provisioner = stage.provisioner();
    stage.eventually("it waits", || provisioner.log().contains("trying again"));
    assert!(provisioner.stop(stage.at_most(AT_ONCE)).is_ok());
}
