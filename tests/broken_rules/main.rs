//! Whether the simulation finds each rule of the program that is broken on purpose.
//!
//! All rules of [`cleaning`], [`offering`], [`linking`] and [`intake`] are replaced in a copy of the source, which is built once. The environment then says which one
//! is broken. `scripts/test --broken` runs this, and prints after how many worlds each was found.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cleaning;
mod intake;
mod linking;
mod offering;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rules::{Rule, all};
use serde_json::Value;

/// The worlds in which a rule must be found.
const WORLDS: u32 = 2000;
/// The tests that have to find it, the quick one first.
const TESTS: [&str; 2] = ["no_history", "data_is_kept"];
/// The tests that have to find a rule of links.
const TESTS_OF_LINKS: [&str; 1] = ["nothing_but_its_own_volume"];
/// The tests that have to find a rule of disks that are taken in.
const TESTS_OF_INTAKE: [&str; 2] = ["a_blank_disk_becomes", "a_filesystem_is_made"];
/// What the copy has of this directory.
const COPIED: [&str; 7] =
    [".cargo", "Cargo.lock", "Cargo.toml", "benches", "build.rs", "src", "tests"];
/// Whether a rule is broken, in the copy.
const SWITCH: &str = r#"
/// Whether the rule of this number is broken.
pub(crate) fn is_broken(rule: &str) -> bool {
    static BROKEN: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| {
        let rules = std::env::var("BROKEN_RULES").unwrap_or_default();
        rules.split(',').map(str::to_owned).collect()
    });
    BROKEN.iter().any(|it| it == rule)
}
"#;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn each_rule_is_there_once() {
    for rule in all() {
        let text = fs::read_to_string(root().join(rule.file)).unwrap();
        let count = text.matches(rule.text).count();
        assert_eq!(count, 1, "{}: {:?} in {}", rule.name, rule.text, rule.file);
        assert!(rule.broken.contains("BROKEN"), "{}", rule.name);
    }
}

/// Copies the source, with all rules replaced.
fn copy() -> PathBuf {
    let copy = root().join("target/broken");
    fs::create_dir_all(&copy).unwrap();
    for name in COPIED {
        let copied = Command::new("cp")
            .args(["--archive", "--no-target-directory"])
            .args([root().join(name), copy.join(name)])
            .status();
        assert!(copied.unwrap().success(), "{name} cannot be copied");
    }
    let change = |file: &str, change: &dyn Fn(String) -> String| {
        let path = copy.join(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, change(text)).unwrap();
    };
    for (number, rule) in all().enumerate() {
        let switch = format!("crate::is_broken(\"{number}\")");
        let broken = rule.broken.replace("BROKEN", &switch);
        change(rule.file, &|text| text.replace(rule.text, &broken));
    }
    change("src/lib.rs", &|text| text + SWITCH);
    copy
}

/// Builds the simulation of a copy.
fn build(copy: &Path) -> String {
    let built = Command::new(env!("CARGO"))
        .current_dir(copy)
        .args(["test", "--quiet", "--workspace", "--profile", "worlds", "--test", "simulation"])
        .args(["--no-run", "--message-format", "json"])
        .env("CARGO_TARGET_DIR", root().join("target"))
        .output();
    let built = built.unwrap();
    let errors = String::from_utf8_lossy(&built.stderr);
    let messages = String::from_utf8(built.stdout).unwrap();
    assert!(built.status.success(), "{errors}\n{messages}");
    let messages = messages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut built = messages.filter(|it| it["target"]["name"] == "simulation");
    built.find_map(|it| Some(it["executable"].as_str()?.to_owned())).unwrap()
}

/// The numbers of a rule and of those behind it.
fn numbers(rule: &Rule) -> String {
    let names = [rule.name].into_iter().chain(rule.behind.iter().copied());
    let number = |name| all().position(|it| it.name == name).unwrap();
    let numbers: Vec<_> = names.map(|name| number(name).to_string()).collect();
    numbers.join(",")
}

/// Runs a test while a rule is broken. Returns how it failed, and how much had been searched before.
fn find(simulation: &str, search: &str, rule: &str) -> Option<(String, String)> {
    let run = Command::new("timeout")
        .args(["900", simulation, search, "--nocapture"])
        .env("BROKEN_RULES", rule)
        .env("SIMULATION_WORLDS", WORLDS.to_string())
        .env("SIMULATION_FIRST", "1")
        .output();
    let run = run.unwrap();
    let text = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    let line = |begin: &str| {
        let mut lines = text.lines();
        lines.find_map(|it| Some(it.strip_prefix(begin)?.to_owned()))
    };
    let found = line("found: ").unwrap_or_else(|| "it panics".to_owned());
    (!run.status.success()).then(|| (found, line("searched: ").unwrap_or_default()))
}

#[test]
#[ignore = "it takes minutes: scripts/test --broken"]
fn each_broken_rule_is_found() {
    let simulation = build(&copy());
    for test in TESTS.iter().chain(&TESTS_OF_LINKS).chain(&TESTS_OF_INTAKE) {
        assert_eq!(find(&simulation, test, ""), None, "no rule is broken");
    }
    let mut missed = Vec::new();
    println!("| Broken rule | Searched | Found |\n|---|---|---|");
    for rule in all().filter(|it| !it.is_hidden) {
        let rules = numbers(rule);
        let is_of = |rules: &[Rule]| rules.iter().any(|it| it.name == rule.name);
        let tests = match () {
            () if is_of(linking::RULES) => &TESTS_OF_LINKS[..],
            () if is_of(intake::RULES) => &TESTS_OF_INTAKE,
            () => &TESTS,
        };
        let mut found = tests.iter().filter_map(|it| find(&simulation, it, &rules));
        let found = found.next();
        let (how, searched) = found.clone().unwrap_or_default();
        println!("| {} | {searched} | {how} |", rule.name);
        missed.extend(found.is_none().then_some(rule.name));
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
