//! Targets for a fuzzer: each takes bytes that others write, and panics if the program does what it never may.
//!
//! `scripts/test --fuzz` runs libFuzzer on them. `tests/replay.rs` replays what it has found, and some mutations of that.

// The values of a target are not for use; panics are how it tells what it has found.
#![allow(clippy::unwrap_used, missing_docs)]

mod configuration;
pub mod disks;
mod objects;
pub mod planning;
mod texts;

/// A name, and what takes the bytes.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 10] = [
    ("configuration", configuration::configuration),
    ("identity", texts::identity),
    ("job", objects::job),
    ("mark", disks::mark),
    ("mountinfo", texts::mountinfo),
    ("node", objects::node),
    ("plan", planning::plan),
    ("superblock", disks::superblock),
    ("sysfs", disks::sysfs),
    ("words", texts::words),
];
