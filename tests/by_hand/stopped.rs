//! Cleanings that come to no good end.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use support::{LoopDevice, Program, Sandbox, bare_command};

use crate::ground::{assert_clean, command, device_without_offload};

#[test]
fn an_interrupt_is_heeded_at_once_and_says_what_is_left() {
    let sandbox = or_skip!(Sandbox::enter());
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        let device = device_without_offload(&sandbox);
        let path = device.path().as_os_str();
        let args = [
            path,
            "--yes".as_ref(),
            "--method=overwrite".as_ref(),
            "--passes=10000".as_ref(),
        ];
        let log = sandbox.path().join("log");
        let mut program = Program::start(command(args), log).unwrap();
        is_begun(&device, &program);
        program.signal(signal).unwrap();
        // Ten thousand passes take much longer.
        let status = program.wait(Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(130));
        let log = program.log();
        for words in ["interrupted (", "wiped (", "is half cleaned"] {
            assert!(log.contains(words), "{log}");
        }
    }
}

#[test]
fn without_a_terminal_to_hang_up_it_goes_on() {
    let sandbox = or_skip!(Sandbox::enter());
    let device = device_without_offload(&sandbox);
    let mut nohup = bare_command("nohup");
    nohup.args([env!("CARGO_BIN_EXE_local-volume-provisioner"), "clean"]);
    nohup.arg(device.path());
    nohup.args(["--yes", "--method=overwrite", "--passes=40"]);
    let mut program = Program::start(nohup, sandbox.path().join("log")).unwrap();
    is_begun(&device, &program);
    program.signal(Signal::SIGHUP).unwrap();
    let status = program.wait(Duration::from_mins(2)).unwrap();
    assert_eq!(status.code(), Some(0), "{}", program.log());
}

/// Waits until random bytes are written: the first block was `LUKS`.
fn is_begun(device: &LoopDevice, program: &Program) {
    let begun = Instant::now();
    while first_bytes(device) == *b"LUKS" {
        let limit = Duration::from_secs(30);
        assert!(begun.elapsed() < limit, "{}", program.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn first_bytes(device: &LoopDevice) -> [u8; 4] {
    // From the disk: our own descriptor may have read it before.
    let output = std::process::Command::new("dd")
        .arg(format!("if={}", device.path().display()))
        .args(["iflag=direct", "bs=4096", "count=1", "status=none"])
        .output()
        .unwrap();
    *output.stdout.first_chunk().unwrap()
}

#[test]
fn a_device_that_takes_no_writes_is_a_failure_and_not_clean() {
    let sandbox = or_skip!(Sandbox::enter());
    // The file below has no room for what is written.
    let small = sandbox.tmpfs("small", "size=4m").unwrap();
    let device = LoopDevice::new(&small, 64 << 20).unwrap();
    let args = [
        device.path().as_os_str(),
        "--yes".as_ref(),
        "--method=overwrite".as_ref(),
    ];
    let words = ["cleaning /dev/loop", "failed: cannot write", "is not clean"];
    assert_clean(&args, 1, &words);
}
