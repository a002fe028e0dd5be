//! The quickstart: it succeeds as root and as an ordinary user, and whatever ends it,
//! nothing is left.

#![allow(clippy::unwrap_used, reason = "what cannot be set up or looked at has failed")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;

const QUICKSTART: &str = env!("CARGO_BIN_EXE_quickstart");
/// An ordinary user, on every machine.
const ORDINARY_USER: u32 = 65534;
const TIMEOUT: Duration = Duration::from_secs(20);

/// The programs at a path of their own, which distinguishes their processes from those of other tests.
struct Installed {
    dir: TempDir,
}

impl Installed {
    /// `None`, and a skip, where the machine forbids what the quickstart requires.
    fn new() -> Option<Self> {
        let mut unshare = Command::new("unshare");
        unshare.args(if geteuid().is_root() {
            &["--mount", "true"][..]
        } else {
            &["--user", "--map-root-user", "--mount", "true"]
        });
        if !unshare.status().is_ok_and(|status| status.success()) {
            support::skip("unshare(1) makes no mount namespace on this machine");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let installed = Self { dir };
        fs::set_permissions(installed.dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(installed.temporary_dir()).unwrap();
        fs::set_permissions(installed.temporary_dir(), Permissions::from_mode(0o1777)).unwrap();
        for name in ["quickstart", "local-volume-provisioner"] {
            let built = Path::new(QUICKSTART).with_file_name(name);
            assert!(built.is_file(), "no {}: run `cargo build -p {name}`", built.display());
            let copy = installed.dir.path().join(name);
            if fs::hard_link(&built, &copy).is_err() {
                fs::copy(&built, &copy).unwrap();
            }
        }
        Some(installed)
    }

    fn temporary_dir(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.dir.path().join("quickstart"));
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        command.env("PATH", path).env("TMPDIR", self.temporary_dir()).current_dir("/");
        command.stdin(Stdio::null());
        command
    }

    /// The processes of the programs, by their command lines. A zombie has none, and counts for none.
    fn processes(&self) -> Vec<String> {
        let ours = |exe: &Path| exe.starts_with(self.dir.path());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter(|process| fs::read_link(process.path().join("exe")).is_ok_and(|exe| ours(&exe)))
            .filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok())
            .map(|line| line.replace('\0', " "))
            .collect()
    }

    /// What is left of a run of the process `pid`.
    fn remains(&self, pid: u32) -> Vec<String> {
        let mut found = self.processes();
        found.extend(loop_devices(pid));
        let files = fs::read_dir(self.temporary_dir()).unwrap().flatten();
        found.extend(files.map(|file| file.path().display().to_string()));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        found.extend(mounts.lines().filter(|line| line.contains("/mnt/disks")).map(str::to_owned));
        found
    }

    /// The last user of a namespace takes it down a moment after it is gone.
    fn assert_nothing_remains(&self, pid: u32) {
        let mut remains = Vec::new();
        support::until(TIMEOUT, Duration::from_millis(10), || {
            remains = self.remains(pid);
            remains.is_empty().then_some(())
        });
        assert!(remains.is_empty(), "left behind: {remains:#?}");
    }

    /// Runs it to its end; what it printed.
    fn run(&self, command: &mut Command) -> String {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let (printed, errors) =
            (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert!(status.success(), "{status}\n{printed}\n{errors}");
        self.assert_nothing_remains(pid);
        printed
    }
}

/// The loop devices over images of the process `pid`.
fn loop_devices(pid: u32) -> Vec<String> {
    let image = format!("quickstart-{pid}-");
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    let backing = devices.map(|device| device.path().join("loop/backing_file"));
    backing
        .filter(|file| fs::read_to_string(file).is_ok_and(|path| path.contains(&image)))
        .map(|file| file.display().to_string())
        .collect()
}

fn send(signal: Signal, pid: u32) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// What it prints for every user.
fn assert_is_the_story(printed: &str) {
    for line in [
        "1. A node with some disks",
        "NotMounted: path ",
        "6. The tenant leaves",
        "after    nothing",
        "ok ram is clean, and offered again",
        "ok share is clean, and offered again",
        "ok /mnt/neighbour/precious is still there",
        "persistentvolume_delete_total",
    ] {
        assert!(printed.contains(line), "no {line:?} in\n{printed}");
    }
    assert!(!printed.contains('\x1b'), "colour in a file:\n{printed}");
    // The reasons that `discover` gives have no room in a table of six columns.
    let too_wide = |line: &&str| line.chars().count() > 80 && !line.contains("  Skipped  ");
    let wide: Vec<_> = printed.lines().filter(too_wide).collect();
    assert!(wide.is_empty(), "wider than a terminal: {wide:#?}");
}

#[test]
fn the_story_ends_well() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let printed = installed.run(&mut installed.command());
    assert_is_the_story(&printed);
    // Root gets all kinds, or the reason why not.
    for (kind, disk) in [("ext4 on", "ssd"), ("raw block device", "nvme")] {
        let left_out = printed.lines().any(|line| line.contains("Left out") && line.contains(kind));
        let recycled = printed.contains(&format!("ok {disk} is clean"));
        assert!(left_out != recycled, "{kind}:\n{printed}");
    }
}

#[test]
fn an_ordinary_user_gets_what_requires_no_root() {
    if !geteuid().is_root() {
        return support::skip("it runs the quickstart as another user, which takes root");
    }
    let Some(installed) = Installed::new() else {
        return;
    };
    let mut unshare = Command::new("unshare");
    let unshare = unshare.args(["--user", "--mount", "true"]);
    if !unshare.uid(ORDINARY_USER).gid(ORDINARY_USER).status().unwrap().success() {
        return support::skip("an ordinary user gets no namespaces on this machine");
    }
    let printed = installed.run(installed.command().uid(ORDINARY_USER).gid(ORDINARY_USER));
    assert_is_the_story(&printed);
    assert!(printed.contains("Left out: ext4 on a loop device, which takes root."), "{printed}");
    assert!(printed.contains("ok 2 volumes recycled"), "{printed}");
}

#[test]
fn whatever_ends_it_in_the_middle_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let Some(installed) = Installed::new() else {
            return;
        };
        // The pipe has no reader and little room: it cannot come to its end.
        let (reader, mut writer) = std::io::pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        writer.write_all(&[b'.'; 1024]).unwrap();
        let mut child = installed.command().stdout(writer).spawn().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let is_last = Instant::now() >= deadline;
            let processes = installed.processes();
            if processes.iter().any(|line| line.contains("--kubelet-dir")) {
                break;
            }
            assert_eq!(child.try_wait().unwrap(), None, "it has ended");
            assert!(!is_last, "there is no provisioner");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(geteuid().is_root(), !loop_devices(child.id()).is_empty());
        send(signal, child.id());
        let status = child.wait().unwrap();
        assert_eq!(support::killed_by(status), Some(signal as i32));
        installed.assert_nothing_remains(child.id());
        drop(reader);
    }
}

#[test]
fn kept_it_can_be_looked_at_until_ctrl_c() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let mut child = installed.command().arg("--keep").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let export = lines.find(|line| line.contains("export KUBECONFIG="));
    let export = export.unwrap();
    let (_, kubeconfig) = export.split_once('=').unwrap();
    assert!(fs::read_to_string(kubeconfig).unwrap().contains("server: http://127.0.0.1:"));
    let curl = lines.find(|line| line.contains("curl http://")).unwrap();
    let address = curl.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let (code, status) = support::http_get(address, "/status").unwrap();
    assert_eq!(code, 200, "{status}");

    send(Signal::SIGINT, child.id());
    assert!(lines.any(|line| line.contains("nothing is left")));
    assert!(child.wait().unwrap().success());
    installed.assert_nothing_remains(child.id());
}

#[test]
fn a_machine_that_forbids_it_gets_one_error() {
    // A user namespace in which not one mount namespace may be made.
    let forbid = "echo 0 > /proc/sys/user/max_mnt_namespaces && exec \"$0\"";
    let Some(installed) = Installed::new() else {
        return;
    };
    let quickstart = installed.dir.path().join("quickstart");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", forbid])
        .arg(quickstart)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.starts_with("unshare:") || errors.starts_with("sh:") {
        return support::skip(errors.trim());
    }
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("sysctl -w user.max_mnt_namespaces="), "{errors}");
}

#[test]
fn a_provisioner_that_does_not_run_is_a_failure_that_shows_its_log() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let provisioner = installed.dir.path().join("local-volume-provisioner");
    fs::rename(&provisioner, provisioner.with_extension("real")).unwrap();
    let script = "#!/bin/sh\n\
        case $* in discover*) exec \"$0.real\" \"$@\" ;; esac\n\
        echo 'the last words' >&2\n\
        exit 1\n";
    fs::write(&provisioner, script).unwrap();
    fs::set_permissions(&provisioner, Permissions::from_mode(0o755)).unwrap();
    let output = installed.command().output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with("FAILED: the provisioner has ended\n"), "{errors}");
    assert!(errors.ends_with("the last words\n"), "{errors}");
}
