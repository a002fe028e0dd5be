//! Whether the embedded control plane ends where a real Kubernetes does.
//!
//! `scenarios/*.yaml` are stories about claims, volumes, pods and the API. Each runs against any API
//! server; what is left when nothing changes any more is recorded, and two records are compared. That
//! of a real Kubernetes is kept beside the scenarios, so that every run of the tests compares.

pub mod activity;
pub mod api;
mod clean;
pub mod compare;
pub mod embedded;
pub mod names;
pub mod outcome;
mod play;
pub mod pulse;
pub mod report;
pub mod run;
pub mod scenario;
mod settle;
pub mod short;
pub mod shown;
pub mod step;
pub mod target;
