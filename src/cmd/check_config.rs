//! `check-config`: reports the faults of a configuration and its effective values.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::args::Environment;
use crate::config::{self, LoadError, Loaded, Rows, rows};
use crate::plan::NO_JOB_IMAGE;

/// The exit code for a configuration that has faults or cannot be read.
const FAULTY: u8 = 2;

/// Reads the configuration in `dir` as the provisioner with this environment would, and writes the
/// result to `out`.
///
/// # Errors
/// Only when `out` cannot be written. Faults of the configuration are in the exit code.
pub fn run(dir: &Path, environment: &Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
    match config::load(dir) {
        Ok(loaded) => {
            // Outside the pod, the environment does not show which image the pod has.
            let in_pod = environment.node_name.is_some();
            let no_image =
                in_pod && loaded.config.use_job_for_cleaning && environment.job_image.is_none();
            if no_image {
                writeln!(out, "fault: {NO_JOB_IMAGE}")?;
            }
            write_report(&loaded, out)?;
            let good = loaded.faults.is_empty() && !no_image;
            Ok(if good {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(FAULTY)
            })
        }
        Err(error) => {
            write_error(&error, out)?;
            Ok(ExitCode::from(FAULTY))
        }
    }
}

fn write_error(error: &LoadError, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "error: {error}")?;
    match std::error::Error::source(error) {
        Some(source) => writeln!(out, " ({source})"),
        None => writeln!(out),
    }
}

fn write_report(loaded: &Loaded, out: &mut dyn Write) -> io::Result<()> {
    for fault in &loaded.faults {
        writeln!(out, "fault: {fault}")?;
    }
    for warning in &loaded.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    if !loaded.faults.is_empty() || !loaded.warnings.is_empty() {
        writeln!(out)?;
    }
    write_table("Effective configuration", &rows(&loaded.config), out)?;
    for name in loaded.faulty_classes() {
        writeln!(out, "\nClass {name}: off because of its fault")?;
    }
    for class in loaded.config.classes.values() {
        writeln!(out)?;
        write_table(&format!("Class {}", class.name), &rows(&**class), out)?;
    }
    Ok(())
}

fn write_table(title: &str, rows: &Rows, out: &mut dyn Write) -> io::Result<()> {
    let width = rows.keys().map(String::len).max().unwrap_or_default();
    writeln!(out, "{title}")?;
    for (key, value) in rows {
        let value = if value.is_empty() { "-" } else { value };
        writeln!(out, "  {key:width$}  {value}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn environment(entries: &[(&str, &str)]) -> Environment {
        let value = |name: &str| entries.iter().find(|(key, _)| *key == name);
        Environment::read(|name| value(name).map(|(_, value)| value.into())).unwrap()
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
            "  labelsForPV                      a=1.10, b=yes",
            "  jobTolerations                   [{\"operator\":\"Exists\"}]",
            "  logLevel                         -",
            "  minResyncPeriod                  1m30s",
            "  nodeLabelsForPV                  -",
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
