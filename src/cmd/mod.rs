//! The subcommands, one module each. `run` is the provisioner, which runs without a subcommand.

pub mod check_config;
pub mod clean;
pub mod cleaner;
pub mod discover;
pub mod job;
mod links;
pub mod node_cleanup;
pub mod release;
pub mod run;
pub mod status;
mod table;
