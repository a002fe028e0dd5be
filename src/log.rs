//! The log and its level, which the configuration can change at run time.
//!
//! A process has one log, so its handle is a global.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::args::LogFormat;
use crate::config::LogLevel;
use crate::terminal;

static LOG: OnceLock<Log> = OnceLock::new();

#[derive(Debug)]
struct Log {
    of_command_line: LogLevel,
    level: Mutex<LogLevel>,
    filter: reload::Handle<Targets, Registry>,
}

/// Starts logging to standard error, at the level of the command line. Later calls have no effect.
pub fn init(format: LogFormat, level: LogLevel) {
    let (filter, handle) = reload::Layer::new(targets(level));
    let log = Log {
        of_command_line: level,
        level: Mutex::new(level),
        filter: handle,
    };
    if LOG.set(log).is_err() {
        return;
    }
    let registry = registry().with(filter);
    match format {
        LogFormat::Text => {
            let has_colours = terminal::colours(&io::stderr());
            let lines = move || OneLine {
                out: io::stderr(),
                has_colours,
            };
            let text = fmt::layer().with_ansi(has_colours).with_writer(lines);
            registry.with(text).init();
        }
        // JSON escapes line breaks.
        LogFormat::Json => registry
            .with(fmt::layer().json().with_writer(io::stderr))
            .init(),
    }
}

/// The level in force; `None` before [`init`].
#[must_use]
pub fn level() -> Option<LogLevel> {
    let level = LOG.get()?.level.lock();
    Some(*level.unwrap_or_else(PoisonError::into_inner))
}

/// Sets the level of the configuration, or without one the level of the command line.
pub fn set_level(of_config: Option<LogLevel>) {
    let Some(log) = LOG.get() else { return };
    let mut level = log.level.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = of_config.unwrap_or(log.of_command_line);
    let was = std::mem::replace(&mut *level, wanted);
    if wanted == was {
        return;
    }
    // The change is logged while the more verbose of the two levels is in force.
    if wanted < was {
        tracing::info!("the log level is {wanted} now, it was {was}");
    }
    // Reloading fails only if the subscriber was dropped.
    let _ = log.filter.reload(targets(wanted));
    if wanted > was {
        tracing::info!("the log level is {wanted} now, it was {was}");
    }
}

/// The filter of each target. Libraries log every step of every request at debug, so they do only at trace.
/// Failed watches and requests are logged by this program, so the libraries' lines about them are off.
fn targets(level: LogLevel) -> Targets {
    let level = LevelFilter::from_level(level.into());
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
struct OneLine<W> {
    out: W,
    /// Whether the events have colours of the formatter.
    has_colours: bool,
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let mut safe = String::with_capacity(event.len());
        for (at, character) in line.char_indices() {
            let is_colour = || self.has_colours && is_colour(&line[at..]);
            if !character.is_control() || character == '\t' || is_colour() {
                safe.push(character);
            } else {
                safe.extend(character.escape_debug());
            }
        }
        safe.push_str(&text[line.len()..]);
        self.out.write_all(safe.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Whether a text starts with a colour sequence such as `\x1b[31m`.
fn is_colour(text: &str) -> bool {
    let rest = text
        .strip_prefix("\x1b[")
        .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
    rest.is_some_and(|rest| rest.starts_with('m'))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;
    use tracing::subscriber::with_default;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Buffer {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    const NAME: &str = "disk\n2026-01-01T00:00:00Z ERROR \x1b[2Jforged\r\u{9b}31m";

    fn log_event() {
        tracing::warn!(pv = "local-pv-1", path = %NAME, reason = "NotMounted", "{NAME} is not mounted");
    }

    fn text(has_colours: bool) -> String {
        let buffer = Buffer::default();
        let out = buffer.clone();
        let lines = move || OneLine {
            out: out.clone(),
            has_colours,
        };
        let text = fmt::layer().with_ansi(has_colours).with_writer(lines);
        with_default(registry().with(text), log_event);
        buffer.text()
    }

    #[test]
    fn file_name_cannot_forge_a_line_or_control_the_terminal() {
        for has_colours in [false, true] {
            let text = text(has_colours);
            assert_eq!(text.lines().count(), 1, "{text:?}");
            assert!(
                text.ends_with('\n') && !text.contains(['\r', '\u{9b}']),
                "{text:?}"
            );
            assert!(!text.contains("\x1b[2J"), "{text:?}");
            assert!(
                text.contains("disk\\n2026") && text.contains("\"NotMounted\""),
                "{text:?}"
            );
            assert_eq!(text.contains("\x1b[33m"), has_colours, "{text:?}");
        }
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
        for (field, value) in [
            ("pv", "local-pv-1"),
            ("path", NAME),
            ("reason", "NotMounted"),
        ] {
            assert_eq!(fields[field], value, "{field}");
        }
        assert_eq!(fields["message"], format!("{NAME} is not mounted"));
    }

    #[test]
    fn libraries_log_less_than_the_program() {
        for (level, target, shown, hidden) in [
            (
                LogLevel::Debug,
                "hyper",
                tracing::Level::INFO,
                Some(tracing::Level::DEBUG),
            ),
            (
                LogLevel::Debug,
                "local_volume_provisioner::act",
                tracing::Level::DEBUG,
                Some(tracing::Level::TRACE),
            ),
            (
                LogLevel::Info,
                "kube_runtime::watcher",
                tracing::Level::ERROR,
                Some(tracing::Level::WARN),
            ),
            (
                LogLevel::Error,
                "hyper",
                tracing::Level::ERROR,
                Some(tracing::Level::WARN),
            ),
            (
                LogLevel::Trace,
                "kube_runtime::watcher",
                tracing::Level::TRACE,
                None,
            ),
        ] {
            let targets = targets(level);
            assert!(targets.would_enable(target, &shown), "{target} at {level}");
            assert!(
                hidden.is_none_or(|hidden| !targets.would_enable(target, &hidden)),
                "{target} at {level}"
            );
        }
        let requests = "kube_client::client::builder";
        assert!(!targets(LogLevel::Debug).would_enable(requests, &tracing::Level::ERROR));
        assert!(targets(LogLevel::Trace).would_enable(requests, &tracing::Level::ERROR));
    }
}
