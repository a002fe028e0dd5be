//! The fields of API objects that decisions depend on, parsed once.

mod affinity;
mod csi;
mod job;
mod link;
mod node;
mod ownership;
mod partial;
mod pv;
mod storage_class;

pub use affinity::Affinity;
pub use csi::{CsiDriver, NodeReference};
pub use job::{Job, JobState, JobView, Jobs};
pub use link::PvLink;
pub use node::NodeView;
pub use ownership::Ownership;
pub use partial::Partial;
pub use pv::{
    ClaimRef, PathOwner, PersistentVolume, Phase, PvRef, PvSpec, PvView, ReclaimPolicy, Tenancy,
};
pub use storage_class::StorageClassView;
