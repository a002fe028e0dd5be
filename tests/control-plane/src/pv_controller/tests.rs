//! The rules one by one, on a real store.

mod binding;
mod claims;
mod delete;
mod invariants;
mod old_bugs;
mod pools;
mod reclaim;
mod volumes;
