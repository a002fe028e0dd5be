//! Deletes data: the contents of directories, and whole devices.
//!
//! It does not depend on Kubernetes. It works on descriptors that the caller has opened, locked and inspected,
//! never on paths that it resolves itself, and it verifies the result.

pub mod command;
pub mod device;
mod dirfd;
pub mod error;
mod ioctl;
pub(crate) mod method;
pub(crate) mod pace;
pub(crate) mod priority;
pub mod progress;
mod protect;
pub mod signature;
pub mod superblock;
pub mod supervisor;
pub mod tree;
pub mod trim;
