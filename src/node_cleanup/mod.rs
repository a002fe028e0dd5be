//! Deletes what is left of nodes that are gone: claims bound to their volumes, their PVs, and our finalizer on
//! these.
//!
//! ```text
//! watch of Nodes ──┐
//!                  ├──► plan (pure) ──► executor: fresh reads, then one write with preconditions
//! watch of PVs ────┘
//! ```
//!
//! Deleting a claim lets a StatefulSet's pod start elsewhere, and gives the data up. So whatever is unclear does
//! nothing. A node is gone only if no Node has its name or its hostname label, by the watch and by a fresh read right
//! before each deletion, while the API server lists other Nodes. The delay counts from what this process has seen, on
//! its monotonic clock. Two processes at once harm nothing: each write names the UID and the version of its object.

pub mod controller;
pub mod executor;
pub mod metrics;
pub mod node_index;
pub mod plan;
pub mod report;
pub mod server;
pub mod volume;
pub mod watches;

#[cfg(test)]
mod tests;
