//! `clean PATH`: the program itself, on real filesystems and devices.

#![allow(clippy::unwrap_used, reason = "what a test cannot set up has failed")]

#[macro_use(or_skip)]
extern crate support;

mod asked;
mod ground;
mod refused;
mod stopped;
mod used;
mod wiped;
