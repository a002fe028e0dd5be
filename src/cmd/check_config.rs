//! `check-config`: reports the faults of a configuration and its effective values.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use super::run::UsageError;
use super::table::render;
use crate::config::{self, rows};

/// Reads the configuration in `dir` as the provisioner would, and writes the result to `out`. The exit code is 2 if it
/// has faults.
///
/// # Errors
/// [`UsageError`] if it cannot be read; another error if `out` cannot be written.
pub fn run(dir: &Path, out: &mut dyn Write) -> Result<ExitCode> {
    let loaded = config::load(dir).map_err(UsageError)?;
    for fault in &loaded.faults {
        writeln!(out, "fault: {fault}")?;
    }
    for warning in &loaded.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(out, "Effective configuration\n{}", table(&loaded.config))?;
    for class in loaded.config.classes.values() {
        writeln!(out, "Class {}\n{}", class.name, table(&**class))?;
    }
    let good = loaded.faults.is_empty();
    Ok(ExitCode::from(if good { 0 } else { 2 }))
}

fn table(keys: &impl Serialize) -> String {
    let rows = rows(keys).into_iter();
    let rows = rows.map(|(key, value)| [format!("  {key}"), value]);
    render(["  KEY", "VALUE"], rows)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn check(files: &[(&str, &str)]) -> (ExitCode, String) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let mut out = Vec::new();
        let code = run(dir.path(), &mut out).unwrap();
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
        assert_eq!(code, ExitCode::from(2), "{text}");
        for part in [
            "fault: class \"bad\": hostDir is \"mnt\"; write the absolute path",
            "warning: key \"useJobsForCleaning\" is unknown",
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
    fn unreadable_configuration_is_a_usage_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("storageClassMap"), "a: [").unwrap();
        for (dir, words) in [
            (dir.path(), "the configuration key storageClassMap"),
            (Path::new("/nonexistent/config"), "No such file"),
        ] {
            let error = run(dir, &mut Vec::new()).unwrap_err();
            let UsageError(text) = error.downcast_ref().unwrap();
            assert!(text.contains(words), "{text}");
        }
    }
}
