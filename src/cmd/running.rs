//! The provisioner that runs in the same container.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;

use nix::sys::signal::Signal;

use crate::args::Args;

/// A process of this very program that serves: as a provisioner, or whatever else obeys the signals
/// for the log level.
#[derive(Clone, Debug)]
pub struct Running {
    /// The process id.
    pub pid: i32,
    /// Its command line, if it can be read.
    pub args: Option<Args>,
}

/// Those that see the same mounts as this process, which is to say: are in its container.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn all() -> io::Result<Vec<Running>> {
    let own = namespace("self")?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Processes come and go, and not all are ours to look at.
        if namespace(&pid).is_ok_and(|namespace| namespace == own) {
            found.extend(look(pid));
        }
    }
    Ok(found)
}

/// One process; none if it is something else.
#[must_use]
pub fn look(pid: i32) -> Option<Running> {
    let is_same_file = id(&program("self").ok()?) == id(&program(&pid).ok()?);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    if !is_same_file || !obeys(&status) {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line
        .strip_suffix(b"\0")
        .unwrap_or(&line)
        .split(|byte| *byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()));
    Some(Running {
        pid,
        args: Args::from_command_line(words).ok(),
    })
}

fn program(process: &(impl ToString + ?Sized)) -> io::Result<Metadata> {
    fs::metadata(format!("/proc/{}/exe", process.to_string()))
}

fn namespace(process: &(impl ToString + ?Sized)) -> io::Result<(u64, u64)> {
    fs::metadata(format!("/proc/{}/ns/mnt", process.to_string())).map(|found| id(&found))
}

fn id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Whether a process catches both signals, going by its `/proc/PID/status`. They end one that does
/// not.
fn obeys(status: &str) -> bool {
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    [Signal::SIGUSR1, Signal::SIGUSR2]
        .iter()
        .all(|signal| caught & (1 << (*signal as i32 - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_catches_both_signals_is_sent_one() {
        for (mask, does) in [
            ("SigCgt:\t0000000000000a00", true),
            ("SigCgt:\t00000000ffffffff", true),
            ("SigCgt:\t0000000000000200", false),
            ("SigCgt:\t0000000000000800", false),
            ("SigCgt:\t0000000000000000", false),
            ("SigIgn:\t0000000000000a00", false),
            ("SigCgt:\tnonsense", false),
        ] {
            assert_eq!(obeys(mask), does, "{mask}");
        }
    }

    #[test]
    fn a_process_that_is_no_provisioner_is_none() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(look(own).is_none(), "the tests catch no such signals");
        assert!(look(i32::MAX).is_none());
        let kept = || all().unwrap().into_iter().map(|found| found.pid);
        assert!(!kept().any(|pid| pid == own));
    }
}
