//! The cleaners against real filesystems, devices and processes.

#![allow(clippy::unwrap_used, reason = "what a test cannot set up has failed")]

#[macro_use(or_skip)]
extern crate support;

mod attackers;
mod attributes;
mod below;
mod cancelled;
mod command;
mod device;
mod erase;
mod faults;
mod hazards;
mod headers;
mod kinds;
mod large;
mod lost_writes;
mod oracles;
mod random_trees;
mod subvolumes;
mod trim;
mod volume;
