//! The rules one by one, on a real store.

mod binding;
mod delete;
mod invariants;
mod reclaim;
