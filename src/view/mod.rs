//! The fields of API objects that decisions depend on, parsed once.

mod affinity;
mod csi;
mod job;
mod node;
mod partial;
mod pv;
mod storage_class;

pub use affinity::Affinity;
pub use csi::{CsiDriver, NodeReference};
pub use job::{Job, JobState, JobView, Jobs};
pub use node::NodeView;
pub use partial::Partial;
pub use pv::{
    ClaimRef, Ownership, PathOwner, PersistentVolume, Phase, PvRef, PvSpec, PvView, ReclaimPolicy,
    Tenancy,
};
pub use storage_class::StorageClassView;
