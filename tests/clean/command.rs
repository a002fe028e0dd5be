//! External cleaners under their supervisor: real processes, none of which may survive.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::future::Future;
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::Pin;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use local_volume_provisioner::wipe::command::run;
use local_volume_provisioner::wipe::error::WipeError;
use local_volume_provisioner::wipe::progress::Progress;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::until;
use tokio::runtime::Runtime;

const OURSELVES: &str = env!("CARGO_BIN_EXE_local-volume-provisioner");
const DEVICE: &str = "LOCAL_PV_BLKDEVICE";
const BROKEN: &str = "the supervisor of ";

/// Runs a shell script as the cleaner, and returns what it wrote.
async fn clean(
    script: &str,
    mark: &str,
    progress: &Progress,
) -> (Result<(), WipeError>, Vec<String>) {
    clean_locked(script, mark, &nothing(), progress).await
}

/// As above, for a volume that is locked by `lock`.
async fn clean_locked(
    script: &str,
    mark: &str,
    lock: &File,
    progress: &Progress,
) -> (Result<(), WipeError>, Vec<String>) {
    let command = ["sh", "-c", script].map(str::to_owned);
    let mut lines = Vec::new();
    let result = run(
        Path::new(OURSELVES),
        &command,
        &[(DEVICE, OsStr::new(mark))],
        lock.as_fd(),
        |line| lines.push(line.to_owned()),
        progress,
    )
    .await;
    (result, lines)
}

/// In a lock's place, where it does not matter.
fn nothing() -> File {
    File::open("/dev/null").unwrap()
}

/// A device name that no other test and no other process has.
fn mark(test: &str) -> String {
    format!("/dev/{test}-{}-{:?}", std::process::id(), Instant::now())
}

/// All processes with this device in their environment: the supervisor, the cleaner, and what these
/// started, whatever their parent is now.
fn processes(mark: &str) -> Vec<(Pid, String)> {
    let wanted = format!("{DEVICE}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Gone meanwhile, or already dead: then there is no environment any more.
        let Ok(environment) = fs::read(entry.path().join("environ")) else {
            continue;
        };
        if environment.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes()) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((Pid::from_raw(pid), name.trim().to_owned()));
        }
    }
    found
}

const TIMEOUT: Duration = Duration::from_secs(10);

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let met = until(TIMEOUT, Duration::from_millis(5), condition);
    assert!(met.is_some(), "not within {TIMEOUT:?}: {what}");
}

/// A cleaner that tries to escape its supervisor: children in sessions of their own, forked twice, deaf
/// to signals. Six processes.
const ESCAPE_ARTIST: &str = "
    trap '' TERM INT HUP
    sleep 1000 &
    (setsid sh -c 'trap \"\" TERM; sleep 1000 & (sleep 1000 &) ; wait' &)
    (setsid nohup sleep 1000 >/dev/null 2>&1 &)
    echo ready
    wait
";

fn supervisor(mark: &str) -> Pid {
    let mut found = processes(mark).into_iter();
    let is_supervisor = |(_, name): &(Pid, String)| name.starts_with("local-vol");
    found.find(is_supervisor).unwrap().0
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

fn sleepers(mark: &str) -> usize {
    processes(mark).iter().filter(|(_, name)| name == "sleep").count()
}

#[tokio::test]
async fn a_cleaner_that_succeeds() {
    let mark = mark("succeeds");
    let script = "echo \"wiping $LOCAL_PV_BLKDEVICE\"; echo to-stderr >&2; read x || echo no-input; printf 'odd\\377'";
    let (result, lines) = clean(script, &mark, &Progress::default()).await;
    result.unwrap();
    assert_eq!(lines, [format!("wiping {mark}").as_str(), "to-stderr", "no-input", "odd\u{fffd}"]);
    assert_eq!(processes(&mark), []);
}

#[tokio::test]
async fn a_cleaner_and_its_children_have_idle_io_priority() {
    if !crate::volume::has("ionice") {
        return support::skip("no ionice on this machine");
    }
    let script = "ionice; (setsid ionice)";
    let (result, lines) = clean(script, &mark("idle"), &Progress::default()).await;
    result.unwrap();
    assert_eq!(lines, ["idle", "idle"]);
}

#[tokio::test]
async fn a_failed_cleaner_is_reported_with_its_code_and_last_output() {
    let script = "for n in 1 2 3 4 5 6 7; do echo line $n; done; exit 77";
    let (result, lines) = clean(script, &mark("fails"), &Progress::default()).await;
    let error = result.unwrap_err();
    let said = "ended with exit code 77; last output: “line 3 | line 4 | line 5 | line 6 | line 7”";
    assert!(error.to_string().ends_with(said), "{error}");
    assert_eq!(lines.len(), 7);

    let (result, _) = clean("kill -9 $$", &mark("killed"), &Progress::default()).await;
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), "\"sh\" was killed by signal 9");
}

#[tokio::test]
async fn a_cleaner_that_does_not_start() {
    for program in ["/no/such/program", "/etc/passwd"] {
        let command = [program.to_owned()];
        let progress = Progress::default();
        let (supervisor, lock) = (Path::new(OURSELVES), nothing());
        let error =
            run(supervisor, &command, &[], lock.as_fd(), |_| (), &progress).await.unwrap_err();
        for words in [program, "cannot be run: "] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    let progress = Progress::default();
    let error = run(
        Path::new("/no/supervisor"),
        &["true".into()],
        &[],
        nothing().as_fd(),
        |_| (),
        &progress,
    )
    .await;
    assert!(error.unwrap_err().to_string().starts_with(BROKEN));
}

/// It would still write to the device when the next tenant has it.
#[tokio::test]
async fn what_a_cleaner_leaves_in_the_background_ends_with_it() {
    let mark = mark("background");
    let script = "(setsid sleep 1000 &) ; sleep 1000 & (setsid sh -c 'sleep 1000; true' >/dev/null 2>&1 &) ; echo done";
    let start = Instant::now();
    let (result, lines) = clean(script, &mark, &Progress::default()).await;
    result.unwrap();
    assert_eq!(lines, ["done"]);
    assert_eq!(processes(&mark), []);
    assert!(start.elapsed() < Duration::from_mins(1));
}

/// Waits until this number of its processes sleeps.
async fn running(mark: &str, count: usize) {
    while sleepers(mark) < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn nothing_of_a_cancelled_cleaner_is_left() {
    let forks = "while :; do (setsid sh -c 'sleep 0.2; sleep 0.2' &) ; done";
    for (script, count) in [(ESCAPE_ARTIST, 4), (forks, 20)] {
        let (mark, progress) = (mark("cancelled"), Progress::default());
        let cleaning = clean(script, &mark, &progress);
        let cancel = async {
            running(&mark, count).await;
            progress.cancel();
        };
        let ((result, _), ()) = tokio::join!(cleaning, cancel);
        let error = result.unwrap_err();
        assert_eq!(error, WipeError::Cancelled);
        assert_eq!(processes(&mark), []);
        // One that was cancelled before does not start at all.
        let (result, lines) = clean("echo x", &mark, &progress).await;
        assert!(result == Err(WipeError::Cancelled) && lines.is_empty());
    }
}

#[tokio::test]
async fn a_dropped_future_kills_the_cleaner() {
    let (mark, progress) = (mark("dropped"), Progress::default());
    tokio::select! {
        _ = clean(ESCAPE_ARTIST, &mark, &progress) => panic!("it has ended"),
        () = running(&mark, 4) => {}
    }
    wait_until("the cleaner's end", || processes(&mark).is_empty());
}

/// The fault that `PR_SET_PDEATHSIG` has: it is about threads.
#[test]
fn the_end_of_the_thread_that_started_it_does_not_kill_a_cleaner() {
    type Running = Pin<Box<dyn Future<Output = Vec<String>> + Send>>;
    let mark = mark("thread");
    let dir = tempfile::tempdir().unwrap();
    let go_on = dir.path().join("go-on");
    let script = format!("until [ -e {} ]; do sleep 0.05; done; echo alive", go_on.display());
    let its_mark = mark.clone();
    let mut running: Running = Box::pin(async move {
        let (result, lines) = clean(&script, &its_mark, &Progress::default()).await;
        result.unwrap();
        lines
    });
    let first = thread::spawn(move || {
        let runtime = runtime();
        let started = async {
            while !processes(&mark).iter().any(|(_, name)| name == "sh") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                lines = &mut running => panic!("it has ended: {lines:?}"),
                () = started => {}
            }
        });
        (runtime, running)
    });
    let (runtime, running) = first.join().unwrap();
    fs::write(&go_on, "").unwrap();
    let lines = runtime.block_on(running);
    assert_eq!(lines, ["alive"]);
}

fn is_locked(path: &Path) -> bool {
    File::open(path).unwrap().try_lock().is_err()
}

/// A process that waits for a disk cannot be killed, and may outlive provisioner and supervisor. Here
/// it is one that no process is left to kill.
#[test]
fn a_cleaner_that_outlives_everything_keeps_the_volume_locked() {
    const MARK: &str = "TEST_AS_THE_LOCKING_PROVISIONER";
    const SCRIPT: &str = "(setsid sleep 1000 >/dev/null 2>&1 &) ; sleep 1000";
    let volume = |mark: &str| std::env::temp_dir().join(mark.replace(['/', ' '], "-"));
    if let Some(mark) = std::env::var_os(MARK) {
        let mark = mark.to_str().unwrap();
        let lock = File::open(volume(mark)).unwrap();
        lock.try_lock().unwrap();
        let runtime = runtime();
        let _ = runtime.block_on(clean_locked(SCRIPT, mark, &lock, &Progress::default()));
        return;
    }
    let mark = mark("lock");
    let volume = volume(&mark);
    fs::write(&volume, "").unwrap();
    let mut provisioner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "command::a_cleaner_that_outlives_everything_keeps_the_volume_locked"])
        .env(MARK, &mark)
        .spawn()
        .unwrap();
    wait_until("the cleaner's start", || sleepers(&mark) == 2);
    let supervisor = supervisor(&mark);
    // This one first: it must not clean up.
    kill(supervisor, Signal::SIGKILL).unwrap();
    provisioner.kill().unwrap();
    provisioner.wait().unwrap();
    wait_until("the supervisor's end", || {
        processes(&mark).iter().all(|(pid, _)| *pid != supervisor)
    });
    let left = processes(&mark);
    let locked = is_locked(&volume);
    for (pid, _) in &left {
        let _ = kill(*pid, Signal::SIGKILL);
    }
    assert!(left.iter().any(|(_, name)| name == "sleep"), "{left:?}");
    assert!(locked, "{left:?} run, and the volume is not locked");
    wait_until("the lock's end with the last process", || !is_locked(&volume));
    fs::remove_file(volume).unwrap();
}

#[tokio::test]
async fn a_lock_ends_when_the_cleaner_has_ended() {
    let volume = std::env::temp_dir().join(format!("unlocked-{}", std::process::id()));
    fs::write(&volume, "").unwrap();
    let lock = File::open(&volume).unwrap();
    lock.try_lock().unwrap();
    let script = "(setsid sleep 1000 &) ; true";
    let (result, _) = clean_locked(script, &mark("unlocked"), &lock, &Progress::default()).await;
    result.unwrap();
    assert!(is_locked(&volume));
    drop(lock);
    // A program that another test starts at this moment has it until its exec.
    wait_until("the lock's end", || !is_locked(&volume));
    fs::remove_file(volume).unwrap();
}

#[tokio::test]
async fn a_signal_to_the_supervisor_ends_everything_and_is_no_success() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mark = mark("signal");
        let its_mark = mark.clone();
        let cleaning = tokio::spawn(async move {
            let script = "echo ready; exec sleep 1000";
            clean(script, &its_mark, &Progress::default()).await.0
        });
        running(&mark, 1).await;
        kill(supervisor(&mark), signal).unwrap();
        let error = cleaning.await.unwrap().unwrap_err();
        assert!(error.to_string().starts_with(BROKEN), "{error}");
        wait_until("the cleaner's end", || processes(&mark).is_empty());
    }
}

/// Long output, and a program that closes its output and keeps running.
#[tokio::test]
async fn output_is_read_to_its_end_and_the_end_is_waited_for() {
    let (result, lines) = clean("seq 1 20000", &mark("long"), &Progress::default()).await;
    result.unwrap();
    assert_eq!((lines.len(), lines.last().unwrap().as_str()), (20_000, "20000"));
    let file = std::env::temp_dir().join(format!("closed-{}", std::process::id()));
    let script = format!("exec >&- 2>&-; sleep 0.3; echo end > {}", file.display());
    let (result, _) = clean(&script, &mark("closed"), &Progress::default()).await;
    result.unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "end\n");
    fs::remove_file(file).unwrap();
}
