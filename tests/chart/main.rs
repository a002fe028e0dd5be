//! The Helm chart: what it renders, what it refuses, and that the program understands it.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[macro_use(or_skip)]
extern crate support;

mod alerts;
mod compat;
mod config;
mod convert;
mod dashboard;
mod deploy;
mod helm;
mod isolation;
mod knobs;
mod node_cleanup;
mod notes;
mod odd_values;
mod promql;
mod refusals;
mod rights;
mod schema;
mod settings;
mod status_test;
mod uninstall;
mod upgrade;
