use clap::CommandFactory;
use proptest::prelude::*;

use super::super::Args;
use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn normal(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    normalise(&Args::command(), line)
}

#[test]
fn go_spellings_become_clap_spellings() {
    for (line, expected) in [
        ("", ""),
        ("--listen-address=:9", "--listen-address=:9"),
        ("-listen-address=:9", "--listen-address=:9"),
        ("-listen-address :9", "--listen-address :9"),
        (
            "-discovery-period 1m -metrics-path=/m",
            "--discovery-period 1m --metrics-path=/m",
        ),
        ("-v=4", "--v=4"),
        ("--v 4", "--v 4"),
        ("-v 4", "--v 4"),
        ("-v4", "-v4"),
        ("-v=-1", "--v=-1"),
        ("-h", "-h"),
        ("-help", "--help"),
        ("-o json", "-o json"),
        ("discover -ojson", "discover -ojson"),
        // Whole, so that the error names it.
        ("-unknown", "--unknown"),
        ("-discovry-period=1s", "--discovry-period=1s"),
        ("-zz", "--zz"),
        ("-z", "-z"),
        ("-5", "-5"),
        ("--unknown=a=b", "--unknown=a=b"),
        ("-config=/a=b", "--config=/a=b"),
        ("-", "-"),
        // A switch takes no word after it, other flags do.
        ("--logtostderr check-config", "check-config"),
        ("-alsologtostderr=true -skip_headers", ""),
        ("--stderrthreshold=2 -stderrthreshold INFO -v=2", "--v=2"),
        (
            "--vmodule=a=1,b=2 --vmodule a=1 -log_dir /tmp --log-dir=/tmp",
            "",
        ),
        (
            "--log-file-max-size 5 --log_backtrace_at=x:1 -add_dir_header",
            "",
        ),
        (
            "--log-level debug -log-format=json",
            "--log-level debug --log-format=json",
        ),
        (
            "discover -node-name=n -logtostderr",
            "discover --node-name=n",
        ),
        // Switches, with Go's truth values.
        ("-node-isolation", "--node-isolation"),
        ("--node-isolation=true", "--node-isolation"),
        ("-node-isolation=1 -v=2", "--node-isolation --v=2"),
        ("--node-isolation -node-isolation=F", ""),
        ("-node-isolation=False --node-isolation", "--node-isolation"),
        ("--node-isolation=maybe", "--node-isolation=maybe"),
        ("-logtostderr=false", ""),
        ("clean /a -yes=true -dry-run=false", "clean /a --yes"),
        // Those that may be on from the beginning.
        ("clean --trim /a", "clean --trim=true /a"),
        ("clean -trim=F /a", "clean --trim=false /a"),
        ("clean --trim false /a", "clean --trim=false /a"),
        ("clean -trim -yes /a", "clean --trim=true --yes /a"),
        ("clean --trim=maybe /a", "clean --trim=maybe /a"),
        // The word behind a flag that takes one is its value, whatever it looks like.
        ("--config supervise -v=1", "--config supervise --v=1"),
        (
            "-config clean -node-isolation=true",
            "--config clean --node-isolation",
        ),
        ("--metrics-path -v", "--metrics-path -v"),
        ("clean supervise -yes=true", "clean supervise --yes"),
        // From here on it is somebody else's.
        (
            "-v=1 supervise mkfs -v=2 -logtostderr",
            "--v=1 supervise mkfs -v=2 -logtostderr",
        ),
        ("-v=1 -- -v=2 -logtostderr", "--v=1 -- -v=2 -logtostderr"),
        ("-vmodule", ""),
    ] {
        let normal = normal(words(&format!("provisioner {line}")));
        assert_eq!(normal, words(&format!("provisioner {expected}")), "{line}");
    }
    assert_eq!(normal([]), Vec::<OsString>::new());
    assert_eq!(
        normal(words("-v=4")),
        words("-v=4"),
        "the program's name is no flag"
    );
}

#[test]
fn every_switch_of_every_command_takes_gos_truth_values() {
    let program = Args::command();
    let visible = program
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let mut seen = 0;
    for command in std::iter::once(&program).chain(visible) {
        let is_top = command.get_name() == program.get_name();
        for arg in command.get_arguments() {
            let Some(flag) = arg.get_long().filter(|_| Kind::of(arg) != Kind::Value) else {
                continue;
            };
            let place = if is_top { "" } else { command.get_name() };
            for (written, is_on) in [
                (format!("-{flag}"), true),
                (format!("-{flag}=true"), true),
                (format!("--{flag}=1"), true),
                (format!("-{flag}=false"), false),
                (format!("--{flag} --{flag}=0"), false),
            ] {
                let normal = normal(words(&format!("program {place} {written}")));
                let last = normal
                    .last()
                    .and_then(|word| word.to_str())
                    .unwrap_or_default();
                let found = match Kind::of(arg) {
                    Kind::Bool => last == format!("--{flag}=true"),
                    _ => last == format!("--{flag}"),
                };
                assert_eq!(found, is_on, "{place} {written}: {normal:?}");
            }
            seen += 1;
        }
    }
    assert!(seen > 5, "{seen}");
}

proptest! {
    #[test]
    fn normalising_twice_changes_nothing_more(line in "(-{0,2}[a-z=-]{0,12} ){0,5}") {
        let once = normal(words(&format!("provisioner {line}")));
        prop_assert_eq!(normal(once.clone()), once);
    }
}
