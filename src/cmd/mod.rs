//! What the program does, one module for each subcommand. `run` is what it does without one.

pub mod check_config;
pub mod clean;
mod cleaner;
pub mod discover;
pub mod job;
pub mod node_cleanup;
pub mod release;
pub mod run;
pub mod status;
mod table;
