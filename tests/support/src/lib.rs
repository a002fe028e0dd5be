//! Real mounts, loop devices and processes for tests, gone when the test is.
//!
//! Everything that a test makes here dies with the test's thread or process, also after `kill -9`:
//! mounts live in a mount namespace of the test's own, loop devices are set to clear themselves when
//! the last descriptor closes, and programs are killed with the thread that started them. What a test
//! makes in a real cluster it removes in the end, or a later test does.

#![allow(
    clippy::expect_used,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    missing_docs,
    reason = "a test that cannot be set up has failed, and says why"
)]

mod cluster;
mod loop_device;
pub mod names;
mod namespace;
pub mod passes;
mod polling;
mod program;
mod programs;
mod promtool;
mod seed;
pub mod stage;
mod terminal;

pub use loop_device::LoopDevice;
pub use namespace::{Sandbox, skip, slow};
pub use polling::{Seen, until};
pub use program::{Program, bare_command, http_get, killed_by};
pub use programs::{has, prepared_by, run, run_prepared, sandbox_with, tool};
pub use promtool::Promtool;
pub use seed::{Random, seed};
pub use stage::Stage;
pub use terminal::Terminal;
