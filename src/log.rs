//! The log and its level, which the configuration can change at run time.
//!
//! A process has one log, so its handle is a global.

use std::io::{self, Write};
use std::sync::OnceLock;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use crate::args::LogFormat;

/// The level of the command line, and the filter in force.
static LOG: OnceLock<(LevelFilter, reload::Handle<Targets, Registry>)> = OnceLock::new();

/// Starts logging to standard error, at the level of the command line. Later calls have no effect.
pub fn init(format: LogFormat, level: LevelFilter) {
    let (layer, filter) = reload::Layer::new(targets(level));
    if LOG.set((level, filter)).is_err() {
        return;
    }
    let text = fmt::layer().with_ansi(false);
    let lines = match format {
        LogFormat::Text => text.with_writer(|| OneLine(io::stderr())).boxed(),
        // JSON escapes line breaks.
        LogFormat::Json => fmt::layer().json().with_writer(io::stderr).boxed(),
    };
    registry().with(layer).with(lines).init();
}

/// The name of the level in force; `off` before [`init`].
pub fn level() -> String {
    // No library has a higher level than the program.
    LevelFilter::current().to_string()
}

/// Sets the level of the configuration, or without one the level of the command line.
pub fn set_level(of_config: Option<LevelFilter>) {
    if let Some((of_command_line, filter)) = LOG.get() {
        // Reloading fails only if the subscriber was dropped.
        let _ = filter.reload(targets(of_config.unwrap_or(*of_command_line)));
    }
}

/// The filter of each target. Libraries log every step of every request at debug, so they do only at trace.
/// Failed watches and requests are logged by this program, so the libraries' lines about them are off.
fn targets(level: LevelFilter) -> Targets {
    let libraries = |most: LevelFilter| match level {
        LevelFilter::TRACE => level,
        level => level.min(most),
    };
    Targets::new()
        .with_target("local_volume_provisioner", level)
        .with_target("kube_runtime::watcher", libraries(LevelFilter::ERROR))
        .with_target("kube_client::client::builder", libraries(LevelFilter::OFF))
        .with_default(libraries(LevelFilter::INFO))
}

/// Writes each event as one line without terminal control sequences: a file name with a line break in it
/// must not forge a log line. The formatter writes an event with one call.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let end = &text[line.len()..];
        self.0.write_all((printable(line) + end).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes control characters: a file name can contain line breaks and terminal sequences.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            safe.extend(character.escape_debug());
        } else {
            safe.push(character);
        }
    }
    safe
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::Value;
    use tracing::subscriber::with_default;

    use super::*;

    #[derive(Clone, Default)]
    pub(crate) struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Buffer {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    const NAME: &str = "disk\n2026-01-01T00:00:00Z ERROR \x1b[2Jforged\r\u{9b}31m";

    fn log_event() {
        let span = tracing::error_span!("clean", pv = "local-pv-1", path = %NAME);
        let _span = span.entered();
        tracing::warn!(path = %NAME, reason = "NotMounted", "{NAME} is not mounted");
    }

    #[test]
    fn file_name_cannot_forge_a_line_or_control_the_terminal() {
        let buffer = Buffer::default();
        let out = buffer.clone();
        let text = fmt::layer().with_ansi(false).with_writer(move || OneLine(out.clone()));
        with_default(registry().with(text), log_event);
        let text = buffer.text();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(text.ends_with('\n') && !text.contains(['\r', '\x1b', '\u{9b}']), "{text:?}");
        assert!(text.contains("disk\\n2026") && text.contains("\"NotMounted\""), "{text:?}");
    }

    #[test]
    fn json_line_has_every_field_unchanged() {
        let buffer = Buffer::default();
        let out = buffer.clone();
        let json = fmt::layer().json().with_writer(move || out.clone());
        with_default(registry().with(json), log_event);
        let text = buffer.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "WARN");
        let fields = &line["fields"];
        for (field, value) in [("path", NAME), ("reason", "NotMounted")] {
            assert_eq!(fields[field], value, "{field}");
        }
        for (field, value) in [("name", "clean"), ("pv", "local-pv-1"), ("path", NAME)] {
            assert_eq!(line["span"][field], value, "{field}");
        }
        assert_eq!(fields["message"], format!("{NAME} is not mounted"));
    }

    #[test]
    fn libraries_log_less_than_the_program() {
        for (level, target, shown, hidden) in [
            (LevelFilter::DEBUG, "hyper", tracing::Level::INFO, Some(tracing::Level::DEBUG)),
            (
                LevelFilter::DEBUG,
                "local_volume_provisioner::act",
                tracing::Level::DEBUG,
                Some(tracing::Level::TRACE),
            ),
            (
                LevelFilter::INFO,
                "kube_runtime::watcher",
                tracing::Level::ERROR,
                Some(tracing::Level::WARN),
            ),
            (LevelFilter::ERROR, "hyper", tracing::Level::ERROR, Some(tracing::Level::WARN)),
            (LevelFilter::TRACE, "kube_runtime::watcher", tracing::Level::TRACE, None),
        ] {
            let targets = targets(level);
            assert!(targets.would_enable(target, &shown), "{target} at {level}");
            assert!(
                hidden.is_none_or(|hidden| !targets.would_enable(target, &hidden)),
                "{target} at {level}"
            );
        }
        let requests = "kube_client::client::builder";
        assert!(!targets(LevelFilter::DEBUG).would_enable(requests, &tracing::Level::ERROR));
        assert!(targets(LevelFilter::TRACE).would_enable(requests, &tracing::Level::ERROR));
    }
}
