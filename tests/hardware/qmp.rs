//! QEMU's monitor: one JSON object per line, with events in between.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How long the machine may take for any command; a guest is slow to release a disk.
const TIMEOUT: Duration = Duration::from_mins(4);

/// The monitor of one machine.
pub struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Takes over a fresh connection.
    pub fn greet(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut qmp = Self { stream: BufReader::new(stream) };
        qmp.read()?;
        qmp.ask("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Gives a command and waits for its answer.
    pub fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{request}")?;
        loop {
            let answer = self.read()?;
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
            if let Some(error) = answer.get("error") {
                bail!("{command} {arguments}: {error}");
            }
        }
    }

    /// Takes a device away, and waits until it is gone.
    pub fn unplug(&mut self, id: &str) -> Result<()> {
        self.ask("device_del", &json!({ "id": id }))?;
        loop {
            let event = self.read().with_context(|| format!("unplugging {id}"))?;
            if event["event"] == "DEVICE_DELETED" && event["data"]["device"] == id {
                return Ok(());
            }
        }
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("the monitor said {line:?}"))
    }
}
