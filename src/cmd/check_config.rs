//! `check-config`: reports the faults of a configuration and its effective values.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use super::table::{or_dash, render};
use crate::args::Environment;
use crate::config::{self, Rows, rows};
use crate::errors::chain;
use crate::plan::NO_JOB_IMAGE;

/// The exit code for a configuration that has faults or cannot be read.
const FAULTY: u8 = 2;

/// Reads the configuration in `dir` as the provisioner with this environment would, and writes the
/// result to `out`.
///
/// # Errors
/// Only when `out` cannot be written. Faults of the configuration are in the exit code.
pub fn run(dir: &Path, environment: &Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
    let loaded = match config::load(dir) {
        Ok(loaded) => loaded,
        Err(error) => {
            writeln!(out, "error: {}", chain(&error))?;
            return Ok(ExitCode::from(FAULTY));
        }
    };
    // Outside the pod, the environment does not show which image the pod has.
    let in_pod = environment.node_name.is_some();
    let no_image = in_pod && loaded.config.use_job_for_cleaning && environment.job_image.is_none();
    let mut faults: Vec<_> = loaded.faults.iter().map(ToString::to_string).collect();
    faults.extend(no_image.then(|| NO_JOB_IMAGE.to_owned()));
    for fault in &faults {
        writeln!(out, "fault: {fault}")?;
    }
    for warning in &loaded.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(
        out,
        "Effective configuration\n{}",
        table(&rows(&loaded.config))
    )?;
    for name in loaded.faulty_classes() {
        writeln!(out, "Class {name}: off because of its fault\n")?;
    }
    for class in loaded.config.classes.values() {
        writeln!(out, "Class {}\n{}", class.name, table(&rows(&**class)))?;
    }
    let good = faults.is_empty();
    Ok(ExitCode::from(if good { 0 } else { FAULTY }))
}

fn table(rows: &Rows) -> String {
    let rows = rows.iter().map(|(key, value)| {
        let value = Some(value).filter(|value| !value.is_empty());
        [format!("  {key}"), or_dash(value)]
    });
    render(["  KEY", "VALUE"], rows)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn environment(entries: &[(&str, &str)]) -> Environment {
        let value = |name: &str| entries.iter().find(|(key, _)| *key == name);
        Environment::read(|name| value(name).map(|(_, value)| value.into()))
    }

    fn check(files: &[(&str, &str)]) -> (ExitCode, String) {
        check_in(&[], files)
    }

    fn check_in(entries: &[(&str, &str)], files: &[(&str, &str)]) -> (ExitCode, String) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let mut out = Vec::new();
        let code = run(dir.path(), &environment(entries), &mut out).unwrap();
        (code, String::from_utf8(out).unwrap())
    }

    const GOOD: &str = "fast:\n  hostDir: /mnt/fast\n  mountDir: /fast\n";

    #[test]
    fn valid_configuration_is_shown_as_tables() {
        let (code, text) = check(&[
            ("storageClassMap", GOOD),
            ("labelsForPV", "{a: 1.10, b: yes}"),
            ("jobTolerations", "[{operator: Exists}]"),
            ("minResyncPeriod", "90s"),
        ]);
        assert_eq!(code, ExitCode::SUCCESS, "{text}");
        for line in [
            "Effective configuration",
            "  labelsForPV                      {\"a\":\"1.10\",\"b\":\"yes\"}",
            "  jobTolerations                   [{\"operator\":\"Exists\"}]",
            "  logLevel                         -",
            "  nodeLabelsForPV                  []",
            "Class fast",
            "  hostDir              /mnt/fast",
            "  blockCleanerCommand  [\"/scripts/quick_reset.sh\"]",
            "  cleanupTimeout       -",
            "  trim                 true",
            "  weakIdentity         Consent",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no line {line:?} in\n{text}"
            );
        }
    }

    #[test]
    fn clean_method_and_timeout_are_shown() {
        let settings = "  volumeMode: Block\n  cleanMethod: quick\n  cleanupTimeout: 90m\n";
        let (code, text) = check(&[("storageClassMap", &format!("{GOOD}{settings}"))]);
        assert_eq!(code, ExitCode::SUCCESS, "{text}");
        for part in [
            "warning: class \"fast\" hands out raw devices that are cleaned by a quick reset",
            "set cleanMethod to auto",
            "\n  cleanMethod          quick\n",
            "\n  cleanupTimeout       1h30m\n",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert!(!text.contains("\n  blockCleanerCommand"), "{text}");
    }

    #[test]
    fn faults_and_warnings_are_shown_with_the_valid_classes() {
        let (code, text) = check(&[
            (
                "storageClassMap",
                &format!("{GOOD}bad: {{hostDir: mnt, volumeMode: block}}\n"),
            ),
            ("useJobsForCleaning", "true"),
        ]);
        assert_eq!(code, ExitCode::from(FAULTY), "{text}");
        for part in [
            "fault: class \"bad\": hostDir \"mnt\": not a usable path",
            "warning: key \"useJobsForCleaning\" is unknown",
            "Class bad: off because of its fault",
            "Class fast\n",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn warnings_alone_do_not_fail() {
        let (code, text) = check(&[]);
        assert_eq!(code, ExitCode::SUCCESS, "{text}");
        assert!(
            text.starts_with("warning: no class is configured"),
            "{text}"
        );
    }

    #[test]
    fn jobs_require_an_image_in_the_pod() {
        let files = [("storageClassMap", GOOD), ("useJobForCleaning", "yes")];
        let (pod, image) = (("MY_NODE_NAME", "a"), ("JOB_CONTAINER_IMAGE", "image"));
        for (entries, good) in [(&[][..], true), (&[pod], false), (&[pod, image], true)] {
            let (code, text) = check_in(entries, &files);
            assert_eq!(code == ExitCode::SUCCESS, good, "{entries:?}");
            assert_eq!(text.contains("JOB_CONTAINER_IMAGE"), !good, "{text}");
        }
        let (code, _) = check_in(&[pod], &files[..1]);
        assert_eq!(code, ExitCode::SUCCESS);
    }

    #[test]
    fn unreadable_configuration_is_one_error_line() {
        let (code, text) = check(&[("storageClassMap", "a: [")]);
        assert_eq!(code, ExitCode::from(FAULTY));
        assert!(
            text.starts_with("error: the configuration key storageClassMap"),
            "{text}"
        );
        let mut out = Vec::new();
        let code = run(
            Path::new("/nonexistent/config"),
            &environment(&[]),
            &mut out,
        )
        .unwrap();
        assert_eq!(code, ExitCode::from(FAULTY));
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("/nonexistent/config") && text.contains("No such file"),
            "{text}"
        );
    }
}
