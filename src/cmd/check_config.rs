//! `check-config`: reports the faults of a configuration and its effective values.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use super::manifests::{Configuration, Manifests};
use super::table::render;
use crate::args::CheckConfig;
use crate::config::rows;

/// Reads the configuration as the provisioner would, and writes the result to `out`. The exit code is 1 if it has faults.
///
/// # Errors
/// [`UsageError`](super::run::UsageError) if it cannot be read; another error if there is none, or `out` cannot be
/// written.
pub fn run(request: &CheckConfig, out: &mut dyn Write) -> Result<ExitCode> {
    let manifests = match &request.filename {
        Some(file) => Manifests::read(file)?,
        None => Manifests::of_directory(&request.config.config)?,
    };
    for it in &manifests.configurations {
        show(it, out)?;
    }
    let has_fault = |it: &Configuration| !it.faults.is_empty();
    let has_fault = manifests.configurations.iter().any(has_fault);
    Ok(ExitCode::from(u8::from(has_fault)))
}

fn show(it: &Configuration, out: &mut dyn Write) -> Result<()> {
    let (place, of) = match &*it.name {
        "" => (String::new(), String::new()),
        name => (format!("{name}: "), format!(" of {name}")),
    };
    for fault in &it.faults {
        writeln!(out, "fault: {place}{fault}")?;
    }
    for warning in &it.warnings {
        writeln!(out, "warning: {place}{warning}")?;
    }
    if let Some(config) = &it.config {
        writeln!(out, "Effective configuration{of}\n{}", table(config))?;
        for class in config.classes.values() {
            writeln!(out, "Class {}\n{}", class.name, table(&**class))?;
        }
    }
    Ok(())
}

fn table(keys: &impl Serialize) -> String {
    let rows = rows(keys).into_iter().map(|(key, value)| [format!("  {key}"), value]);
    render(["  KEY", "VALUE"], rows)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::args::ConfigDir;
    use crate::cmd::run::UsageError;

    fn request(dir: &Path, filename: Option<PathBuf>) -> CheckConfig {
        let config = ConfigDir { config: dir.into() };
        CheckConfig { config, filename }
    }

    fn check(files: &[(&str, &str)]) -> (ExitCode, String) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let mut out = Vec::new();
        let code = run(&request(dir.path(), None), &mut out).unwrap();
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
            assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
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
            ("storageClassMap", &format!("{GOOD}bad: {{hostDir: mnt, volumeMode: block}}\n")),
            ("useJobsForCleaning", "true"),
        ]);
        assert_eq!(code, ExitCode::from(1), "{text}");
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
        assert!(text.starts_with("warning: no class is configured"), "{text}");
    }

    #[test]
    fn configuration_with_which_the_provisioner_does_not_start_is_a_fault() {
        for (key, value, words) in [
            ("storageClassMap", "a: [", "the configuration key storageClassMap is not valid YAML"),
            ("useAlphaAPI", "true", "useAlphaAPI is true"),
        ] {
            let (code, text) = check(&[(key, value)]);
            assert_eq!(code, ExitCode::from(1), "{text}");
            assert!(text.starts_with("fault: ") && text.contains(words), "{text}");
            assert!(!text.contains("Effective"), "{text}");
        }
    }

    #[test]
    fn manifests_are_checked_with_the_name_of_the_config_map() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("manifests.yaml");
        let fault = "fault: ConfigMap a/config: ";
        for (map, class, code, text) in [
            (
                "fast: {hostDir: /a, mountDir: /a}",
                "",
                0,
                "Effective configuration of ConfigMap a/config\n",
            ),
            (
                "fast: {hostDir: a, mountDir: /a}",
                "",
                1,
                &*format!("{fault}class \"fast\": hostDir is \"a\""),
            ),
            (
                "fast: {hostDir: /a, mountDir: /a}",
                "provisioner: rancher.io/local-path\nvolumeBindingMode: WaitForFirstConsumer",
                1,
                &format!(
                    "{fault}the StorageClass fast has the provisioner rancher.io/local-path; write provisioner:"
                ),
            ),
        ] {
            let map = format!(
                "kind: ConfigMap\nmetadata: {{name: config, namespace: a}}\ndata:\n  storageClassMap: '{map}'\n"
            );
            let class = match class {
                "" => String::new(),
                class => format!("---\nkind: StorageClass\nmetadata: {{name: fast}}\n{class}\n"),
            };
            fs::write(&file, map + &class).unwrap();
            let mut out = Vec::new();
            let found = run(&request(dir.path(), Some(file.clone())), &mut out).unwrap();
            let out = String::from_utf8(out).unwrap();
            assert_eq!(found, ExitCode::from(code), "{out}");
            assert!(out.contains(text), "no {text:?} in\n{out}");
        }
    }

    #[test]
    fn missing_file_or_directory_is_a_usage_error() {
        let nowhere = Path::new("/nonexistent/config");
        for request in [request(nowhere, None), request(nowhere, Some(nowhere.into()))] {
            let error = run(&request, &mut Vec::new()).unwrap_err();
            let UsageError(text) = error.downcast_ref().unwrap();
            assert!(
                text.contains("/nonexistent/config") && text.contains("No such file"),
                "{text}"
            );
        }
    }
}
