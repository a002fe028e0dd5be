//! Other processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A process beside the provisioner that ends with the test.
pub struct Guest(Child);

impl Guest {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Returns when the command has printed a line.
    pub fn ready(command: &mut Command) -> Self {
        let mut guest = Self::start(command.stdout(Stdio::piped()));
        let mut said = BufReader::new(guest.0.stdout.take().unwrap());
        assert_ne!(said.read_line(&mut String::new()).unwrap(), 0, "it ended");
        guest
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
