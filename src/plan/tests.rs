//! Tables of situations, and properties of random ones.

mod adopt;
mod cancel;
mod class;
mod cleanup;
mod due;
mod empty_only;
mod identity;
mod installations;
mod jobs;
pub(super) mod kit;
mod labels;
mod link;
mod living;
mod making;
mod mark;
mod mark_of_pv;
mod missing;
mod model;
mod occupied;
mod offer;
mod owners;
mod pod_mounts;
mod properties;
mod purity;
mod random;
mod refuse;
mod share;
