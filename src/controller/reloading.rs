//! Reloads the configuration between two passes.
//!
//! A configuration with any fault is refused as a whole: the last good one stays in force. It is judged again in each
//! pass until it is changed, since the Node may change.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use crate::config::{Files, Loaded, Reading, Shown};
use crate::isolation;
use crate::log;
use crate::plan::{About, Settings, reasons};
use crate::view::NodeView;

use super::{Controller, unix_time};

/// The state of configuration reloads.
#[derive(Debug)]
pub struct Reloads {
    /// The directory.
    pub dir: PathBuf,
    /// The latest reading of it; `None` before its first change.
    pub readings: watch::Receiver<Option<Arc<Reading>>>,
    /// The files of the configuration in force.
    pub in_force: Files,
    /// The discovery directories that are mounted in this container.
    pub shown: Shown,
    /// Whether node isolation is on, which every configuration must then permit.
    pub node_isolation: bool,
    /// Why the latest reading is not in force; empty if it is.
    pub faults: Vec<String>,
}

impl Reloads {
    /// The faults of a refused configuration, for `/status`.
    pub(super) fn degraded(&self) -> Vec<String> {
        if self.faults.is_empty() {
            return Vec::new();
        }
        let dir = self.dir.display();
        let refusal = format!(
            "the configuration in {dir} was changed and cannot be used; the last good one stays in force until it is fixed (check-config --config {dir} shows the faults in it)"
        );
        [vec![refusal], self.faults.clone()].concat()
    }

    /// The configuration of a reading, or the faults for which it is refused.
    fn judge<'a>(
        &self,
        reading: &'a Reading,
        node: Option<&NodeView>,
    ) -> Result<&'a Loaded, Vec<String>> {
        let loaded = reading.verdict.as_ref().map_err(Vec::clone)?;
        let shown = self.shown.suits(&loaded.config);
        shown.map_err(|not_shown| vec![not_shown])?;
        if self.node_isolation {
            isolation::check(node, &loaded.config).map_err(|refused| vec![refused])?;
        }
        Ok(loaded)
    }
}

impl Controller {
    /// Applies the configuration in the directory if it is not in force and has no fault.
    pub(super) fn reload(&mut self) {
        let latest = self.reloads.readings.borrow().clone();
        let Some(reading) = latest else {
            return;
        };
        if reading.files.as_ref() == Some(&self.reloads.in_force) {
            if !self.reloads.faults.is_empty() {
                self.recovered();
            }
            return;
        }
        match self.reloads.judge(&reading, self.node.view().as_ref()) {
            Err(faults) if faults == self.reloads.faults => {}
            Err(faults) => self.refuse(faults),
            Ok(loaded) => {
                self.put_in_force(loaded);
                self.reloads.in_force = reading.files.clone().unwrap_or_default();
                self.recovered();
            }
        }
    }

    /// Keeps the configuration in force and reports the faults. Good parts of the new one are not applied either:
    /// the mixture would be a configuration that no operator wrote.
    fn refuse(&mut self, faults: Vec<String>) {
        self.reloads.faults = faults;
        self.context.metrics.config_last_reload_successful.set(0);
        let message = self.reloads.degraded().join("; ");
        let (reporter, reason) = (&self.context.reporter, reasons::CONFIG_RELOAD_FAILED);
        tracing::error!(reason, "{message}");
        reporter.warning(&About::Pod, reason, "Reload", &message);
    }

    /// Applies a configuration.
    fn put_in_force(&mut self, loaded: &Loaded) {
        let before = &self.settings;
        let had_faults = !before.faulty.is_empty() || !before.faults.is_empty();
        if had_faults || *before.config != loaded.config {
            let installation = before.installation.clone();
            let cluster = before.cluster.clone();
            self.settings = Settings::of(loaded, before.generation + 1, installation, cluster);
            self.reloads.shown.learn(&loaded.config);
            log::set_level(loaded.config.log_level);
            // A cleanup that is still waiting stops at this change. The next pass starts it again.
            self.state.send_modify(|state| state.settings = self.settings.clone());
            // A volume may be missing only because the directory of its class has changed.
            self.context.table.facts().missing_since.clear();
        }
        for warning in &loaded.warnings {
            tracing::warn!("configuration: {warning}");
        }
        tracing::info!("configuration reloaded");
    }

    /// Reports that the configuration in the directory is in force.
    fn recovered(&mut self) {
        let metrics = &self.context.metrics;
        metrics.config_last_reload_successful.set(1);
        metrics.config_last_reload_timestamp.set(unix_time());
        if std::mem::take(&mut self.reloads.faults).is_empty() {
            return;
        }
        let dir = self.reloads.dir.display();
        let message = format!("the configuration in {dir} is valid again");
        let (reporter, reason) = (&self.context.reporter, reasons::CONFIG_RELOADED);
        tracing::info!(reason, "{message}");
        reporter.normal(&About::Pod, reason, "Reload", &message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_files;

    #[test]
    fn configuration_refused_by_node_isolation_is_judged_again() {
        let nothing = from_files(&Files::new()).unwrap();
        let reloads = Reloads {
            dir: PathBuf::new(),
            readings: watch::channel(None).1,
            in_force: Files::new(),
            shown: Shown::at_start(&nothing.config),
            node_isolation: true,
            faults: Vec::new(),
        };
        let node = |hostname: &str| NodeView {
            name: "n".into(),
            uid: "u".into(),
            hostname: hostname.into(),
            labels: [].into(),
            paused: false,
            consents: std::collections::BTreeSet::default(),
            approvals: [].into(),
        };
        let (files, verdict) = (Some(Files::new()), Ok(nothing.clone()));
        let good = Reading { files, verdict };
        reloads.judge(&good, Some(&node("other"))).unwrap_err();
        assert_eq!(reloads.judge(&good, Some(&node("n"))), Ok(&nothing));
    }
}
