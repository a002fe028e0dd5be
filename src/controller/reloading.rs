//! Reloads the configuration between two passes.
//!
//! A configuration with any fault is refused as a whole: the last good one stays in force.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use crate::config::{Files, Loaded, Reading, Shown, diff};
use crate::isolation;
use crate::log;
use crate::plan::{About, Settings, reasons};
use crate::view::NodeView;

use super::{Controller, Memory, unix_time};

/// The state of configuration reloads.
#[derive(Debug)]
pub struct Reloads {
    /// The directory.
    pub dir: PathBuf,
    /// The latest reading of it; `None` before its first change.
    pub readings: watch::Receiver<Option<Arc<Reading>>>,
    /// The files of the configuration in force.
    pub in_force: Files,
    /// The warnings about it, which were logged.
    pub warnings: Vec<String>,
    /// The discovery directories that are mounted in this container.
    pub shown: Shown,
    /// Whether node isolation is on, which every configuration must then permit.
    pub node_isolation: bool,
    /// Why the latest reading is not in force; empty if it is.
    pub faults: Vec<String>,
    /// Whether node isolation refused it. Then it is judged again in each pass, since the Node may change.
    pub unsuited: bool,
}

impl Reloads {
    /// The faults of a refused configuration, for `/status`.
    pub(super) fn degraded(&self) -> Vec<String> {
        if self.faults.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![self.refusal()];
        lines.extend(self.faults.iter().cloned());
        lines
    }

    fn refusal(&self) -> String {
        format!(
            "the configuration in {dir} was changed and cannot be used; the last good one stays in force until it is fixed (check-config --config {dir} shows the faults in it)",
            dir = self.dir.display()
        )
    }

    /// The latest reading, if it must be judged, and whether it is new.
    fn unjudged(&mut self) -> Option<(Arc<Reading>, bool)> {
        let is_new = self.readings.has_changed().unwrap_or(false);
        if !is_new && !self.unsuited {
            return None;
        }
        let reading = self.readings.borrow_and_update().clone()?;
        Some((reading, is_new))
    }

    /// The configuration of a reading, or the faults for which it is refused.
    fn judge<'a>(
        &mut self,
        reading: &'a Reading,
        node: Option<&NodeView>,
    ) -> Result<&'a Loaded, Vec<String>> {
        self.unsuited = false;
        let loaded = reading.verdict.as_ref().map_err(Vec::clone)?;
        let shown = self.shown.suits(&loaded.config);
        shown.map_err(|not_shown| vec![not_shown])?;
        if self.node_isolation {
            let suits = isolation::check(node, &loaded.config);
            self.unsuited = suits.is_err();
            suits.map_err(|refused| vec![refused])?;
        }
        Ok(loaded)
    }
}

impl Controller {
    /// Applies the configuration in the directory if it has changed and has no fault. One that node isolation
    /// refused is judged again.
    pub(super) fn reload(&mut self, memory: &mut Memory) {
        let Some((reading, is_new)) = self.parts.reloads.unjudged() else {
            return;
        };
        if reading.files.as_ref() == Some(&self.parts.reloads.in_force) {
            self.parts.reloads.unsuited = false;
            self.recovered("it was changed back to the configuration in force");
            return;
        }
        match self
            .parts
            .reloads
            .judge(&reading, self.node.view().as_ref())
        {
            Err(faults) if !is_new && faults == self.parts.reloads.faults => {}
            Err(faults) => self.refuse(faults),
            Ok(loaded) => {
                let changes = self.put_in_force(loaded, memory);
                self.parts.reloads.in_force = reading.files.clone().unwrap_or_default();
                self.recovered(&changes);
            }
        }
    }

    /// Keeps the configuration in force and reports the faults. Good parts of the new one are not applied either:
    /// the mixture would be a configuration that no operator wrote.
    fn refuse(&mut self, faults: Vec<String>) {
        self.parts.reloads.faults = faults;
        self.parts.metrics.config_last_reload_successful.set(0);
        let message = format!(
            "{}: {}",
            self.parts.reloads.refusal(),
            self.parts.reloads.faults.join("; ")
        );
        let reason = reasons::CONFIG_RELOAD_FAILED;
        tracing::error!(reason, "{message}");
        self.parts
            .reporter
            .warning(&About::Pod, reason, "Reload", &message);
    }

    /// Applies a configuration, and returns a description of the changes.
    fn put_in_force(&mut self, loaded: &Loaded, memory: &mut Memory) -> String {
        let before = &self.parts.settings;
        let had_faults = !before.faulty.is_empty() || !before.faults.is_empty();
        let changes = diff(&before.config, &loaded.config).join(", ");
        if had_faults || *before.config != loaded.config {
            self.parts.settings = Settings::of(loaded, before.generation + 1);
            self.distribute(memory);
        }
        for warning in &loaded.warnings {
            if !self.parts.reloads.warnings.contains(warning) {
                tracing::warn!("configuration: {warning}");
            }
        }
        self.parts.reloads.warnings.clone_from(&loaded.warnings);
        let changes = match changes.as_str() {
            "" if had_faults => "it has no faults any more",
            "" => "no effective change",
            changes => changes,
        };
        tracing::info!("configuration reloaded: {changes}");
        changes.to_owned()
    }

    /// Passes the new settings to all users of them.
    fn distribute(&mut self, memory: &mut Memory) {
        let config = &self.parts.settings.config;
        self.parts.reloads.shown.learn(config);
        log::set_level(config.log_level);
        // A cleanup that is still waiting stops at this change. The next pass starts it again.
        self.state
            .send_modify(|state| state.settings = self.parts.settings.clone());
        // A volume may be missing only because the directory of its class has changed.
        memory.missing_since.clear();
    }

    /// Reports that the configuration in the directory is in force.
    fn recovered(&mut self, how: &str) {
        self.parts.metrics.config_last_reload_successful.set(1);
        self.parts
            .metrics
            .config_last_reload_timestamp
            .set(unix_time());
        if std::mem::take(&mut self.parts.reloads.faults).is_empty() {
            return;
        }
        let message = format!(
            "the configuration in {} is good again: {how}",
            self.parts.reloads.dir.display()
        );
        let reason = reasons::CONFIG_RELOADED;
        tracing::info!(reason, "{message}");
        self.parts
            .reporter
            .normal(&About::Pod, reason, "Reload", &message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_files;

    #[test]
    fn configuration_refused_by_node_isolation_is_judged_again() {
        let (send, readings) = watch::channel(None);
        let nothing = from_files(&Files::new()).unwrap();
        let mut reloads = Reloads {
            dir: PathBuf::new(),
            readings,
            in_force: Files::new(),
            warnings: Vec::new(),
            shown: Shown::at_start(&nothing.config),
            node_isolation: true,
            faults: Vec::new(),
            unsuited: false,
        };
        let node = |hostname: &str| NodeView {
            name: "n".into(),
            uid: "u".into(),
            hostname: hostname.into(),
            labels: [].into(),
            paused: false,
        };
        assert_eq!(reloads.unjudged(), None);

        let reading = |verdict| {
            let files = Some(Files::new());
            Some(Arc::new(Reading { files, verdict }))
        };
        send.send_replace(reading(Ok(nothing.clone())));
        let (good, is_new) = reloads.unjudged().unwrap();
        assert!(is_new);
        reloads.judge(&good, Some(&node("other"))).unwrap_err();
        let (good, is_new) = reloads.unjudged().expect("the label may be fixed");
        assert!(!is_new);
        assert_eq!(reloads.judge(&good, Some(&node("n"))), Ok(&nothing));
        assert_eq!(reloads.unjudged(), None);

        // A fault that no change of the Node can fix.
        send.send_replace(reading(Err(vec!["faulty".into()])));
        let (faulty, _) = reloads.unjudged().unwrap();
        reloads.judge(&faulty, Some(&node("other"))).unwrap_err();
        assert_eq!(reloads.unjudged(), None);
    }
}
