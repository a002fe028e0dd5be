//! The rules one by one, on a real store.

mod binding;
mod invariants;
mod reclaim;
