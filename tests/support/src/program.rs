//! A program under test: started, listened to, and gone when the test is.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::polling::until;

/// Only what hangs takes so long to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running program whose log is kept, and shown when the test fails.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts a program. It dies with the calling *thread*, however that ends.
    pub fn start(mut command: Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        die_with_thread(&mut command);
        let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        Ok(Self { child, log })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(pid, signal).with_context(|| format!("sending {signal} to {pid}"))
    }

    /// Kills it without warning, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM, and waits for its end.
    pub fn stop(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.wait(limit)
    }

    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let ended = || self.child.try_wait().transpose();
        match until(limit, Duration::from_millis(5), ended) {
            Some(status) => Ok(status?),
            None => bail!("the program has not ended within {limit:?}"),
        }
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The address that it serves HTTP on, from its log.
    pub fn http_address(&mut self) -> Result<String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let is_last = !self.is_running() || Instant::now() >= deadline;
            let log = self.log();
            let marked = log.lines().find_map(|line| line.split_once("address=").map(|(_, at)| at));
            if let Some(at) = marked {
                return Ok(at.split_whitespace().next().unwrap_or(at).to_owned());
            }
            if is_last {
                bail!("the program serves no HTTP; its log:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it over HTTP: the status code and the body.
    pub fn http_get(&mut self, path: &str) -> Result<(u16, String)> {
        let address = self.http_address()?;
        http_get(&address, path)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "--- the program's log ---\n{}---", self.log());
        }
    }
}

/// One HTTP/1.1 request on a connection of its own.
pub fn http_get(address: &str, path: &str) -> Result<(u16, String)> {
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("reading the answer")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no head")?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.context("the answer has no status")?, body.to_owned()))
}

/// The signal that ended a process, if one did.
pub fn killed_by(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// A command for a program with only the environment that is given, and `PATH`.
pub fn bare_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

#[expect(
    unsafe_code,
    reason = "the standard library has no other way to set a child's death signal"
)]
fn die_with_thread(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe and touches nothing of the parent's.
    unsafe {
        command.pre_exec(|| {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            Ok(())
        });
    }
}
