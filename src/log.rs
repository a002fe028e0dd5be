//! The log, and its level, which the configuration changes while the program runs.
//!
//! A process has one log, so this is one of the few places with state of the whole process.

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

/// Begins to log to the standard error, at the level of the command line. Only the first call counts.
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
        // A line break in JSON is escaped.
        LogFormat::Json => registry
            .with(fmt::layer().json().with_writer(io::stderr))
            .init(),
    }
}

/// The level in force; none before [`init`].
#[must_use]
pub fn level() -> Option<LogLevel> {
    let level = LOG.get()?.level.lock();
    Some(*level.unwrap_or_else(PoisonError::into_inner))
}

/// Sets the level to that of the configuration; without one, to that of the command line.
pub fn set_level(of_config: Option<LogLevel>) {
    let Some(log) = LOG.get() else { return };
    let mut level = log.level.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = of_config.unwrap_or(log.of_command_line);
    let was = std::mem::replace(&mut *level, wanted);
    if wanted == was {
        return;
    }
    // Logged at the level that shows more of the two, if either shows it.
    if wanted < was {
        tracing::info!("the log level is {wanted} now, it was {was}");
    }
    // It fails only when there is no log any more.
    let _ = log.filter.reload(targets(wanted));
    if wanted > was {
        tracing::info!("the log level is {wanted} now, it was {was}");
    }
}

/// At debug the libraries would tell of every step of every request; they do at trace. Of a watch
/// that breaks they tell each time; we do once. Of a request that fails we always do.
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

/// Writes each event, which comes in one piece, as one line and without a command for the terminal:
/// a file's name with a line break in it must not look like a line of ours.
struct OneLine<W> {
    out: W,
    /// Whether our own colours are in it.
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

/// Whether a text begins with a change of colour, as in `\x1b[31m`.
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
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Kept {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    const NAME: &str = "disk\n2026-01-01T00:00:00Z ERROR \x1b[2Jforged\r\u{9b}31m";

    fn tell() {
        tracing::warn!(pv = "local-pv-1", path = %NAME, reason = "NotMounted", "{NAME} is not mounted");
    }

    fn text(has_colours: bool) -> String {
        let kept = Kept::default();
        let out = kept.clone();
        let lines = move || OneLine {
            out: out.clone(),
            has_colours,
        };
        let text = fmt::layer().with_ansi(has_colours).with_writer(lines);
        with_default(registry().with(text), tell);
        kept.text()
    }

    #[test]
    fn a_name_forges_no_line_and_no_command_for_the_terminal() {
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
    fn a_line_of_json_has_every_field_as_it_is() {
        let kept = Kept::default();
        let out = kept.clone();
        let json = fmt::layer().json().with_writer(move || out.clone());
        with_default(registry().with(json), tell);
        let text = kept.text();
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
    fn libraries_say_less_than_we_do() {
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
