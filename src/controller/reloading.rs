//! Another configuration is put in force between two passes, or kept out.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use crate::config::{Files, Loaded, Reading, Shown, diff};
use crate::isolation;
use crate::log;
use crate::plan::{About, Settings, reasons};
use crate::view::NodeView;

use super::{Controller, Memory, unix_time};

/// What the loop knows of the configuration directory.
#[derive(Debug)]
pub struct Reloads {
    /// The directory.
    pub dir: PathBuf,
    /// The latest reading of it; none before it first changed.
    pub readings: watch::Receiver<Option<Arc<Reading>>>,
    /// The texts that the configuration in force was made of.
    pub in_force: Files,
    /// The warnings about it, which have been told.
    pub warnings: Vec<String>,
    /// What the directories of the classes show, in this container.
    pub shown: Shown,
    /// Whether each configuration must suit node isolation.
    pub node_isolation: bool,
    /// Why the latest reading is not in force; empty if it is.
    pub faults: Vec<String>,
    /// Whether that is because our Node is not as it would have to be, which may change.
    pub unsuited: bool,
}

impl Reloads {
    /// What is in the directory and cannot be used, for `/status`.
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
            "the configuration in {dir} was changed and cannot be used; the last good one stays in force until it is mended (check-config --config {dir} shows the faults in it)",
            dir = self.dir.display()
        )
    }

    /// The latest reading, if it has to be judged, and whether it is a new one.
    fn unjudged(&mut self) -> Option<(Arc<Reading>, bool)> {
        let is_new = self.readings.has_changed().unwrap_or(false);
        if !is_new && !self.unsuited {
            return None;
        }
        let reading = self.readings.borrow_and_update().clone()?;
        Some((reading, is_new))
    }

    /// What is to be in force, if this process can work by it, without a fault as it is.
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
            suits.map_err(|refused| vec![refused.to_string()])?;
        }
        Ok(loaded)
    }
}

impl Controller {
    /// Takes over what the configuration directory holds now, if it has changed, or did not suit our
    /// Node before, and all of it is good.
    pub(super) fn reload(&mut self, memory: &mut Memory) {
        let Some((reading, is_new)) = self.reloads.unjudged() else {
            return;
        };
        if reading.files.as_ref() == Some(&self.reloads.in_force) {
            self.reloads.unsuited = false;
            self.recovered("it is again what was in force all the time");
            return;
        }
        match self.reloads.judge(&reading, self.node.view().as_ref()) {
            Err(faults) if !is_new && faults == self.reloads.faults => {}
            Err(faults) => self.refuse(faults),
            Ok(loaded) => {
                let changes = self.put_in_force(loaded, memory);
                self.reloads.in_force = reading.files.clone().unwrap_or_default();
                self.recovered(&changes);
            }
        }
    }

    /// The configuration in force stays as it is, whatever parts of the new one are good: nobody wrote
    /// a mixture.
    fn refuse(&mut self, faults: Vec<String>) {
        self.reloads.faults = faults;
        self.metrics.config_last_reload_successful.set(0);
        let message = format!(
            "{}: {}",
            self.reloads.refusal(),
            self.reloads.faults.join("; ")
        );
        let reason = reasons::CONFIG_RELOAD_FAILED;
        tracing::error!(reason, "{message}");
        self.reporter
            .warning(&About::Pod, reason, "Reload", &message);
    }

    /// Returns what has changed, in words.
    fn put_in_force(&mut self, loaded: &Loaded, memory: &mut Memory) -> String {
        let before = &self.settings;
        let had_faults = !before.faulty.is_empty() || !before.faults.is_empty();
        let changes = diff(&before.config, &loaded.config).join(", ");
        if had_faults || *before.config != loaded.config {
            self.settings = Settings::of(loaded, before.generation + 1);
            self.hand_out(memory);
        }
        for warning in &loaded.warnings {
            if !self.reloads.warnings.contains(warning) {
                tracing::warn!("configuration: {warning}");
            }
        }
        self.reloads.warnings.clone_from(&loaded.warnings);
        let changes = match changes.as_str() {
            "" if had_faults => "nothing in it is faulty any more",
            "" => "it comes to the same as before",
            changes => changes,
        };
        tracing::info!("configuration reloaded: {changes}");
        changes.to_owned()
    }

    /// Tells everybody else of the settings.
    fn hand_out(&mut self, memory: &mut Memory) {
        let config = &self.settings.config;
        self.reloads.shown.learn(config);
        log::set_level(config.log_level);
        // Whoever waits for a volume to be cleaned stops at once, and is sent again by the next pass.
        self.state
            .send_modify(|state| state.settings = self.settings.clone());
        self.storage_classes
            .serve(config.classes.keys().cloned().collect());
        // What is missed may be so because another directory is looked at.
        memory.missing_since.clear();
    }

    /// What is in the directory is in force.
    fn recovered(&mut self, how: &str) {
        self.metrics.config_last_reload_successful.set(1);
        self.metrics.config_last_reload_timestamp.set(unix_time());
        if std::mem::take(&mut self.reloads.faults).is_empty() {
            return;
        }
        let message = format!(
            "the configuration in {} is good again: {how}",
            self.reloads.dir.display()
        );
        let reason = reasons::CONFIG_RELOADED;
        tracing::info!(reason, "{message}");
        self.reporter
            .normal(&About::Pod, reason, "Reload", &message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_files;

    #[test]
    fn what_does_not_suit_the_node_is_judged_until_it_does() {
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
        let (good, is_new) = reloads.unjudged().expect("the label may be mended");
        assert!(!is_new);
        assert_eq!(reloads.judge(&good, Some(&node("n"))), Ok(&nothing));
        assert_eq!(reloads.unjudged(), None);

        // Which no Node can mend.
        send.send_replace(reading(Err(vec!["faulty".into()])));
        let (faulty, _) = reloads.unjudged().unwrap();
        reloads.judge(&faulty, Some(&node("other"))).unwrap_err();
        assert_eq!(reloads.unjudged(), None);
    }
}
