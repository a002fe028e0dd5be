//! The fields of API objects that decisions depend on, parsed once.

mod job;
mod node;
mod pv;
mod storage_class;

pub use job::{JobState, JobView, Jobs};
pub use node::NodeView;
pub(crate) use pv::hosts_of_terms;
pub use pv::{ClaimRef, Ownership, Phase, PvRef, PvView, ReclaimPolicy, Tenancy};
pub use storage_class::StorageClassView;
