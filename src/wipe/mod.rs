//! Deletes data: the contents of directories, and whole devices.
//!
//! It does not depend on Kubernetes. It works on descriptors that the caller has opened, locked and inspected,
//! never on paths that it resolves itself, and it verifies the result.

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
