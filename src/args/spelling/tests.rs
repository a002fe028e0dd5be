use proptest::prelude::*;

use super::*;

/// As the program does it.
fn normalise(line: impl IntoIterator<Item = OsString>, is_node: bool) -> Vec<OsString> {
    super::normalise(line, is_node, &program())
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

#[test]
fn go_spellings_become_clap_spellings() {
    for (line, expected) in [
        ("", ""),
        ("--listen-address=:9", "--listen-address=:9"),
        ("-listen-address=:9", "--listen-address=:9"),
        ("-listen-address :9", "--listen-address :9"),
        ("-discovery-period 1m -metrics-path=/m", "--discovery-period 1m --metrics-path=/m"),
        ("-v=4", "-v=4"),
        ("-h", "-h"),
        ("-help", "--help"),
        ("-o json", "-o json"),
        // Whole, so that the error names it.
        ("-unknown", "--unknown"),
        ("-discovry-period=1s", "--discovry-period=1s"),
        ("-z", "-z"),
        ("-5", "-5"),
        ("--unknown=a=b", "--unknown=a=b"),
        ("-config=/a=b", "--config=/a=b"),
        ("-", "-"),
        ("clean /a -yes --dry-run", "clean /a --yes --dry-run"),
        // The rest belongs to another program.
        ("-v=1 supervise mkfs -v=2 -logtostderr", "-v=1 supervise mkfs -v=2 -logtostderr"),
        ("-v=1 -- -v=2 -logtostderr", "-v=1 -- -v=2 -logtostderr"),
    ] {
        let normal = normalise(words(&format!("provisioner discover {line}")), true);
        let expected = words(&format!("provisioner discover {expected}"));
        assert_eq!(normal, expected, "{line}");
    }
}

#[test]
fn run_is_the_command_where_none_is_named() {
    for (line, is_node, expected) in [
        ("", true, "run"),
        ("", false, "--help"),
        ("-listen-address=:9 -v 4", false, "run --listen-address=:9 -v 4"),
        ("run -v 4", true, "run -v 4"),
        ("-logtostderr discover", true, "--logtostderr discover"),
        ("-h", true, "-h"),
        ("--version", true, "--version"),
        ("help run", true, "help run"),
        ("statsu", true, "statsu"),
    ] {
        let normal = normalise(words(&format!("provisioner {line}")), is_node);
        assert_eq!(normal, words(&format!("provisioner {expected}")), "{line}");
    }
}

#[test]
fn plugin_is_shown_as_kubectl_calls_it() {
    let help = |path: &str| {
        let line = [path, "explain", "--help"].map(OsString::from);
        Args::from_command_line(line, false).unwrap_err().to_string()
    };
    let plugin = help("/usr/local/bin/kubectl-local_volume");
    assert!(plugin.contains("Usage: kubectl local-volume explain"), "{plugin}");
    let program = help("./local-volume-provisioner");
    assert!(program.contains("Usage: local-volume-provisioner explain"), "{program}");
}

#[test]
fn flags_of_klog_are_ignored() {
    for line in [
        "--logtostderr check-config",
        "-alsologtostderr=true -skip_headers check-config",
        "--stderrthreshold=2 -stderrthreshold INFO check-config",
        "check-config --vmodule=a=1,b=2 --vmodule a=1 -log_dir /tmp --log-dir=/tmp",
        "check-config --log-file-max-size 5 --log_backtrace_at=x:1 -add_dir_header",
        "check-config -logtostderr=false",
    ] {
        let parsed = Args::from_command_line(words(&format!("provisioner {line}")), false);
        let command = parsed.map(|args| args.command);
        assert!(
            matches!(command, Ok(super::super::Command::CheckConfig(_))),
            "{line}: {command:?}"
        );
    }
}

proptest! {
    #[test]
    fn normalising_twice_changes_nothing_more(line in "(-{0,2}[a-z=-]{0,12} ){0,5}") {
        let once = normalise(words(&format!("provisioner {line}")), true);
        prop_assert_eq!(normalise(once.clone(), true), once);
    }
}
