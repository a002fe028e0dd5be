//! Cleans up after nodes that are gone: deletes claims bound to their volumes, deletes their PVs, and removes our
//! finalizer from these.
//!
//! ```text
//! watch of Nodes ──┐
//!                  ├──► plan (pure) ──► executor: fresh reads, then one write with preconditions
//! watch of PVs ────┘
//! ```
//!
//! Deleting a claim lets a StatefulSet's pod start elsewhere, and gives up the data. So nothing is done in an unclear
//! case. A node is gone only if no Node has its name or its hostname label, by the watch and by a fresh read before
//! each deletion, while the API server lists other Nodes. The delay is measured by the monotonic clock of this process.
//! Two concurrent processes are safe: each write has the UID and the version of its object as preconditions.

pub mod controller;
mod executor;
pub mod metrics;
pub mod plan;
pub mod volume;
pub mod watches;

#[cfg(test)]
mod tests;
