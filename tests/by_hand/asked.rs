//! The question, on a terminal of the tests' own.

use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use nix::pty::openpty;
use serde_json::json;
use support::{LoopDevice, Stage, Terminal};

use crate::fixture::{command, has_secret, is_empty, is_full, raw, stage, volume};

const QUESTION: &str = "type its path: ";

/// Starts the program on a terminal of its own, in which something was typed before.
fn start_after(stage: &Stage, args: &[&str], typed: &str) -> Terminal {
    let mut command = command(stage, args);
    command.env("TERM", "xterm");
    Terminal::start_after(command, typed)
}

fn start(stage: &Stage, args: &[&str]) -> Terminal {
    start_after(stage, args, "")
}

/// The exit code, once it has printed this as well.
fn end(terminal: &mut Terminal, words: &str) -> Option<i32> {
    let code = terminal.end();
    terminal.wait_for(words);
    code
}

#[test]
fn only_the_path_is_a_yes() {
    let stage = or_skip!(stage());
    let root = volume(&stage, "volume");
    let path = root.to_str().unwrap();
    for (answer, code, words) in [
        ("y\n", 2, "nothing was touched"),
        ("yes\n", 2, "that is not its path"),
        ("/mnt/disks/fast/volume/\n", 2, "that is not its path"),
        ("/mnt/disks/fast\n", 2, "that is not its path"),
        ("\n", 2, "that is not its path"),
        // The end of the input.
        ("\x04", 2, "that is not its path"),
        ("/mnt/disks/fast/volumes\n", 2, "that is not its path"),
        (" /mnt/disks/fast/volume \n", 0, "Cleaned /mnt/disks/fast/volume in"),
    ] {
        assert!(is_full(&root));
        let mut session = start(&stage, &[path]);
        session.wait_for(QUESTION);
        assert!(is_full(&root), "before the answer");
        session.type_in(answer);
        assert_eq!(end(&mut session, words), Some(code), "{answer:?}");
    }
    assert!(is_empty(&root));
}

#[test]
fn input_from_before_the_question_is_no_answer() {
    let stage = or_skip!(stage());
    let root = volume(&stage, "volume");
    let path = root.to_str().unwrap();
    let mut session = start_after(&stage, &[path], &format!("{path}\n"));
    session.wait_for(QUESTION);
    session.type_in("no\n");
    assert_eq!(end(&mut session, "that is not its path"), Some(2));
    assert!(is_full(&root));
}

#[test]
fn no_question_without_a_terminal() {
    let stage = or_skip!(stage());
    let root = volume(&stage, "volume");
    for unseen in ["stdout", "stderr"] {
        let pty = openpty(None, None).unwrap();
        let end = || OwnedFd::try_clone(&pty.slave).unwrap();
        let mut command = command(&stage, &[root.to_str().unwrap()]);
        command.stdin(end()).stdout(end()).stderr(end());
        match unseen {
            "stdout" => command.stdout(Stdio::null()),
            _ => command.stderr(Stdio::null()),
        };
        let mut child = command.spawn().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(2), "{unseen}");
        assert!(is_full(&root), "{unseen}");
    }
}

#[test]
fn end_of_the_terminal_before_the_answer_touches_nothing() {
    let stage = or_skip!(stage());
    let (device, link) = raw(&stage, &json!({}), stage.sandbox.path());
    let session = start(&stage, &[link.to_str().unwrap()]);
    session.wait_for(QUESTION);
    drop(session);
    assert!(has_secret(&device));
}

#[test]
fn device_that_is_exchanged_before_the_answer_is_not_cleaned() {
    let stage = or_skip!(stage());
    let (device, link) = raw(&stage, &json!({}), stage.sandbox.path());
    let another = LoopDevice::new(stage.sandbox.path(), crate::fixture::SIZE).unwrap();
    let path = link.to_str().unwrap();
    let mut session = start(&stage, &[path]);
    session.wait_for(QUESTION);
    std::fs::remove_file(&link).unwrap();
    symlink(another.path(), &link).unwrap();
    session.type_in(&format!("{path}\n"));
    assert_eq!(end(&mut session, "changed before the answer"), Some(2));
    assert!(has_secret(&device));
}
