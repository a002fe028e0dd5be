use proptest::prelude::*;

use clap::CommandFactory;

use std::path::PathBuf;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::*;
use crate::config::{CleanMethod, Cleaner};

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn parsed(line: &str) -> Args {
    Args::from_command_line(words(&format!("provisioner {line}")), true)
        .unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn run(line: &str) -> Run {
    match parsed(line).command {
        Command::Run(run) => run,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> String {
    Args::from_command_line(words(&format!("provisioner {line}")), true).unwrap_err().to_string()
}

#[test]
fn the_command_line_is_well_formed() {
    Args::command().debug_assert();
}

#[test]
fn without_arguments_everything_has_its_default() {
    let args = run("");
    let config = PathBuf::from("/etc/provisioner/config/");
    assert_eq!(args.config.config, config);
    assert_eq!(args.server.listen_address, ":8080");
    assert_eq!(args.server.metrics_path, "/metrics");
    assert_eq!(args.discovery_period, Duration::from_secs(10));
    assert_eq!(args.config_sync_period, Duration::from_secs(5));
    assert_eq!(args.kubelet.kubelet_dir, PathBuf::from("/var/lib/kubelet"));
    assert_eq!(args.release_quiet_period, Duration::from_secs(10));
    assert_eq!(args.takeover_after, Duration::from_mins(1));
    assert_eq!(args.log.format, LogFormat::Text);
    assert_eq!(args.log.level(), LevelFilter::INFO);
}

#[test]
fn the_flags_of_a_manifest_for_the_go_program_are_accepted() {
    let args = run(
        "-v=5 --logtostderr --alsologtostderr=false -stderrthreshold=WARNING --vmodule=x=9 \
         -listen-address=127.0.0.1:9090 -metrics-path=/m --discovery-period=1m30s -config-sync-period 1s",
    );
    assert_eq!(args.log.level(), LevelFilter::DEBUG);
    assert_eq!(args.server.listen_address, "127.0.0.1:9090");
    assert_eq!(args.server.metrics_path, "/m");
    assert_eq!(args.discovery_period, Duration::from_secs(90));
    assert_eq!(args.config_sync_period, Duration::from_secs(1));
}

#[test]
fn last_of_a_repeated_flag_counts() {
    assert_eq!(parsed("--v=1 --v=6").log().level(), LevelFilter::TRACE);
}

#[test]
fn log_level_overrides_verbosity() {
    for (line, level) in [
        ("-v=-1", LevelFilter::INFO),
        ("-v=0", LevelFilter::INFO),
        ("-v 3", LevelFilter::INFO),
        ("--v=4", LevelFilter::DEBUG),
        ("-v 5", LevelFilter::DEBUG),
        ("--v 6", LevelFilter::TRACE),
        ("-v=10", LevelFilter::TRACE),
        ("-v=10 --log-level=warn", LevelFilter::WARN),
        ("run -v=4", LevelFilter::DEBUG),
        ("node-cleanup --storageclass-names=a -v=4", LevelFilter::DEBUG),
        ("discover", LevelFilter::INFO),
    ] {
        assert_eq!(parsed(line).log().level(), level, "{line}");
    }
}

#[test]
fn commands_have_their_arguments() {
    match parsed("check-config --config /tmp").command {
        Command::CheckConfig(it) => assert_eq!(it.config.config, PathBuf::from("/tmp")),
        other => panic!("{other:?}"),
    }
    match parsed("check-config -f -").command {
        Command::CheckConfig(it) => assert_eq!(it.filename, Some(PathBuf::from("-"))),
        other => panic!("{other:?}"),
    }
    refusal("check-config --config /tmp -f a.yaml");
    match parsed("check --pre").command {
        Command::Check(it) => assert_eq!((it.pre, it.filename.to_str()), (true, Some("-"))),
        other => panic!("{other:?}"),
    }
    assert!(refusal("check -f a.yaml").contains("--pre"));
    let discover = |line| match parsed(line).command {
        Command::Discover { output, .. } => output,
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(discover("discover"), OutputFormat::Table);
    assert_eq!(discover("discover -o json"), OutputFormat::Json);
    assert_eq!(discover("discover -output=yaml"), OutputFormat::Yaml);
    match parsed("supervise mkfs.ext4 -F --help -v=1 -- /dev/sda").command {
        Command::Supervise { program } => {
            assert_eq!(program, words("mkfs.ext4 -F --help -v=1 -- /dev/sda"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn job_has_a_method_or_a_command_that_is_passed_on() {
    let required = "job --pv=p --device=/d --identity=i --size=1 --pv-uid=u --class=c";
    let cleaner = |line: &str| match parsed(&line.replacen("job", required, 1)).command {
        Command::Job(job) => job.cleaner(),
        other => panic!("{line}: {other:?}"),
    };
    let command = |words: &str| Cleaner::Command(words.split(' ').map(str::to_owned).collect());
    for (line, expected) in [
        ("job --method=zero", Cleaner::Method(CleanMethod::Zero)),
        ("job --method auto", Cleaner::Method(CleanMethod::Auto)),
        ("job", Cleaner::default()),
        ("job /scripts/shred.sh 2", command("/scripts/shred.sh 2")),
        ("job mkfs.ext4 -F --help -v=1 -method=x", command("mkfs.ext4 -F --help -v=1 -method=x")),
    ] {
        assert_eq!(cleaner(line), expected, "{line}");
    }
    let text = refusal("job --method=contents");
    assert!(text.contains("quick, zero, overwrite, discard, auto"), "{text}");
}

#[test]
fn a_bad_value_is_refused_with_a_reason() {
    for (line, reason) in [
        ("--discovery-period=10", "write positive numbers and units"),
        ("--discovery-period=0s", "more than zero"),
        ("--config-sync-period=-5s", "not a duration"),
        ("--release-quiet-period=soon", "not a duration"),
        ("--metrics-path=metrics", "begin with"),
        ("--log-format=xml", "text, json"),
        ("-v=much", "'much' for '--v <NUMBER>': write a whole number, such as 4"),
        ("--v=abc", "'abc' for '--v <NUMBER>': write a whole number, such as 4"),
        (
            "--log-level=loud",
            "'loud' for '--log-level <LEVEL>': write error, warn, info, debug or trace",
        ),
        (
            "--discovery-period -5s",
            "'-5s' for '--discovery-period <DURATION>': not a duration; write positive numbers",
        ),
        (
            "node-cleanup --storageclass-names=a --pvc-deletion-delay -1m",
            "'-1m' for '--pvc-deletion-delay <DURATION>'",
        ),
        (
            "node-cleanup --storageclass-names=a --requests-per-second 0",
            "'0' for '--requests-per-second <NUMBER>': write a whole number from 1 to 65535, such as 20",
        ),
        ("discover -o xml", "table, json, yaml"),
        ("supervise", "PROGRAM"),
        ("-nonsense", "unexpected argument '--nonsense'"),
        ("-discovry-period=1s", "'--discovery-period'"),
        ("--discovry-period=1s", "'--discovry-period'"),
        ("clean /a -kubelet-di a", "'--kubelet-dir'"),
        ("statsu", "'status'"),
        ("--node-isolation=maybe", "'maybe' for '--node-isolation'"),
    ] {
        let text = refusal(line);
        assert!(text.contains(reason), "{line}: {text}");
    }
}

#[test]
fn the_environment_is_read_through_the_lookup() {
    let environment = |entries: &'static [(&str, &str)]| {
        Environment::read(|name| {
            entries.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
    };
    let empty = environment(&[("MY_NODE_NAME", ""), ("MY_NAMESPACE", "")]);
    assert_eq!(empty, environment(&[]));
    assert_eq!((empty.namespace.as_str(), empty.namespace_defaulted), ("default", true));
    let error = empty.require_node_name().unwrap_err();
    assert!(error.contains("MY_NODE_NAME"), "{error}");

    let full = environment(&[
        ("MY_NODE_NAME", "node-1"),
        ("MY_NAMESPACE", "default"),
        ("MY_DAEMONSET", "lvp"),
        ("JOB_CONTAINER_IMAGE", "image:1"),
        ("JOB_IMAGE_PULL_SECRETS", "a, b,"),
    ]);
    assert_eq!(full.require_node_name(), Ok("node-1".into()));
    assert!(!full.namespace_defaulted, "set to what the default is, but set");
    assert_eq!(full.installation.as_deref(), Some("default/lvp"));
    let unknown = environment(&[("MY_DAEMONSET", "lvp")]);
    assert_eq!(unknown.installation, None, "the namespace is a guess");
    assert_eq!(full.job_image.as_deref(), Some("image:1"));
    assert_eq!(full.job_pull_secrets, ["a", "b"]);
    assert_eq!((full.pod_name, full.pod_uid), (None, None));

    let pod = environment(&[("HOSTNAME", "from-hostname")]);
    assert_eq!(pod.pod_name.as_deref(), Some("from-hostname"));
    let pod = environment(&[("HOSTNAME", "host"), ("POD_NAME", "pod"), ("POD_UID", "uid")]);
    assert_eq!((pod.pod_name.as_deref(), pod.pod_uid.as_deref()), (Some("pod"), Some("uid")));
}

#[test]
fn release_requires_a_scope() {
    let parse =
        |line: &str| Args::from_command_line(words(&format!("provisioner release {line}")), false);
    let Command::Release(release) =
        parse("-finalizers -daemonset=a -namespace b -timeout 30s").unwrap().command
    else {
        panic!("another command");
    };
    assert_eq!(release.daemonset.as_deref(), Some("a"));
    assert_eq!(release.timeout, Duration::from_secs(30));
    assert_eq!(release.absent_for, Duration::from_secs(20));
    assert!(!release.abandon_unmarked && !release.unless_installed);
    for refused in [
        "",
        "--node a",
        "--finalizers",
        "--finalizers --namespace a",
        "--finalizers --node a --daemonset b --namespace c",
        "--finalizers --node a --timeout=soon",
        "--finalizers --node a --unless-installed",
        "--finalizers --daemonset a",
        "--finalizers --daemonset a --namespace=",
    ] {
        assert!(parse(refused).is_err(), "{refused:?}");
    }
}

proptest! {
    #[test]
    fn no_command_line_panics(line in proptest::collection::vec(any::<String>(), 0..5)) {
        let _ = Args::from_command_line(line.into_iter().map(OsString::from), true);
    }
}

#[test]
fn clean_requires_a_volume_and_asks_by_default() {
    let clean = |line: &str| match parsed(line).command {
        Command::Clean(clean) => clean,
        other => panic!("{other:?}"),
    };
    let plain = clean("clean /mnt/a");
    assert_eq!((plain.volume.as_str(), plain.method), ("/mnt/a", None));
    assert!(!plain.yes && !plain.dry_run);
    let full = clean("clean -dry-run --yes -method=overwrite local-pv-1");
    assert_eq!(full.method, Some(CleanMethod::Overwrite));
    assert!(full.yes && full.dry_run);
    for (line, words) in [
        ("clean", "<PATH|PV>"),
        ("clean /a /b", "unexpected argument"),
        ("clean /a --method wipe", "quick, zero"),
    ] {
        let refusal = refusal(line);
        assert!(refusal.contains(words), "{line}: {refusal}");
    }
}

#[test]
fn metrics_path_in_use_or_with_a_pattern_is_refused() {
    for path in ["/healthz", "/ready", "/status", "metrics", "/{m}", "/:m", "/*m"] {
        assert!(absolute(path).is_err(), "{path}");
    }
    assert_eq!(absolute("/a-b/c_d.e"), Ok("/a-b/c_d.e".into()));
}
