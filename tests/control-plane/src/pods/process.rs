//! A container's process: the leader of a process group that ends with it, as what is in a
//! container ends with its first process.

use std::{
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill, killpg},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use super::runner::Exit;

/// How long to wait for the rest of a killed group. It stays longer where no process reaps orphans.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// A process that was started. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    /// The group, as long as its number cannot be another group's.
    group: Option<Pid>,
    exit: Option<Exit>,
}

impl Process {
    /// Starts a command; `ended` is called once nothing of it runs any more.
    ///
    /// It gets a thread of its own, and dies with it: the thread ends before its process only if
    /// this whole program is killed.
    pub(super) fn start(
        mut command: Command,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        command.process_group(0);
        die_with_thread(&mut command);
        let (started, starting) = mpsc::sync_channel(1);
        thread::Builder::new().name("container".into()).spawn(move || {
            let child = match command.spawn() {
                Ok(child) => child,
                Err(error) => return drop(started.send(Err(error))),
            };
            // A process id is a positive `pid_t`.
            let group = Pid::from_raw(child.id().cast_signed());
            let shared = Arc::new(Mutex::new(Shared { group: Some(group), exit: None }));
            let _ = started.send(Ok(Arc::clone(&shared)));
            drop(started);
            let exit = wait(child, group, &shared);
            lock(&shared).exit = Some(exit);
            ended();
        })?;
        let shared = starting.recv().map_err(io::Error::other)??;
        Ok(Self { shared })
    }

    /// How it ended, once nothing of it runs any more.
    pub(super) fn exit(&self) -> Option<Exit> {
        lock(&self.shared).exit.clone()
    }

    /// Asks the first process to end, as container runtimes do. The others end with it.
    pub(super) fn terminate(&self) {
        if let Some(group) = lock(&self.shared).group {
            let _ = kill(group, Signal::SIGTERM);
        }
    }

    /// Kills all of it.
    pub(super) fn kill(&self) {
        if let Some(group) = lock(&self.shared).group {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the first process, and kills what it leaves behind.
fn wait(mut child: Child, group: Pid, shared: &Mutex<Shared>) -> Exit {
    // It stays a zombie at first: its number is that of the group to be killed.
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(group), ended) == Err(Errno::EINTR) {}
    {
        let mut shared = lock(shared);
        let _ = killpg(group, Signal::SIGKILL);
        shared.group = None;
    }
    let status = child.wait();
    let deadline = Instant::now() + KILL_TIMEOUT;
    // As long as the group has a member its number is not given away.
    while killpg(group, None).is_ok() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    match status {
        Ok(status) => Exit::with(code(status)),
        Err(error) => Exit::never_started(format!("lost sight of the process: {error}")),
    }
}

fn code(status: ExitStatus) -> i32 {
    let signal = || status.signal().unwrap_or_default();
    status.code().unwrap_or_else(|| 128 + signal())
}

#[expect(
    unsafe_code,
    reason = "the standard library has no other way to set a child's death signal"
)]
fn die_with_thread(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe and touches nothing of the parent's.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
    }
}
