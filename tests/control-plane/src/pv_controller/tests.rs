//! The rules one by one, on a real store.

mod binding;
mod claims;
mod invariants;
mod matching;
mod volumes;
