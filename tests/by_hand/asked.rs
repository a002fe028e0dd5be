//! The question, on a terminal of the tests' own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{sandbox, until};

use crate::ground::{bytes, command, device_with_secret, has_secret, is_empty, is_full, volume};

const QUESTION: &str = "type its path: ";
const PATIENCE: Duration = Duration::from_secs(30);

/// The program, on a terminal that we hold the other end of.
struct Session {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Session {
    fn start(args: &[&str]) -> Self {
        Self::start_after(args, "")
    }

    /// The same, when something has been typed before.
    fn start_after(args: &[&str], typed: &str) -> Self {
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
        let mut command = command(args);
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
        let shown = || self.screen().contains(text).then_some(());
        let shown = until(PATIENCE, Duration::from_millis(5), shown);
        assert!(shown.is_some(), "no {text:?}: {}", self.screen());
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// The exit code, once it has said this as well.
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
fn the_path_cleans_and_another_answer_does_not() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    for (answer, code, words) in [
        ("y\n", 2, "nothing was touched"),
        ("\n", 2, "that is not its path"),
        // The end of the input.
        ("\x04", 2, "that is not its path"),
        ("/mnt/volumes\n", 2, "that is not its path"),
        ("/mnt/volume\n", 0, "Cleaned /mnt/volume in"),
    ] {
        assert!(is_full(&root));
        let mut session = Session::start(&["/mnt/volume"]);
        session.wait_for(QUESTION);
        assert!(is_full(&root), "before the answer");
        session.type_in(answer);
        assert_eq!(session.end(words), Some(code), "{answer:?}");
    }
    assert!(is_empty(&root));
}

#[test]
fn an_answer_from_before_the_question_is_none() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    let mut session = Session::start_after(&["/mnt/volume"], "/mnt/volume\n");
    session.wait_for(QUESTION);
    session.type_in("no\n");
    assert_eq!(session.end("that is not its path"), Some(2));
    assert!(is_full(&root));
}

#[test]
fn nobody_is_asked_who_does_not_see_the_question_or_what_it_is_about() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    for unseen in ["stdout", "stderr"] {
        let pty = openpty(None, None).unwrap();
        let end = || OwnedFd::try_clone(&pty.slave).unwrap();
        let mut command = command(["/mnt/volume"]);
        command.stdin(end()).stdout(end()).stderr(end());
        match unseen {
            "stdout" => command.stdout(Stdio::null()),
            _ => command.stderr(Stdio::null()),
        };
        let mut child = command.spawn().unwrap();
        thread::sleep(Duration::from_millis(500));
        File::from(pty.master).write_all(b"/mnt/volume\n").ok();
        assert_eq!(child.wait().unwrap().code(), Some(2), "{unseen}");
        assert!(is_full(&root), "{unseen}");
    }
}

#[test]
fn a_signal_instead_of_an_answer_touches_nothing_and_says_so() {
    let sandbox = sandbox!();
    let root = volume(&sandbox, "volume");
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let session = Session::start(&["/mnt/volume"]);
        session.wait_for(QUESTION);
        let pid = Pid::from_raw(session.child.id().cast_signed());
        kill(pid, signal).unwrap();
        assert_eq!(session.end("nothing was touched"), Some(2), "{signal}");
        assert!(is_full(&root));
    }
}

#[test]
fn a_terminal_has_a_bar() {
    let sandbox = sandbox!();
    let device = device_with_secret(sandbox.path());
    let path = device.path().to_str().unwrap();
    let mut session = Session::start(&[path, "--method=overwrite", "--passes=100"]);
    session.wait_for(QUESTION);
    session.type_in(&format!("{path}\n"));
    session.wait_for("of 6.3 GiB wiped (");
    session.wait_for("[=");
}

#[test]
fn nothing_is_touched_when_the_terminal_goes_instead_of_an_answer() {
    let sandbox = sandbox!();
    let device = device_with_secret(sandbox.path());
    let session = Session::start(&[device.path().to_str().unwrap()]);
    session.wait_for(QUESTION);
    drop(session);
    assert!(has_secret(&device));
}

/// Between question and answer anything may happen; what was shown is cleaned, or nothing.
fn exchanged(path: &Path, exchange: impl FnOnce(), words: &str) {
    let path = path.to_str().unwrap();
    let mut session = Session::start(&[path]);
    session.wait_for(QUESTION);
    exchange();
    session.type_in(&format!("{path}\n"));
    assert_eq!(session.end(words), Some(2));
}

#[test]
fn a_link_that_is_turned_to_another_device_meanwhile() {
    let sandbox = sandbox!();
    let devices = [(); 2].map(|()| device_with_secret(sandbox.path()));
    let before = bytes(&devices[0]);
    let link = sandbox.path().join("link");
    symlink(devices[0].path(), &link).unwrap();
    let turn = || {
        std::fs::remove_file(&link).unwrap();
        symlink(devices[1].path(), &link).unwrap();
    };
    exchanged(&link, turn, "the disk was exchanged");
    assert!(devices.iter().all(|device| bytes(device) == before));
}

#[test]
fn a_filesystem_that_is_mounted_over_or_in_it_meanwhile() {
    let sandbox = sandbox!();
    let below = volume(&sandbox, "volume");
    let another = || assert!(is_full(&volume(&sandbox, "volume")));
    exchanged(&below, another, "changed");
    assert!(is_full(&below));
    sandbox.umount(&below).unwrap();
    let inside = || drop(volume(&sandbox, "volume/dir/inside"));
    exchanged(&below, inside, "/mnt/volume/dir/inside");
    assert!(is_full(&below) && is_full(&below.join("dir/inside")));
}
