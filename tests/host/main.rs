//! The host layer on real mounts, loop devices and processes.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod device;
mod filesystem;
mod identity;
mod lock;
mod users;
mod volumes;
mod watch;
