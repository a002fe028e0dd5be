//! The question, on a terminal of the tests' own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use serde_json::json;
use support::{LoopDevice, Stage, until};

use crate::fixture::{command, has_secret, is_empty, is_full, raw, stage, volume};

const QUESTION: &str = "type its path: ";
const TIMEOUT: Duration = Duration::from_secs(30);

/// The program, on a terminal that we hold the other end of.
struct Session {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Session {
    fn start(stage: &Stage, args: &[&str]) -> Self {
        Self::start_after(stage, args, "")
    }

    /// The same, when something has been typed before.
    fn start_after(stage: &Stage, args: &[&str], typed: &str) -> Self {
        let size = Winsize {
            ws_row: 50,
            ws_col: 200,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let end = || OwnedFd::try_clone(&pty.slave).unwrap();
        let mut keyboard = File::from(pty.master);
        keyboard.write_all(typed.as_bytes()).unwrap();
        let mut command = command(stage, args);
        command.env("TERM", "xterm");
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        let screen = Arc::<Mutex<String>>::default();
        let (mut output, shown) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        // Ends when the program does, which closes the other end.
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]);
                shown.lock().unwrap().push_str(&text);
            }
        });
        Self {
            child,
            keyboard,
            screen,
        }
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    fn wait_for(&self, text: &str) {
        let shown = || self.screen().contains(text);
        let shown = until(TIMEOUT, Duration::from_millis(5), shown);
        assert!(shown.is_some(), "no {text:?}: {}", self.screen());
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// The exit code, once it has printed this as well.
    fn end(mut self, words: &str) -> Option<i32> {
        let code = self.child.wait().unwrap().code();
        self.wait_for(words);
        code
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
        (
            " /mnt/disks/fast/volume \n",
            0,
            "Cleaned /mnt/disks/fast/volume in",
        ),
    ] {
        assert!(is_full(&root));
        let mut session = Session::start(&stage, &[path]);
        session.wait_for(QUESTION);
        assert!(is_full(&root), "before the answer");
        session.type_in(answer);
        assert_eq!(session.end(words), Some(code), "{answer:?}");
    }
    assert!(is_empty(&root));
}

#[test]
fn input_from_before_the_question_is_no_answer() {
    let stage = or_skip!(stage());
    let root = volume(&stage, "volume");
    let path = root.to_str().unwrap();
    let mut session = Session::start_after(&stage, &[path], &format!("{path}\n"));
    session.wait_for(QUESTION);
    session.type_in("no\n");
    assert_eq!(session.end("that is not its path"), Some(2));
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
    let session = Session::start(&stage, &[link.to_str().unwrap()]);
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
    let mut session = Session::start(&stage, &[path]);
    session.wait_for(QUESTION);
    std::fs::remove_file(&link).unwrap();
    symlink(another.path(), &link).unwrap();
    session.type_in(&format!("{path}\n"));
    assert_eq!(session.end("changed before the answer"), Some(2));
    assert!(has_secret(&device));
}
