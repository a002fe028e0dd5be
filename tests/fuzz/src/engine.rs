//! Runs libFuzzer on the target that `FUZZ_TARGET` names.

#![no_main]

use std::sync::OnceLock;

use fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let (_, run) = TARGET.get_or_init(|| {
        let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let names = TARGETS.map(|(name, _)| name).join(", ");
        let found = TARGETS.into_iter().find(|(name, _)| *name == wanted);
        found.unwrap_or_else(|| panic!("FUZZ_TARGET is none of {names}"))
    });
    run(bytes);
});
