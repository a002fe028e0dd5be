//! The cleaners against real filesystems, devices and processes.

#![allow(clippy::unwrap_used, reason = "what a test cannot set up has failed")]

mod attackers;
mod command;
mod device;
mod erase;
mod faults;
mod hazards;
mod headers;
mod large;
mod lost_writes;
mod oracles;
mod random_trees;
mod subvolumes;
mod trim;
mod verify;
mod volume;
