//! A section of the page, and the run of its commands.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::Value;
use support::Terminal;
use tempfile::TempDir;

use crate::cluster::{NODE, SYSTEM, name, path, run};
use crate::release::{CHART, NAME};

/// A page whose procedures are followed.
pub struct Page {
    text: &'static str,
    /// What its sections begin with.
    heading: &'static str,
}

pub const OPERATIONS: Page =
    Page { text: include_str!("../../../docs/operations.md"), heading: "\n## " };
pub const MARKS: Page = Page { text: include_str!("../../../docs/marks.md"), heading: "\n### " };
pub const UPGRADE: Page = Page { text: include_str!("../../../docs/upgrade.md"), heading: "\n## " };
pub const UPGRADE_THIS: Page =
    Page { text: include_str!("../../../docs/upgrade-this-program.md"), heading: "\n## " };
/// The section that the others begin with.
pub const PRELUDE: &str = "Before you begin";
/// How a block for a shell on the node begins.
const ON_THE_NODE: &str = "# on the node\n";

impl Page {
    /// The titles of the sections with commands, in order.
    pub fn titles(&self) -> Vec<&'static str> {
        let with_blocks = self.sections().filter(|(_, text)| text.contains("```"));
        with_blocks.map(|(title, _)| title).collect()
    }

    fn sections(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let sections = self.text.split(self.heading).skip(1);
        sections.filter_map(|section| section.split_once('\n'))
    }

    /// The blocks of a section.
    fn blocks(&self, title: &str) -> Vec<&'static str> {
        let (_, text) = self
            .sections()
            .find(|(found, _)| *found == title)
            .unwrap_or_else(|| panic!("the page has no section {title:?}"));
        // Every other part is within a fence.
        let fenced = text.split("\n```").skip(1).step_by(2);
        fenced
            .map(|block| {
                block
                    .strip_prefix("sh\n")
                    .unwrap_or_else(|| panic!("a block of {title:?} is none of a shell: {block}"))
            })
            .collect()
    }
}

/// A section that is being followed: a terminal, and what of it has been done.
pub struct Procedure {
    blocks: Vec<(&'static str, bool)>,
    dir: TempDir,
}

impl Procedure {
    /// The section of this title.
    pub fn titled(page: &Page, title: &str) -> Self {
        let procedure = Self {
            blocks: page.blocks(title).into_iter().map(|block| (block, false)).collect(),
            dir: tempfile::tempdir().unwrap(),
        };
        procedure.set("NS", SYSTEM);
        procedure.set("RELEASE", NAME);
        procedure.set("CHART", CHART);
        // As docs/install.md installs the plugin.
        let plugin = procedure.dir().join("kubectl-local_volume");
        symlink(env!("CARGO_BIN_EXE_local-volume-provisioner"), plugin).unwrap();
        let path = std::env::var("PATH").unwrap();
        procedure.set("PATH", format!("{}:{path}", procedure.dir().display()));
        procedure
    }

    /// Where no other test writes.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What the shell knows from one block to the next.
    fn variables(&self) -> PathBuf {
        self.dir.path().join("variables")
    }

    /// Sets a variable that the page asks for.
    pub fn set(&self, variable: &str, value: impl AsRef<Path>) {
        let value = value.as_ref().display();
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(self.variables()).unwrap();
        writeln!(file, "export {variable}='{value}'").unwrap();
    }

    /// Does what comes before each procedure, for one PV.
    pub fn about(&self, pv: &Value) {
        self.set("PV", name(pv));
        self.set("NODE", NODE);
        self.set("VOLUME", path(pv));
        for block in OPERATIONS.blocks(PRELUDE) {
            self.shell(block).unwrap();
        }
    }

    /// Runs the one block that is this text, or has it in it; what it printed.
    pub fn follow(&mut self, text: &str) -> String {
        self.try_follow(text).unwrap()
    }

    /// The same, where it may be refused.
    pub fn try_follow(&mut self, text: &str) -> Result<String> {
        let at = self.position(text);
        self.blocks[at].1 = true;
        self.shell(self.blocks[at].0)
    }

    /// Begins the one block that has this text in it, on a terminal, where it waits for answers or for other steps.
    pub fn begin(&mut self, text: &str) -> Terminal {
        let at = self.position(text);
        self.blocks[at].1 = true;
        Terminal::start(self.command(self.blocks[at].0))
    }

    /// Runs such a block to its end, with the answer to its question.
    pub fn confirm(&mut self, text: &str, answer: &str) -> String {
        let mut terminal = self.begin(text);
        terminal.wait_for(&format!("type {answer}: "));
        terminal.type_in(&format!("{answer}\n"));
        let code = terminal.end();
        assert_eq!(code, Some(0), "{}", terminal.screen());
        terminal.screen()
    }

    fn position(&self, text: &str) -> usize {
        let exact = self.blocks.iter().position(|(block, _)| *block == text);
        exact.unwrap_or_else(|| {
            let all = self.blocks.iter().enumerate();
            let mut found = all.filter(|(_, (block, _))| block.contains(text));
            let (Some((at, _)), None) = (found.next(), found.next()) else {
                panic!("not exactly one block has {text:?} in it");
            };
            at
        })
    }

    fn shell(&self, block: &str) -> Result<String> {
        let said = run(&mut self.command(block), "");
        println!("{said:?}");
        said
    }

    fn command(&self, block: &str) -> Command {
        let variables = self.variables();
        let variables = variables.display();
        // On the node there is no access to the cluster.
        let (node, block) = match block.strip_prefix(ON_THE_NODE) {
            Some(block) => ("unset KUBECONFIG", block),
            None => ("", block),
        };
        let script = format!("set -a\n. {variables}\n{node}\n{block}\nexport -p >{variables}");
        println!("--- {block}");
        let mut command = Command::new("timeout");
        command
            .args(["--foreground", "150", "sh", "-e", "-c", &script])
            .current_dir(self.dir.path());
        command
    }

    /// Fails if a block was left out.
    pub fn was_followed(&self) {
        let left: Vec<_> = self.blocks.iter().filter(|(_, followed)| !followed).collect();
        assert!(left.is_empty(), "not run by any test: {left:#?}");
    }
}
