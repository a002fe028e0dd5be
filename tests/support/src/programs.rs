//! Programs that tests run, which a machine may lack.

use std::path::PathBuf;
use std::process::Command;

use crate::{Sandbox, skip};

/// Names the program that has prepared this process.
const PREPARED_BY: &str = "TEST_PREPARED_BY";

pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/sbin".into(), "/usr/sbin".into()]);
    dirs.into_iter().any(|dir| dir.join(program).is_file())
}

/// Enters a sandbox for a test that runs these programs. Skips the test where one of them is missing.
pub fn sandbox_with(programs: &[&str]) -> Option<Sandbox> {
    if let Some(missing) = programs.iter().find(|program| !has(program)) {
        skip(&format!("no {missing} on this machine"));
        return None;
    }
    Sandbox::enter()
}

/// The program that a variable of the environment names, else the one that scripts have put below `target`, else that of
/// the machine: the first that can say its version.
pub fn tool(variable: &str, built: &str, name: &str, version: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    // target/debug/deps/… is this program.
    let target = std::env::current_exe().ok();
    let built = target.and_then(|exe| Some(exe.ancestors().nth(3)?.join(built)));
    let mut candidates = named.into_iter().chain(built).chain([name.into()]);
    candidates.find(|tool| {
        let output = Command::new(tool).arg(version).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// Runs a program that has to succeed. Returns what it prints.
pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.expect("starting a program");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {text}");
    text
}

/// Runs this test again, in a process that another program prepares.
pub fn run_prepared(prepare: &[&str]) {
    let us = std::env::current_exe().unwrap_or_default();
    let output = Command::new(prepare[0])
        .args(&prepare[1..])
        .arg(us)
        .args(["--exact", &this_test(), "--nocapture"])
        .env(PREPARED_BY, prepare[0])
        .output();
    let output = output.expect("starting this test again");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{prepare:?}: {said}");
}

/// The program that has prepared this process for the test.
pub fn prepared_by() -> Option<String> {
    std::env::var(PREPARED_BY).ok()
}

/// The running test as `module::test`. A runner with a process for each test names it in the environment;
/// elsewhere the test's thread has its name.
pub(crate) fn this_test() -> String {
    std::env::var("NEXTEST_TEST_NAME")
        .ok()
        .or_else(|| std::thread::current().name().map(str::to_owned))
        .unwrap_or_else(|| "test".to_owned())
}

/// Enters a sandbox, or skips the test that calls it: the first line of a test that mounts something.
#[macro_export]
macro_rules! sandbox {
    ($($program:literal),*) => {
        $crate::or_skip!($crate::sandbox_with(&[$($program),*]))
    };
}

/// What a test needs, or the end of the test if it cannot be had here and a skip has said why.
#[macro_export]
macro_rules! or_skip {
    ($needed:expr) => {
        match $needed {
            Some(needed) => needed,
            None => return,
        }
    };
}
