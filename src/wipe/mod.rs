//! Deletes data: the contents of directories, and all of devices.
//!
//! It knows no Kubernetes. It works on descriptors that the caller has opened, locked and inspected, never on paths
//! that it looks up itself, and it verifies what it has done.

pub mod command;
pub mod device;
pub mod dirfd;
pub mod escape;
pub mod method;
pub mod pace;
pub(crate) mod priority;
pub mod progress;
pub(crate) mod protect;
pub mod signature;
pub mod supervisor;
pub mod tree;
pub mod trim;
