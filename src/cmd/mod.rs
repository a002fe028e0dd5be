//! The subcommands, one module each, and what several of them share.

pub(crate) mod api_server;
mod ask;
pub mod bundle;
pub mod check;
pub mod check_config;
pub mod clean;
pub mod cleaner;
pub mod completion;
pub mod consent;
pub mod discover;
pub mod explain;
mod fleet;
pub mod job;
mod links;
pub mod list;
pub mod node_cleanup;
pub mod pause;
pub mod release;
pub mod run;
pub mod status;
mod table;
mod volume;
