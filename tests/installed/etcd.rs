//! A backup of etcd, from which the cluster is restored.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::{Process, all_processes};
use tempfile::TempDir;

use crate::Cluster;
use crate::cluster::run;

const PLACE: &str = "/run/cluster";
const DATA: &str = "/run/cluster/etcd";
/// What `tests/kubernetes/init` takes for etcd's data when etcd ends.
const RESTORED: &str = "/run/cluster/restored";

/// A copy of all that the API server knew at a time.
pub struct Backup(TempDir);

fn etcd() -> Process {
    let mut processes = all_processes().unwrap().flatten();
    let is_etcd = |process: &Process| {
        let words = process.cmdline().unwrap_or_default();
        words.first().is_some_and(|word| word == "etcd")
    };
    processes.find(is_etcd).unwrap()
}

impl Backup {
    pub fn take(cluster: &Cluster) -> Self {
        let backup = TempDir::new_in(PLACE).unwrap();
        let etcd = etcd();
        let pid = Pid::from_raw(etcd.pid());
        kill(pid, Signal::SIGSTOP).unwrap();
        cluster.eventually("etcd is stopped", || {
            let mut threads = etcd.tasks().unwrap().flatten();
            threads.all(|thread| thread.stat().is_ok_and(|stat| stat.state == 'T'))
        });
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--sparse=always", DATA]);
        run(copy.arg(backup.path()), "").unwrap();
        kill(pid, Signal::SIGCONT).unwrap();
        Self(backup)
    }

    /// Restores it, and waits until the API server is ready.
    pub fn restore(self, cluster: &Cluster) {
        fs::rename(self.0.path().join("etcd"), RESTORED).unwrap();
        kill(Pid::from_raw(etcd().pid()), Signal::SIGKILL).unwrap();
        cluster.eventually("the API server is ready", || {
            let is_ready = || cluster.kubectl(&["get", "--raw", "/readyz"]).is_ok();
            !Path::new(RESTORED).exists() && is_ready()
        });
    }
}
