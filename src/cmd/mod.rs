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
mod manifests;
pub mod move_pv;
pub mod node_cleanup;
pub mod pause;
pub mod rebind;
pub mod release;
pub mod retire;
pub mod run;
pub mod status;
mod storage_class;
mod table;
mod volume;
