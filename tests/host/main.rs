//! The host layer on real mounts, loop devices and processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[macro_use(or_skip)]
extern crate support;

mod device;
mod filesystem;
mod identity;
mod links;
mod lock;
mod marks;
mod recorder;
mod users;
mod volumes;
mod watch;
