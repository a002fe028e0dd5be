//! The program in the container of a cleaning Job, which verifies its device again: the facts of the
//! Job may be stale.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use local_volume_provisioner::host::access::Access;
use local_volume_provisioner::host::identity::Identity;
use local_volume_provisioner::host::lock::VolumeLock;
use local_volume_provisioner::host::mark::{Mark, MarkState, MarkedVolume, StateDir};
use local_volume_provisioner::host::mounts::MountTable;
use nix::sys::signal::Signal;
use support::{LoopDevice, Program, Sandbox, bare_command};

use crate::BINARY;
use crate::kit::*;

/// Longer than the container waits for another user of the device.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A device with a secret, at the path that a Job names.
struct Fixture {
    sandbox: Sandbox,
    device: LoopDevice,
    path: PathBuf,
}

fn fixture() -> Option<Fixture> {
    let sandbox = Sandbox::enter()?;
    let device = LoopDevice::new(sandbox.path(), 32 * MIB).unwrap();
    let path = link(&device, sandbox.path(), "disk");
    scribble(device.path());
    Some(Fixture { sandbox, device, path })
}

impl Fixture {
    /// By another program than ours.
    fn identity(&self) -> String {
        let column = |name: &str| {
            let mut losetup = Command::new("losetup");
            let listed = losetup.args(["--noheadings", "--output", name]);
            let listed = listed.arg("--list").arg(self.device.path()).output();
            String::from_utf8(listed.unwrap().stdout).unwrap()
        };
        let (file, inode) = (column("BACK-FILE"), column("BACK-INO"));
        format!("v1:loop={}:{}", file.trim(), inode.trim())
    }

    fn command(&self, how: &[&str]) -> Command {
        let mut command = bare_command(BINARY);
        command
            .arg("job")
            .args(how)
            .env("LOCAL_PV_BLKDEVICE", &self.path)
            .env("LOCAL_PV_NAME", "local-pv-1a")
            .env("LOCAL_PV_IDENTITY", self.identity())
            .env("LOCAL_PV_SIZE", (32 * MIB).to_string())
            .env("LOCAL_PV_UID", "pv-uid")
            .env("LOCAL_PV_CLASS", "raw");
        command
    }

    /// The same with a directory of marks.
    fn command_with_marks(&self, marks: &Path) -> Command {
        let mut command = self.command(&["--method=zero"]);
        command.env("STATE_DIRECTORY", marks);
        command
    }

    fn write_mark(&self, marks: &Path, pv_uid: &str, state: MarkState) {
        let identity = Identity { text: self.identity(), weak: true };
        let volume = MarkedVolume::new(None, &identity, "raw", &self.path);
        let mark = Mark { pv_uid: pv_uid.into(), state, ..Mark::default() };
        let marks = StateDir::open(marks, false, &MountTable::read().unwrap()).unwrap();
        marks.write(&volume, &mark).unwrap();
    }

    fn start(&self, command: Command) -> Program {
        Program::start(command, self.sandbox.path().join("job.log")).unwrap()
    }

    /// Runs it; its exit code and its log.
    fn run(&self, command: Command) -> (Option<i32>, String) {
        let mut program = self.start(command);
        let status = program.wait(TIMEOUT).unwrap();
        (status.code(), program.log())
    }

    /// Asserts that it fails with these words, and that nothing was touched.
    fn is_refused(&self, command: Command, code: i32, words: &[&str]) {
        let (ended, log) = self.run(command);
        assert_eq!(ended, Some(code), "{log}");
        for words in words {
            assert!(log.contains(words), "no {words:?} in {log}");
        }
        assert!(is_as_scribbled(self.device.path()), "{log}");
    }

    fn script(&self, text: &str) -> String {
        let file = self.sandbox.path().join("cleaner.sh");
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

#[test]
fn it_cleans_by_the_same_methods_and_commands() {
    let fixture = or_skip!(fixture());
    let script = fixture.script(
        "test -n \"$LOCAL_PV_BLKDEVICE\" || exit 9\n\
         echo cleaning with $1\n\
         dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=32 conv=notrunc status=none\n",
    );
    for (how, said) in [
        (&["--method=zero"][..], "the device reads as zeros"),
        (&["/scripts/shred.sh", "1"], "the device reads as zeros"),
        (&["/scripts/blkdiscard.sh"], "the device reads as zeros"),
        (&["/bin/sh", &script, "care"], "cleaner: cleaning with care"),
    ] {
        scribble(fixture.device.path());
        let (code, log) = fixture.run(fixture.command(how));
        assert_eq!(code, Some(0), "{how:?}: {log}");
        assert!(log.contains(said) && log.contains("is clean"), "{how:?}: {log}");
        assert!(fixture.device.is_zero().unwrap(), "{how:?}");
    }
    fixture.device.format("ext4").unwrap();
    let (code, log) = fixture.run(fixture.command(&["/scripts/quick_reset.sh"]));
    assert_eq!((code, wipefs(fixture.device.path())), (Some(0), String::new()), "{log}");
}

#[test]
fn another_device_than_the_one_that_was_meant_is_left_alone() {
    let fixture = or_skip!(fixture());
    // The other took its place after the Job was made.
    let command = fixture.command(&["--method=zero"]);
    let other = LoopDevice::new(fixture.sandbox.path(), 32 * MIB).unwrap();
    fs::remove_file(&fixture.path).unwrap();
    link(&other, fixture.sandbox.path(), "disk");
    scribble(other.path());
    fixture.is_refused(command, 1, &["another device is at", "nothing was touched"]);
    assert!(is_as_scribbled(other.path()));
}

#[test]
fn a_device_of_another_size_is_left_alone() {
    let fixture = or_skip!(fixture());
    let mut command = fixture.command(&["--method=zero"]);
    command.env("LOCAL_PV_SIZE", (64 * MIB).to_string());
    fixture.is_refused(command, 1, &["67108864 bytes", "33554432", "nothing was touched"]);
}

#[test]
fn a_device_whose_mark_is_not_of_the_pv_is_left_alone() {
    let fixture = or_skip!(fixture());
    let marks = fixture.sandbox.path().join("marks");
    // Without the directory it is not known whether there is a mark.
    let words = ["cannot be opened as a directory", "nothing was touched"];
    fixture.is_refused(fixture.command_with_marks(&marks), 1, &words);
    fs::create_dir(&marks).unwrap();
    let words = ["the mark of", "delete this Job", "nothing was touched"];
    for (pv_uid, state) in [
        // It was wiped, and it was offered since.
        ("pv-uid", MarkState::Free),
        ("next-uid", MarkState::Used),
    ] {
        fixture.write_mark(&marks, pv_uid, state);
        fixture.is_refused(fixture.command_with_marks(&marks), 1, &words);
    }
    let file = fs::read_dir(&marks).unwrap().next().unwrap().unwrap().path();
    fs::write(&file, "damaged").unwrap();
    fixture.is_refused(fixture.command_with_marks(&marks), 1, &words);
    fs::remove_file(&file).unwrap();
    fixture.is_refused(fixture.command_with_marks(&marks), 1, &words);

    for state in [MarkState::Used, MarkState::Wiping] {
        fixture.write_mark(&marks, "pv-uid", state);
        scribble(fixture.device.path());
        let (code, log) = fixture.run(fixture.command_with_marks(&marks));
        assert_eq!(code, Some(0), "{state:?}: {log}");
        assert!(fixture.device.is_zero().unwrap(), "{state:?}");
    }
}

#[test]
fn a_device_in_use_is_left_alone_and_its_users_are_named() {
    let fixture = or_skip!(fixture());
    let user = fixture.device.open_alone().unwrap();
    let words = ["is in use", "nothing was touched"];
    fixture.is_refused(fixture.command(&["--method=zero"]), 1, &words);
    drop(user);
    let device = File::open(fixture.device.path()).unwrap();
    let lock = VolumeLock::acquire(device.as_fd(), &fixture.path, Access::Clean).unwrap();
    let words = ["is locked by another process", "lslocks", "nothing was touched"];
    fixture.is_refused(fixture.command(&["--method=zero"]), 1, &words);
    drop((device, lock));
    let (code, log) = fixture.run(fixture.command(&["--method=zero"]));
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn a_wrong_container_or_cleaner_is_reported() {
    let fixture = or_skip!(fixture());
    for (variable, value) in [
        ("LOCAL_PV_BLKDEVICE", ""),
        ("LOCAL_PV_BLKDEVICE", "disk"),
        ("LOCAL_PV_NAME", ""),
        ("LOCAL_PV_IDENTITY", ""),
        ("LOCAL_PV_SIZE", "much"),
    ] {
        let mut command = fixture.command(&["--method=zero"]);
        command.env(variable, value);
        fixture.is_refused(command, 2, &[variable]);
    }
    let contents = fixture.command(&["/scripts/fsclean.sh"]);
    fixture.is_refused(contents, 1, &["does not clean devices"]);
    let missing = fixture.command(&["/scripts/no-such-cleaner"]);
    fixture.is_refused(missing, 1, &["cannot be run", "correct blockCleanerCommand"]);
}

#[test]
fn a_cleaners_success_is_verified_and_its_failure_is_reported() {
    let fixture = or_skip!(fixture());
    fixture.device.format("ext4").unwrap();
    for (script, said) in
        [("exit 0\n", "shows a signature"), ("echo worn out; exit 3\n", "exit code 3")]
    {
        let script = fixture.script(script);
        let (code, log) = fixture.run(fixture.command(&["/bin/sh", &script]));
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains(said) && log.contains("is not clean"), "{log}");
    }
}

#[test]
fn on_sigterm_it_stops_and_nothing_of_it_stays() {
    let fixture = or_skip!(fixture());
    let begun = fixture.sandbox.path().join("begun");
    let script = fixture
        .script(&format!("sleep 1000 & echo $! >{0}.pid; mv {0}.pid {0}; wait\n", begun.display()));
    let mut program = fixture.start(fixture.command(&["/bin/sh", &script]));
    let is_there = || begun.exists();
    let has_begun = support::until(TIMEOUT, Duration::from_millis(5), is_there);
    assert!(has_begun.is_some(), "{}", program.log());
    let child: u32 = fs::read_to_string(&begun).unwrap().trim().parse().unwrap();
    assert!(is_alive(child));
    program.signal(Signal::SIGTERM).unwrap();
    let status = program.wait(TIMEOUT).unwrap();
    assert_eq!(status.code(), Some(130), "{}", program.log());
    assert!(!is_alive(child));
}
