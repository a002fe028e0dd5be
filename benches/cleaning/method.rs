//! One way to get rid of data: a program, and what it is told.

use std::env;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct Method {
    /// What the tables call it.
    pub name: &'static str,
    /// What has to be so afterwards.
    pub leaves: Leaves,
    /// Whether it is a process of this benchmark, which tells more of itself than others.
    pub ours: bool,
    words: Vec<String>,
}

/// What a method promises to leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// An empty directory.
    Nothing,
    /// A device of zeros.
    Zeros,
    /// A device that shows no signature of a filesystem.
    NoSignature,
    /// Who knows.
    Anything,
}

impl Method {
    /// A tool by its command line, in which `{}` stands for what is to be cleaned.
    pub fn tool(name: &'static str, line: &[&str], leaves: Leaves) -> Self {
        Self {
            name,
            leaves,
            ours: false,
            words: line.iter().map(ToString::to_string).collect(),
        }
    }

    /// One of our own cleaners, by the words that [`Ours`](super::ours::Ours) knows.
    pub fn ours(name: &'static str, line: &[&str], leaves: Leaves) -> Self {
        // The link leads to this program, also in a child that is about to become another.
        let line = [&["/proc/self/exe", "--bench"], line].concat();
        Self {
            ours: true,
            ..Self::tool(name, &line, leaves)
        }
    }

    /// Whether the machine has the program; if not, it is told.
    pub fn is_there(&self) -> bool {
        let program = &self.words[0];
        let path = env::var_os("PATH").unwrap_or_default();
        let found = self.ours || env::split_paths(&path).any(|dir| dir.join(program).is_file());
        if !found {
            let name = self.name;
            eprintln!("left out: {name}, for the machine has no {program}");
        }
        found
    }

    /// Cleans `target`, which has to succeed.
    pub fn run(&self, target: &Path) -> Result<Output> {
        let target = target.to_string_lossy();
        let words = self.words.iter().map(|word| word.replace("{}", &target));
        let output = Command::new(&self.words[0])
            .args(words.skip(1))
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("running {}", self.name))?;
        ensure!(
            output.status.success(),
            "{}: {}: {}",
            self.name,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(output)
    }
}
