//! A program on a terminal, whose other end a test holds.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};

use crate::until;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A running program. Dropping it kills the program.
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    /// Starts a command on a new terminal.
    pub fn start(command: Command) -> Self {
        Self::start_after(command, "")
    }

    /// Starts it after something was typed.
    pub fn start_after(mut command: Command, typed: &str) -> Self {
        let size = Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let end = || OwnedFd::try_clone(&pty.slave).unwrap();
        let mut keyboard = File::from(pty.master);
        keyboard.write_all(typed.as_bytes()).unwrap();
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
        Self { child, keyboard, screen }
    }

    /// What was printed, and echoed, so far.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until a text is printed.
    pub fn wait_for(&self, text: &str) {
        self.wait_up_to(TIMEOUT, text);
    }

    /// The same, with another limit.
    pub fn wait_up_to(&self, timeout: Duration, text: &str) {
        let shown = || self.screen().contains(text);
        let shown = until(timeout, Duration::from_millis(5), shown);
        assert!(shown.is_some(), "no {text:?}: {}", self.screen());
    }

    /// Types a text.
    pub fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the end, and returns the exit code.
    pub fn end(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
