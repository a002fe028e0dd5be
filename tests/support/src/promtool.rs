//! Prometheus' own tool, which knows what Prometheus takes.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{skip, tool};

#[derive(Clone, Debug)]
pub struct Promtool(PathBuf);

impl Promtool {
    /// The one that `PROMTOOL` names, else the one that `scripts/test` has unpacked, else that of the
    /// machine. Without any, the test is skipped.
    pub fn find() -> Option<Self> {
        let found = tool("PROMTOOL", "tools/promtool", "promtool", "--version");
        if found.is_none() {
            skip("there is no promtool: it is in Debian's package prometheus");
        }
        found.map(Self)
    }

    /// Runs it with this on its standard input.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> Result<String, String> {
        let mut child = Command::new(&self.0)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read it reports why.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }
}
