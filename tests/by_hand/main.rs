//! `clean`: the program itself, on real filesystems and devices, with a control plane.

#![allow(clippy::unwrap_used, reason = "what a test cannot set up has failed")]

#[macro_use(or_skip)]
extern crate support;

mod asked;
mod cleaned;
mod fixture;
mod refused;
