//! Removes what is left of nodes that are gone: claims that wait for a volume that will never come
//! back, the PVs, and our finalizer on them, whose provisioner is gone as well.
//!
//! ```text
//! watch of Nodes ──► roster ──┐
//!                             ├──► plan (pure) ──► act: fresh reads, then one write with preconditions
//! watch of PVs ──► volumes ───┘                     ▲
//!                                      election ────┘  (no write without the lease)
//! ```
//!
//! Deleting a claim frees a StatefulSet's pod to start elsewhere, and gives the data up. So all that is
//! not certain does nothing: a node is gone only if no Node has its name or its hostname label, asked
//! of the API server right before each write, while it does know of other Nodes.

pub mod act;
pub mod controller;
pub mod election;
pub mod limiter;
pub mod metrics;
pub mod plan;
pub mod pulse;
pub mod roster;
pub mod server;
pub mod timer;
pub mod view;
pub mod volume;

#[cfg(test)]
mod tests;
