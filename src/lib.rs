//! A node-local volume provisioner for Kubernetes.
//!
//! ```text
//!  config ► inventory ► Snapshot ──► plan ──► actions ──► act / cleanup ──► outcomes ──► report
//!               ▲          ▲                                  │
//!             host       cache (our PVs, classes, node)◄──────┘  (state comes back only through the
//!                          ▲                                      next snapshot)
//!                     cleanup::table
//! ```
//!
//! [`plan`] decides each step. It is pure: no clock, no client, no filesystem. [`act`] carries out the steps.
//! [`cleanup`] runs the attempts to clean a volume: a chain of types in which only one step can construct the next.
//! [`wipe`] destroys the bytes of a volume and knows nothing of Kubernetes. No other module destroys data.
//! A module uses only modules below it, in the order of `tests.rs`.

pub mod act;
pub mod args;
pub mod cache;
pub mod cleanup;
pub mod cluster;
pub mod cmd;
pub mod config;
pub mod controller;
pub mod crash;
pub mod errors;
mod escape;
pub mod host;
pub mod inventory;
mod isolation;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod names;
pub mod node_cleanup;
pub mod plan;
mod process_metrics;
pub mod quantity;
pub mod report;
pub mod retry;
pub mod server;
pub mod status;
pub mod taint;
#[cfg(test)]
mod tests;
pub mod types;
pub mod view;
pub mod wipe;
