//! What the plan sees of API objects: a few plain fields, read once, with nothing left to parse.

mod job;
mod node;
mod pv;
mod storage_class;

pub use job::{JobState, JobView, Jobs};
pub use node::{NodeFault, NodeView};
pub use pv::{ClaimRef, Ownership, Phase, PvRef, PvView, ReclaimPolicy, Source, Tenancy};
pub use storage_class::StorageClassView;
