//! The rules one by one, on a real store.

mod binding;
mod claim_status;
mod claims;
mod delete;
mod explanations;
mod invariants;
mod matching;
mod old_bugs;
mod pools;
mod reclaim;
mod volumes;
