//! What a process costs.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use nix::{
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

/// The most memory that the process had resident since [`forget_peak`], in MiB.
pub fn peak(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.context("no VmHWM in the process's status")? / 1024.0)
}

/// Makes the peak that of now.
pub fn forget_peak(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// The seconds that all threads of a process have spent on a CPU.
pub fn cpu(pid: u32) -> Result<f64> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(Duration::from(clock_gettime(clock)?).as_secs_f64())
}

/// The processes that run under one of these names.
pub fn named(names: &[&str]) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let program = line.split('\0').next().unwrap_or_default();
        if names.contains(&program.rsplit('/').next().unwrap_or_default()) {
            found.push(pid);
        }
    }
    Ok(found)
}
